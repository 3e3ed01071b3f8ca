"""PyTorch on the device that tests/gpu/run measures: products | attention | gpt2 | repeat. The last line says what came of it."""

import math
import sys
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda"
SHAPES = {"124M": 768, "350M": 1024, "1558M": 1600}  # GPT-2 by its width
ROWS = 16384


def seconds(work, repeats=20):
    """The fastest of `repeats`, each alone between two marks of the device."""
    for _ in range(3):
        work()
    best = math.inf
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best


def products():
    said = []
    for name, width in SHAPES.items():
        for out in (3 * width, width, 4 * width):
            x = torch.randn(ROWS, width, device=DEVICE, dtype=torch.bfloat16)
            w = torch.randn(out, width, device=DEVICE, dtype=torch.bfloat16)
            rate = 2 * ROWS * width * out / seconds(lambda: F.linear(x, w)) / 1e12
            print(f"{name} {ROWS} x {width} -> {out}: {rate:.0f} TFLOP/s")
            said.append(rate)
    return f"bf16 products: {min(said):.0f} to {max(said):.0f} TFLOP/s"


def qkv(batch, heads, time_, head):
    return [torch.randn(batch, heads, time_, head, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def attention():
    said = []
    for heads, head in ((12, 64), (16, 128)):
        q, k, v = qkv(64, heads, 1024, head)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        gradient = torch.randn_like(out)
        flops = 4 * 64 * heads * 1024 * 1024 * head / 2
        forward = flops / seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)) / 1e12

        def back():
            torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
        backward = 2.5 * flops / seconds(back) / 1e12
        said.append(f"head {head}: {forward:.0f} forward, {backward:.0f} backward")
    return "causal attention in TFLOP/s: " + "; ".join(said)


def repeat():
    """Is the backward pass of attention the same to the bit each time? Asked of each of PyTorch's ways."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    said = []
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        q, k, v = qkv(8, 12, 1024, 64)
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                gradient = torch.randn_like(out)
                first = torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
                same = all(torch.equal(a, b) for _ in range(20)
                           for a, b in zip(first, torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)))
            said.append(f"{name.lower()}: {'the same bits' if same else 'other bits'} in 20 repeats")
        except RuntimeError as x:
            said.append(f"{name.lower()}: {str(x).splitlines()[0][:80]}")
    return "; ".join(said)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def gpt2(batch=64, context=1024, vocabulary=50304):
    model = Gpt(12, 768, 12, context, vocabulary).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(vocabulary, (batch, context), device=DEVICE)
    compiled = torch.compile(model)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = compiled(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    begun = time.monotonic()
    took = seconds(step, repeats=10)
    return (f"{took * 1e3:.1f} ms a step, {batch * context / took:,.0f} tokens/s, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB; "
            f"compiled and measured in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}:",
          {"products": products, "attention": attention, "gpt2": gpt2, "repeat": repeat}[sys.argv[1]]())
