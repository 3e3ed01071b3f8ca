"""The peer of bench_train: the same GPT, batch, optimizer and clipping in PyTorch on the CPU, fp32, random tokens.

    python bench/peer/train_pytorch.py char|gpt2 THREADS STEPS eager|compiled [cpu]

Prints one JSON object. AdamW runs fused, attention is scaled_dot_product_attention, GELU the tanh form. Run by
bench/train.py with an allocator that keeps its memory (MALLOC_* variables): stock settings are up to three times slower.
"""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SETTINGS = {  # layers, heads, width, context, positions, vocabulary, batch
    "char": (6, 6, 384, 256, 256, 65, 12),
    "gpt2": (12, 12, 768, 64, 64, 50257, 4),
}


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


def main():
    name, threads, steps, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    clock = time.process_time if sys.argv[5:] == ["cpu"] else time.perf_counter
    torch.set_num_threads(threads)
    layers, heads, width, context, positions, vocabulary, batch = SETTINGS[name]
    model = Gpt(layers, heads, width, positions, vocabulary)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if mode == "compiled" else model
    tokens = torch.randint(0, vocabulary, (batch, context))
    targets = torch.randint(0, vocabulary, (batch, context))

    def step():
        start = clock()
        loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return (clock() - start) * 1e3

    for _ in range(3):
        step()
    times = sorted(step() for _ in range(steps))
    print(json.dumps({"model": name, "mode": mode, "threads": threads, "torch": torch.__version__,
                      "step_ms": times[len(times) // 2], "step_fastest_ms": times[0],
                      "tokens_per_second": batch * context / times[len(times) // 2] * 1e3}))


if __name__ == "__main__":
    main()
