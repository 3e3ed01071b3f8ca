#!/usr/bin/env python3
"""Records what PyTorch computes for each op, for test_pytorch.c: python3 record_pytorch.py data/

Needs torch and transformers (2.13.0 and 5.23.0 made the committed files). Each file is a list of float32 tensors in the
order in which the test reads them: an int64 count, then per tensor an int64 size and the values, little endian. Everything
is seeded. NAME_bf16 has tensors and operations in bf16, their values stored as float32.
"""
import struct
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(1337)
torch.set_num_threads(1)
folder = sys.argv[1]


def write(name, *tensors):
    with open(f"{folder}/{name}{suffix}.bin", "wb") as f:
        f.write(struct.pack("<q", len(tensors)))
        for t in tensors:
            t = t.detach().to(torch.float32).contiguous().flatten()
            f.write(struct.pack("<q", t.numel()))
            f.write(t.numpy().astype("<f4").tobytes())


def leaf(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype).requires_grad_()


def like(t):
    return torch.randn(t.shape).to(t.dtype)


def record_linear():
    """W (in, out) as in GPT-2's Conv1D, with GELU: rows 24, in 40, out 56; then W (out, in), no bias, out 65."""
    x, w, b = leaf(24, 40), leaf(40, 56, scale=0.2), leaf(56)
    pre = torch.addmm(b, x, w)
    pre.retain_grad()
    y = F.gelu(pre, approximate="tanh")
    dy = like(y)
    y.backward(dy)
    write("linear_gelu", x, w, b, pre, y, dy, pre.grad, x.grad, w.grad, b.grad)
    x, w = leaf(24, 40), leaf(65, 40, scale=0.2)
    y = F.linear(x, w)
    dy = like(y)
    y.backward(dy)
    write("linear_transposed", x, w, y, dy, x.grad, w.grad)


def record_layernorm():
    """residual + layer norm: rows 37, width 50; the stream's own gradient is the addend"""
    x, branch, gamma, beta = leaf(37, 50), leaf(37, 50), leaf(50), leaf(50)
    r = x + branch
    y = F.layer_norm(r, (50,), gamma, beta, 1e-5)
    dy, addend = like(y), like(y)
    ((y * dy).sum() + (r * addend).sum()).backward()
    write("residual_layernorm", x, branch, gamma, beta, r, y, dy, addend, x.grad, gamma.grad, beta.grad)


def record_attention(name, B, T, H, KV, D, causal):
    qkv = leaf(B, T, (H + 2 * KV) * D)
    q, k, v = (t.view(B, T, -1, D).transpose(1, 2) for t in qkv.split([H * D, KV * D, KV * D], dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=KV != H)
    y = y.transpose(1, 2).reshape(B, T, H * D)
    dy = like(y)
    y.backward(dy)
    write(name, qkv, y, dy, qkv.grad)


def record_loss():
    """cross entropy: 19 rows, vocabulary 65, one target ignored, the mean over the 18 others; and an embedding: batch 3,
    time 7, width 20, vocabulary 11"""
    logits = leaf(19, 65, scale=3)
    targets = torch.randint(0, 65, (19,))
    targets[7] = -1
    losses = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    (losses.sum() / 18).backward()
    write("cross_entropy", logits, targets, losses, logits.grad)
    tokens = torch.randint(0, 11, (3, 7))
    wte, wpe = leaf(11, 20), leaf(7, 20)
    y = F.embedding(tokens, wte) + wpe
    dy = like(y)
    y.backward(dy)
    write("embedding", tokens, wte, wpe, y, dy, wte.grad, wpe.grad)


def record_adamw():
    """300 parameters, 3 updates"""
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


def record_rmsnorm():
    """residual + RMS norm: rows 37, width 50, as Hugging Face's Llama has it but rounded once"""
    x, branch, gamma = leaf(37, 50), leaf(37, 50), leaf(50)
    r = x + branch
    y = F.rms_norm(r, (50,), gamma, 1e-5)
    dy, addend = like(y), like(y)
    ((y * dy).sum() + (r * addend).sum()).backward()
    write("residual_rmsnorm", x, branch, gamma, r, y, dy, addend, x.grad, gamma.grad)


def record_swiglu():
    """rows 13, width 37"""
    x = leaf(13, 2 * 37, scale=2)
    gate, up = x.split(37, dim=1)
    y = F.silu(gate) * up
    dy = like(y)
    y.backward(dy)
    write("swiglu", x, y, dy, x.grad)


def record_rope(name, parameters, context):
    """Hugging Face's rotary positions: batch 2, time 40, 3 query heads, 1 key head of 12; only queries and keys turn"""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    B, T, H, KV, D = 2, 40, 3, 1, 12
    config = LlamaConfig(hidden_size=H * D, num_attention_heads=H, num_key_value_heads=KV, head_dim=D,
                         max_position_embeddings=context, rope_parameters=parameters)
    rotary = LlamaRotaryEmbedding(config)
    qkv = leaf(B, T, (H + 2 * KV) * D)
    q, k, v = (t.view(B, T, -1, D).transpose(1, 2) for t in qkv.split([H * D, KV * D, KV * D], dim=2))
    cosine, sine = rotary(qkv.float(), torch.arange(T)[None])
    q, k = apply_rotary_pos_emb(q.float(), k.float(), cosine, sine)
    y = torch.cat([t.transpose(1, 2).reshape(B, T, -1) for t in (q, k, v)], dim=2).to(dtype)
    dy = like(y)
    y.backward(dy)
    write(name, qkv, y, dy, qkv.grad)


def record_gelu_erf():
    """301 numbers"""
    x = leaf(301, scale=2)
    y = F.gelu(x)
    dy = like(y)
    y.backward(dy)
    write("gelu_erf", x, y, dy, x.grad)


for dtype, suffix in ((torch.float32, ""), (torch.bfloat16, "_bf16")):
    record_linear()
    record_layernorm()
    record_attention("attention", 2, 70, 3, 3, 16, True)
    record_loss()
    if dtype == torch.float32:
        record_adamw()
    record_rmsnorm()
    record_swiglu()
    record_rope("rope", {"rope_type": "default", "rope_theta": 10000.0}, 2048)
    record_rope("rope_llama3", {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, 512)
    record_attention("attention_grouped", 1, 67, 4, 2, 8, True)
    record_attention("attention_full", 2, 33, 2, 2, 8, False)
for dtype, suffix in ((torch.float32, ""), (torch.bfloat16, "_bf16")):
    record_gelu_erf()
