#!/usr/bin/env python3
"""Records what PyTorch makes of a small GPT-2: ten AdamW steps, and the gradients of the first.

    python3 tests/engine/record_pytorch.py tests/engine/gpt_pytorch.f32      (PyTorch 2.13; once, the file is committed)

The file holds little-endian fp32 values: all parameters in NAMES' order, ten losses, ten gradient norms, and the
gradients of step 1 in the same order. Tokens and the meaning of every number are those of test_gpt_pytorch.c.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH, STEPS = 2, 2, 16, 8, 33, 4, 10


def names():
    yield "transformer.wte.weight", (VOCABULARY, WIDTH)
    yield "transformer.wpe.weight", (CONTEXT, WIDTH)
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        for norm_or_linear, shape in (
            ("ln_1", None),
            ("attn.c_attn", (WIDTH, 3 * WIDTH)),
            ("attn.c_proj", (WIDTH, WIDTH)),
            ("ln_2", None),
            ("mlp.c_fc", (WIDTH, 4 * WIDTH)),
            ("mlp.c_proj", (4 * WIDTH, WIDTH)),
        ):
            yield h + norm_or_linear + ".weight", shape or (WIDTH,)
            yield h + norm_or_linear + ".bias", (shape[1] if shape else WIDTH,)
    yield "transformer.ln_f.weight", (WIDTH,)
    yield "transformer.ln_f.bias", (WIDTH,)


def loss_of(p, tokens, targets):
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"]

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        q, k, v = (
            t.view(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)
            for t in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(WIDTH, dim=2)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(a.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH), h + "attn.c_proj")
        m = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(m, h + "mlp.c_proj")
    logits = norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def main():
    torch.manual_seed(20261121)
    parameters = {}
    for name, shape in names():
        std = 0.02 / math.sqrt(2 * LAYERS) if "c_proj.weight" in name else 0.02
        value = torch.randn(shape) * (std if len(shape) > 1 else 0.1)  # vectors too, so that each is put to the test
        if ".ln_" in name and name.endswith("weight"):
            value += 1
        parameters[name] = value.requires_grad_()
    out = [p.detach().flatten().clone() for p in parameters.values()]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=1e-2, betas=(0.9, 0.99), eps=1e-8,
    )
    losses, grad_norms, first = [], [], None
    for step in range(STEPS):
        stream = [(7 * i * i + 3 * i + 5 * step) % VOCABULARY for i in range(BATCH * (CONTEXT + 1))]
        window = torch.tensor(stream).view(BATCH, CONTEXT + 1)
        optimizer.zero_grad()
        loss = loss_of(parameters, window[:, :-1], window[:, 1:])
        loss.backward()
        first = first or [p.grad.flatten().clone() for p in parameters.values()]
        grad_norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    values = torch.cat(out + [torch.tensor(losses), torch.tensor(grad_norms)] + first)
    values.detach().numpy().astype("<f4").tofile(sys.argv[1])
    print(torch.__version__, np.round(losses, 4))


if __name__ == "__main__":
    main()
