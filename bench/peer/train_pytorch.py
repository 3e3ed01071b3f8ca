"""The peer of bench_train: the same model, batch, optimizer and clipping in PyTorch on the CPU, random tokens.

    python bench/peer/train_pytorch.py char|gpt2|llama|resnet18 fp32|bf16|autocast THREADS STEPS eager|compiled [cpu]
    python bench/peer/train_pytorch.py facts

bf16: bf16 weights, gradients and activations, and an fp32 master of each weight that AdamW steps, as the engine has it;
autocast: fp32 weights and torch.autocast, the usual way. Prints one JSON object. AdamW runs fused, attention is
scaled_dot_product_attention, GELU the tanh form, norms the fused ones. Run by bench/train.py with an allocator that keeps
its memory (MALLOC_* variables): stock settings are up to three times slower.
"""
import contextlib
import ctypes
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SETTINGS = {  # layers, heads, width, context, positions, vocabulary, batch
    "char": (6, 6, 384, 256, 256, 65, 12),
    "gpt2": (12, 12, 768, 64, 64, 50257, 4),
    "llama": (6, 6, 288, 256, 256, 32000, 4),
}
LLAMA_HIDDEN = 768
IMAGES = 16  # of 3 x 64 x 64, 10 classes


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.attn_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(C, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_out(a.transpose(1, 2).reshape(B, T, C))
        return x + self.fc_out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, positions, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln_f(x)).view(-1, self.head.out_features), targets.view(-1))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, LLAMA_HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(LLAMA_HIDDEN, width, bias=False)

    def forward(self, x, cosine, sine):
        B, T, C = x.shape
        h = self.norm_1(x)
        q, k, v = (f(h).view(B, T, self.heads, C // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(turn(q, cosine, sine), turn(k, cosine, sine), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(B, T, C))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def turn(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-b, a), dim=-1) * sine


class Llama(nn.Module):
    def __init__(self, layers, heads, width, positions, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads) for _ in range(layers)])
        self.norm = nn.RMSNorm(width, 1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        half = width // heads // 2
        angles = torch.outer(torch.arange(positions).float(), 10000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cosine", torch.cat((angles.cos(), angles.cos()), dim=1), persistent=False)
        self.register_buffer("sine", torch.cat((angles.sin(), angles.sin()), dim=1), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        cosine, sine = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        for block in self.blocks:
            x = block(x, cosine, sine)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, self.head.out_features), targets.view(-1))


class ResidualBlock(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Identity() if stride == 1 and width == out else nn.Sequential(
            nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class Resnet18(nn.Module):
    """With the stem for small images: one 3x3 convolution, no pooling."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        widths = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
                  (512, 512, 1))
        self.blocks = nn.Sequential(*(ResidualBlock(*w) for w in widths))
        self.fc = nn.Linear(512, 10)

    def forward(self, images, labels):
        return F.cross_entropy(self.fc(self.blocks(self.stem(images)).mean((2, 3))), labels)


class Masters:
    """fp32 masters of bf16 weights: gradients go to them, stepped weights come back."""

    def __init__(self, model):
        self.weights = list(model.parameters())
        self.masters = [p.detach().float().requires_grad_() for p in self.weights]

    def take_gradients(self):
        grads = [torch.empty_like(m) if m.grad is None else m.grad for m in self.masters]
        torch._foreach_copy_(grads, [p.grad for p in self.weights])
        for m, g in zip(self.masters, grads):
            m.grad = g

    def give_weights(self):
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)


def facts():
    """What computes the products: with MKL_VERBOSE=1 and ONEDNN_VERBOSE=1 the libraries print their kernels' kind."""
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(256, 256, dtype=dtype)
        torch.mm(a, a)
    override = getattr(ctypes.CDLL(None), "bench_mkl_intel_calls", None)
    print("FACTS " + json.dumps({"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability(),
                                 "mkl": torch.backends.mkl.is_available(),
                                 "mkl_override_calls": override() if override else None}))


def main():
    if sys.argv[1:] == ["facts"]:
        return facts()
    name, precision, threads, steps, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    clock = time.process_time if sys.argv[6:] == ["cpu"] else time.perf_counter
    torch.set_num_threads(threads)
    if name == "resnet18":
        model, samples = Resnet18().to(memory_format=torch.channels_last), IMAGES
        inputs = torch.randn(IMAGES, 3, 64, 64).to(memory_format=torch.channels_last)
        targets = torch.randint(0, 10, (IMAGES,))
    else:
        layers, heads, width, context, positions, vocabulary, batch = SETTINGS[name]
        model, samples = (Llama if name == "llama" else Gpt)(layers, heads, width, positions, vocabulary), batch * context
        inputs, targets = (torch.randint(0, vocabulary, (batch, context)) for _ in range(2))
    masters = None
    if precision == "bf16":
        model.bfloat16()
        inputs = inputs.bfloat16() if inputs.is_floating_point() else inputs
        masters = Masters(model)
    stepped = masters.masters if masters else list(model.parameters())
    decay = [p for p in stepped if p.dim() > 1]
    rest = [p for p in stepped if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if mode == "compiled" else model
    cast = torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()

    def step():
        start = clock()
        with cast:
            loss = run(inputs, targets)
        loss.backward()
        if masters:
            masters.take_gradients()
        torch.nn.utils.clip_grad_norm_(stepped, 1.0)
        optimizer.step()
        if masters:
            masters.give_weights()
        model.zero_grad(set_to_none=True)
        return (clock() - start) * 1e3

    for _ in range(3):
        step()
    times = sorted(step() for _ in range(steps))
    print(json.dumps({"model": name, "precision": precision, "mode": mode, "threads": threads,
                      "torch": torch.__version__, "step_ms": times[len(times) // 2], "step_fastest_ms": times[0],
                      "samples_per_second": samples / times[len(times) // 2] * 1e3}))


if __name__ == "__main__":
    main()
