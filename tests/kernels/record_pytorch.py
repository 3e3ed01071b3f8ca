#!/usr/bin/env python3
"""Records what PyTorch computes for each op, for test_pytorch.c: python3 record_pytorch.py data/

Needs torch (2.13.0 made the committed files). Each file is a list of float32 tensors in the order in which the test reads
them: an int64 count, then per tensor an int64 size and the values, little endian. Everything is seeded.
"""
import struct
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(1337)
torch.set_num_threads(1)
folder = sys.argv[1]


def write(name, *tensors):
    with open(f"{folder}/{name}.bin", "wb") as f:
        f.write(struct.pack("<q", len(tensors)))
        for t in tensors:
            t = t.detach().to(torch.float32).contiguous().flatten()
            f.write(struct.pack("<q", t.numel()))
            f.write(t.numpy().astype("<f4").tobytes())


def leaf(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).requires_grad_()


# linear, W (in, out) as in GPT-2's Conv1D, with GELU: rows 24, in 40, out 56
x, w, b = leaf(24, 40), leaf(40, 56, scale=0.2), leaf(56)
pre = x @ w + b
pre.retain_grad()
y = F.gelu(pre, approximate="tanh")
dy = torch.randn_like(y)
y.backward(dy)
write("linear_gelu", x, w, b, pre, y, dy, pre.grad, x.grad, w.grad, b.grad)

# linear, W (out, in), no bias: rows 24, in 40, out 65
x, w = leaf(24, 40), leaf(65, 40, scale=0.2)
y = F.linear(x, w)
dy = torch.randn_like(y)
y.backward(dy)
write("linear_transposed", x, w, y, dy, x.grad, w.grad)

# residual + layer norm: rows 37, width 50; the stream's own gradient is the addend
x, branch, gamma, beta = leaf(37, 50), leaf(37, 50), leaf(50), leaf(50)
r = x + branch
y = F.layer_norm(r, (50,), gamma, beta, 1e-5)
dy, addend = torch.randn_like(y), torch.randn_like(y)
((y * dy).sum() + (r * addend).sum()).backward()
write("residual_layernorm", x, branch, gamma, beta, r, y, dy, addend, x.grad, gamma.grad, beta.grad)

# causal attention: batch 2, time 70, width 48, 3 heads
B, T, C, H = 2, 70, 48, 3
qkv = leaf(B, T, 3 * C)
q, k, v = (t.view(B, T, H, C // H).transpose(1, 2) for t in qkv.split(C, dim=2))
y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
dy = torch.randn_like(y)
y.backward(dy)
write("attention", qkv, y, dy, qkv.grad)

# cross entropy: 19 rows, vocabulary 65, one target ignored, the mean over the 18 others
logits = leaf(19, 65, scale=3)
targets = torch.randint(0, 65, (19,))
targets[7] = -1
losses = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
(losses.sum() / 18).backward()
write("cross_entropy", logits, targets, losses, logits.grad)

# embedding: batch 3, time 7, width 20, vocabulary 11
tokens = torch.randint(0, 11, (3, 7))
wte, wpe = leaf(11, 20), leaf(7, 20)
y = F.embedding(tokens, wte) + wpe
dy = torch.randn_like(y)
y.backward(dy)
write("embedding", tokens, wte, wpe, y, dy, wte.grad, wpe.grad)

# AdamW: 300 parameters, 3 updates
p = leaf(300)
start = p.detach().clone()
optimizer = torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
gradients = []
for _ in range(3):
    p.grad = torch.randn(300)
    gradients.append(p.grad.clone())
    optimizer.step()
state = optimizer.state[p]
write("adamw", start, *gradients, p, state["exp_avg"], state["exp_avg_sq"])
