"""What reproducibility costs: the step of `numerics: reproducible` beside that of `numerics: fast`, and the bytes of a
rank's plan, where a rank adds lanes: a GPT in 8 micro-batches, small (10.8M parameters, 512 tokens a micro-batch) and with
weights that dwarf its micro-batches (85M parameters, 64 tokens). Runs alternate, and the fastest step of each counts.
Arguments: rounds of runs (3), steps of each (6)."""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from report import BIN, report

MODELS = {"10.8M, 8 x 512 tokens": ("layers: 6, heads: 6, width: 384, context: 256", 16),
          "85M, 8 x 64 tokens": ("layers: 12, heads: 12, width: 768, context: 64", 8)}
SPEC = """
name: bench
model: {{gpt: {{{model}}}}}
data: {{text: {{files: ["file://{text}"], tokenizer: char, validation_fraction: 0}}}}
train:
  {{steps: {steps}, global_batch: {batch}, micro_batch: {micro_batch}, lanes: 8, seed: 1, numerics: {numerics},
   optimizer: {{adamw: {{lr: 3.0e-4}}}}, learning_rate_schedule: {{constant: {{}}}}}}
"""


def run(*arguments):
    done = subprocess.run([BIN / "trainyard-train", *arguments], text=True, capture_output=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


class Job:
    def __init__(self, folder, name, numerics, ranks, zero, steps):
        model, batch = MODELS[name]
        self.spec = pathlib.Path(folder, f"{len(list(pathlib.Path(folder).iterdir()))}.yaml")
        self.spec.write_text(SPEC.format(model=model, text=f"{folder}/text", steps=steps, batch=batch,
                                         micro_batch=batch // 8, numerics=numerics))
        self.arguments = [self.spec, "--ranks", str(ranks), "--threads", str(2 // ranks), "--set", f"parallel.zero={zero}"]
        self.fastest = float("inf")

    def time(self):
        rows = [json.loads(line) for line in run(*self.arguments, "--json").splitlines() if line.startswith("{")]
        self.fastest = min([self.fastest] + [r["step_seconds"] for r in rows[1:]])
        self.loss = rows[-1]["loss"]

    def mebibytes(self):
        return float(re.search(r"pieces, ([0-9.]+) MiB", run(*self.arguments, "--plan"))[1])


def compare(folder, name, ranks, zero, rounds, steps):
    exact, fast = [Job(folder, name, n, ranks, zero, steps) for n in ("reproducible", "fast")]
    for _ in range(rounds):
        exact.time()
        fast.time()
    return {"what": name, "ranks": ranks, "zero": zero, "threads": 2 // ranks, "reproducible ms": exact.fastest * 1e3,
            "fast ms": fast.fastest * 1e3, "cost %": 100 * (exact.fastest / fast.fastest - 1),
            "reproducible MiB": exact.mebibytes(), "fast MiB": fast.mebibytes(),
            "loss apart": abs(exact.loss / fast.loss - 1)}


rounds, steps = [int(a) for a in sys.argv[1:3]] + [3, 6][len(sys.argv) - 1:]
with tempfile.TemporaryDirectory() as folder:
    alphabet = "".join(chr(c) for c in range(33, 98))
    pathlib.Path(folder, "text").write_text("".join(random.Random(1).choices(alphabet, k=200_000)))
    rows = [compare(folder, name, ranks, zero, rounds, steps) for name in MODELS for ranks, zero in ((1, 0), (2, 0), (2, 2))]
report("numerics", rows, ["cost: what the step of `reproducible` takes more than that of `fast`; loss apart: of the last step, "
                          "relative.",
                          "Both reduce by recursive halving over Gloo's transfers: Gloo's own all-reduce is slower (collective)."])
