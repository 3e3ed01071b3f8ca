#!/usr/bin/env python3
"""Records what PyTorch's optimizers make of given gradients, for test_optimizers.c: python3 record_optimizers.py optimizers.f32

Needs torch (2.13.0 made the committed file). The numbers that go in are computed, the same here and in the test (number());
the file has only what comes out: for each case of CASES, for each parameter of SHAPES, its values after 1 and after 20
updates, then its average where the case has one, as float32, little endian.

Adafactor's torch form factors the last two dimensions of a tensor; ours counts (first, all others) as one matrix, so tensors
of more dimensions are given to it as such. Muon's torch form rounds to bf16 before its products; ours are fp32, so bfloat16()
is the identity while it runs. It steps the matrices that a parameter packs (PACKED) as parameters of their own. Lion is not in torch: its paper's algorithm (arXiv 2302.06675) is written below.
"""
import sys

import torch

torch.set_num_threads(1)
STEPS = 20

# (shape, weight decay applies, Muon's matrix)
SHAPES = [((24, 40), True, True), ((70, 16), True, True), ((30, 12), True, False), ((33,), False, False), ((6, 5, 3, 3), True, False)]

# parameter: (matrices in it, the dimension along which they lie); one that lies along 1 is stored (in, out)
PACKED = {0: (3, 0), 1: (2, 1)}


def number(parameter, step, n):
    """n numbers in [-1, 1) times 1, 1/2, 1/4 or 1/8: integers all the way, exact in float32."""
    i = torch.arange(n, dtype=torch.int64)
    h = (i * 2654435761 + step * 40503 + parameter * 97003 + 12345) % 2**32
    h = h ^ (h >> 15)
    h = (h * 2246822519) % 2**32
    h = h ^ (h >> 13)
    return ((h >> 8).to(torch.float32) / 2**23 - 1) / 2.0 ** (i % 4).to(torch.float32)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = (beta1 * m + (1 - beta1) * p.grad).sign()
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def groups(parameters, weight_decay):
    return [
        {"params": [p for p, (_, decay, _) in zip(parameters, SHAPES) if decay], "weight_decay": weight_decay},
        {"params": [p for p, (_, decay, _) in zip(parameters, SHAPES) if not decay], "weight_decay": 0.0},
    ]


def muon(parameters):
    matrix = [p for p, (_, _, is_matrix) in zip(parameters, SHAPES) if is_matrix]
    rest = [(p, decay) for p, (_, decay, is_matrix) in zip(parameters, SHAPES) if not is_matrix]
    return [
        torch.optim.Muon(matrix, lr=0.02, momentum=0.95, nesterov=True, ns_steps=5, weight_decay=0.1),
        torch.optim.AdamW([{"params": [p for p, d in rest if d], "weight_decay": 0.1}, {"params": [p for p, d in rest if not d], "weight_decay": 0.0}],
                          lr=3e-3, betas=(0.9, 0.95), eps=1e-8),
    ]


class PackedMuon:
    """Steps each packed matrix, as (out, in), by itself."""

    def __init__(self, parameters):
        self.whole = [parameters[i] for i in PACKED]
        self.parts = [[self.part(p, i, j).clone().requires_grad_() for j in range(PACKED[i][0])] for p, i in zip(self.whole, PACKED)]
        self.optimizers = muon(parameters)
        self.optimizers[0] = torch.optim.Muon([q for parts in self.parts for q in parts], lr=0.02, momentum=0.95, nesterov=True, ns_steps=5, weight_decay=0.1)

    def part(self, p, i, j):
        n, dim = PACKED[i]
        part = p.detach().chunk(n, dim)[j]
        return part.T if dim else part

    def step(self):
        for p, i, parts in zip(self.whole, PACKED, self.parts):
            for j, q in enumerate(parts):
                q.grad = self.part(p.grad, i, j).contiguous()
        for optimizer in self.optimizers:
            optimizer.step()
        for p, i, parts in zip(self.whole, PACKED, self.parts):
            for j, q in enumerate(parts):
                self.part(p, i, j).copy_(q.detach())


# name: (optimizers of parameters, gradient scale, clip value, EMA's decay)
CASES = {
    "sgd": (lambda p: [torch.optim.SGD(groups(p, 0.01), lr=0.1, momentum=0.9)], 1, 0, 0),
    "sgd nesterov": (lambda p: [torch.optim.SGD(groups(p, 0.01), lr=0.1, momentum=0.9, nesterov=True)], 1, 0, 0),
    "adamw": (lambda p: [torch.optim.AdamW(groups(p, 0.1), lr=1e-2, betas=(0.9, 0.95), eps=1e-8)], 1, 0, 0),
    "adamw clipped, averaged": (lambda p: [torch.optim.AdamW(groups(p, 0.1), lr=1e-2, betas=(0.9, 0.99), eps=1e-8)], 0.75, 0.25, 0.9),
    "lion": (lambda p: [Lion(groups(p, 1.0), lr=1e-3, betas=(0.9, 0.99), weight_decay=1.0)], 1, 0, 0),
    "adafactor": (lambda p: [torch.optim.Adafactor(groups(p, 0.1), lr=0.01, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0)], 1, 0, 0),
    "muon": (muon, 1, 0, 0),
    "muon, packed": (lambda p: [PackedMuon(p)], 1, 0, 0),
}


def run(name, file):
    optimizers_of, scale, clip, ema_decay = CASES[name]
    shape_of = lambda shape: (shape[0], -1) if name == "adafactor" and len(shape) > 2 else shape
    parameters = [number(i, 0, torch.Size(s).numel()).reshape(shape_of(s)).clone().requires_grad_() for i, (s, _, _) in enumerate(SHAPES)]
    averages = [p.detach().clone() for p in parameters]
    optimizers = optimizers_of(parameters)
    for step in range(1, STEPS + 1):
        for i, p in enumerate(parameters):
            p.grad = number(i, step, p.numel()).reshape(p.shape) * scale
        if clip:
            torch.nn.utils.clip_grad_value_(parameters, clip)
        for optimizer in optimizers:
            optimizer.step()
        if ema_decay:
            average = torch.optim.swa_utils.get_ema_multi_avg_fn(ema_decay)
            average(averages, [p.detach() for p in parameters], None)
        if step in (1, STEPS):
            for p in parameters:
                file.write(p.detach().numpy().astype("<f4").tobytes())
    if ema_decay:
        for a in averages:
            file.write(a.numpy().astype("<f4").tobytes())


rounded = torch.Tensor.bfloat16
with open(sys.argv[1], "wb") as f:
    for case in CASES:
        torch.Tensor.bfloat16 = (lambda self: self.clone()) if case.startswith("muon") else rounded
        run(case, f)
