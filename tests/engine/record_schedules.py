#!/usr/bin/env python3
"""Records torch.optim.lr_scheduler's rates of 50 steps, for test_schedules.c: python3 record_schedules.py schedules.f64

Needs torch (2.13.0 made the committed file). Constant, cosine, linear and warm-up-stable-decay, each from 0.3 down to 0.03
behind 5 steps of linear warm-up from 0.3 / 6: float64, little endian, 50 each. The lines end at the last step, number
STEPS - 1, and begin at the last step that has the full rate."""
import struct
import sys

import torch
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, SequentialLR

STEPS, WARMUP, DECAY, LR, LEAST = 50, 5, 12, 0.3, 0.03


def rates(rest):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    warmup = LinearLR(optimizer, start_factor=1 / (WARMUP + 1), end_factor=1, total_iters=WARMUP)
    parts, at = rest(optimizer)
    schedule = SequentialLR(optimizer, [warmup] + parts, [WARMUP] + at)
    out = []
    for _ in range(STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return out


def constant(o):
    return [ConstantLR(o, factor=1)], []


def cosine(o):
    return [CosineAnnealingLR(o, STEPS - WARMUP, eta_min=LEAST)], []


def linear(o):
    return [LinearLR(o, 1, LEAST / LR, STEPS - 1 - WARMUP)], []


def wsd(o):
    return [ConstantLR(o, factor=1), LinearLR(o, 1, LEAST / LR, DECAY)], [STEPS - 1 - DECAY]


with open(sys.argv[1], "wb") as f:
    for schedule in (constant, cosine, linear, wsd):
        f.write(struct.pack(f"<{STEPS}d", *rates(schedule)))
