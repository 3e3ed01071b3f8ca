"""Claim: the bits of a job do not depend on its layout. tests/engine/test_layouts in full: every single axis and a covering
array of pairs, 20 steps each, every layout also going on from what another has saved. TRAINYARD_SEED repeats a drawing; names
on the command line (gpt, llama, mlp, resnet, vit, unrolled) choose families."""

import os
import re
import subprocess
import sys
import time

from report import BIN, ROOT, report

program = BIN.parent / "tests" / "test_layouts"

chosen = sys.argv[1:] or [""]
names = [name for name in re.findall(r"cmocka_unit_test\((\w+)\)", (ROOT / "tests/engine/test_layouts.c").read_text())
         if any(family in name for family in chosen)]
rows, seeds = [], []
for name in names:
    begun = time.monotonic()
    done = subprocess.run([program], text=True, capture_output=True,
                          env={**os.environ, "LAYOUTS": "full", "LAYOUTS_TEST": name, "GOMP_SPINCOUNT": "1000",
                               "TRAINYARD_SOURCE": str(ROOT)})
    layouts = re.search(r"# (\d+) layouts of (\d+) single axes and (\d+) pairs", done.stdout)
    if done.returncode or not layouts:
        sys.exit(f"{name}:\n{done.stdout}{done.stderr}")
    seeds.append(re.search(r"TRAINYARD_SEED=(\d+)", done.stdout)[1])
    rows.append({"claim": name.replace("_", " "), "layouts": int(layouts[1]), "runs": 2 * int(layouts[1]) + 1,
                 "seconds": time.monotonic() - begun})
report("layouts", rows, ["Each run: 20 steps, loss and norm compared to the bit at every step, SHA-256 of the weights at every "
                         "second one, the validation loss at the end. Seeds: " + ", ".join(seeds)])
