"""Claim: the bits of a job do not depend on its layout.

Engine: tests/engine/test_layouts in full: every single axis and a covering array of pairs, 20 steps each; every layout
also goes on from what another has saved. Specs: tests/spec_campaign.py: each value of each optional field once, the
other fields drawn or left out, and as many specs that are drawn whole, each in up to eight layouts. TRAINYARD_SEED
repeats a drawing; LAYOUTS_OF, some of gpt, llama, mlp, resnet, vit, unrolled and specs, chooses parts."""

import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import spec_campaign as campaign
from report import BIN, ROOT, report

LAYOUTS_OF_A_SPEC = 8


def engine(name):
    program = BIN.parent / "tests" / "test_layouts"
    begun = time.monotonic()
    done = subprocess.run([program], text=True, capture_output=True,
                          env={**os.environ, "LAYOUTS": "full", "LAYOUTS_TEST": name, "GOMP_SPINCOUNT": "1000",
                               "TRAINYARD_SOURCE": str(ROOT)})
    layouts = re.search(r"# (\d+) layouts of (\d+) single axes and (\d+) pairs", done.stdout)
    if done.returncode or not layouts:
        sys.exit(f"{name}:\n{done.stdout}{done.stderr}")
    seeds.append(re.search(r"TRAINYARD_SEED=(\d+)", done.stdout)[1])
    rows.append({"claim": name.replace("_", " "), "specs": 1, "layouts": int(layouts[1]),
                 "runs": 2 * int(layouts[1]) + 1, "seconds": time.monotonic() - begun})


def wanted():
    """Every value of every field; then as many specs in which no field is sure to be there."""
    fields = [(field, values) for field, choices in campaign.FIELDS.items()
              for values in ([None] * 4 if callable(choices) else range(len(choices)))]
    return fields + [(None, None)] * len(fields)


def specs(title, some):
    seed = int(os.environ.get("TRAINYARD_SEED", time.time_ns() % 2**32))
    draw = random.Random(seed)
    seeds.append(str(seed))
    begun, ran = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = campaign.write_data(pathlib.Path(folder), draw)
        for field, value in some:
            spec = campaign.draw_spec(draw, field, value)
            chosen = campaign.choose(campaign.layouts(spec, draw), draw, LAYOUTS_OF_A_SPEC)
            wrong = campaign.one_history(spec, chosen, folder)
            if wrong:
                sys.exit(f"{title}: TRAINYARD_SEED={seed}\n{wrong}")
            ran += len(chosen)
    rows.append({"claim": title, "specs": len(some), "layouts": ran, "runs": ran + len(some),
                 "seconds": time.monotonic() - begun})


chosen = os.environ.get("LAYOUTS_OF", ",specs").split(",")
rows, seeds = [], []
for test in re.findall(r"cmocka_unit_test\((\w+)\)", (ROOT / "tests/engine/test_layouts.c").read_text()):
    if any(family in test for family in chosen if family != "specs"):
        engine(test)
if "specs" in chosen:
    every = wanted()
    specs("a spec has one history whichever optional field it gives", [w for w in every if w[0]])
    specs("a spec has one history, also if it leaves fields out", [w for w in every if not w[0]])
report("layouts", rows, [
    "Engine, each run: 20 steps, loss and norm compared to the bit at every step, SHA-256 of the weights at every "
    f"second one, the validation loss at the end. Specs, each run: {campaign.STEPS} steps, everything that a step "
    "reports and the SHA-256 of the weights. Seeds: " + ", ".join(seeds)])
