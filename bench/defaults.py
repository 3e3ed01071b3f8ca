"""The default cut of a step into micro-batches beside every other one, for five models: a spec that leaves
`train.micro_batch` and `train.lanes` out, and the same spec with 1, 2, 4 and 8 micro-batches written in it.

The runs of a model take turns, step by step. Counted is the processor time of a step on one thread, which a machine that
is busy otherwise still tells best; a ratio is the median over the rounds. Arguments: rounds (9), then models (all
without). TRAINYARD_PRECISION=bf16 trains in bf16."""

import array
import ctypes
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import shapes
from report import BIN, report

CUTS = (1, 2, 4, 8)
GOAL = 1.03
PRECISION = os.environ.get("TRAINYARD_PRECISION", "fp32")
MODELS = {  # model, data, global batch
    "char GPT, 12 x 256 tokens":
        ({"gpt": {"layers": 6, "heads": 6, "width": 384, "context": 256, "vocabulary": 65}}, "tokens", 12),
    "Llama 15M, 8 x 256 tokens":
        ({"llama": {"layers": 6, "heads": 6, "width": 288, "hidden": 768, "context": 256, "vocabulary": 32000,
                    "tied_embeddings": True}}, "tokens", 8),
    "GPT-2 124M, 16 x 64 tokens":
        ({"gpt": {"layers": 12, "heads": 12, "width": 768, "context": 64, "vocabulary": 50257}}, "tokens", 16),
    "ResNet-18, 16 x 64 x 64": ({"resnet": {"layers": 18}}, "images", 16),
    "ViT, 64 x 64 x 64": ({"vit": {"layers": 4, "heads": 4, "width": 96, "patch": 8}}, "images", 64),
}


def write_data(folder):
    """Tokens below 65, which each vocabulary has, and images of ten classes."""
    draw = random.Random(1)
    (folder / "tokens.bin").write_bytes(array.array("H", draw.choices(range(65), k=200_000)).tobytes())
    shapes.main(folder / "images", 8)


def die_with_parent():
    """A process that stands still would otherwise outlive a benchmark that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def processor_seconds(pid):
    return time.clock_gettime((~pid << 3) | 2)  # the clock of all threads of a process: clock_getcpuclockid(3)


class Run:
    """A process that trains a spec with a number of micro-batches (None: as the default has it), and stands still
    between its steps."""

    def __init__(self, folder, model, data, batch, cut, steps):
        source = {"tokens": {"tokens": {"train": [f"file://{folder}/tokens.bin"]}},
                  "images": {"images": {"train": f"file://{folder}/images/train"}}}[data]
        train = {"steps": steps + 2, "global_batch": batch, "precision": PRECISION, "optimizer": {"adamw": {"lr": 1e-4}}}
        if cut:
            train |= {"micro_batch": batch // cut, "lanes": cut}
        spec = {"name": "bench", "model": model, "data": source, "train": train, "checkpoint": {"every": 0}}
        self.process = subprocess.Popen([BIN / "trainyard-train", "-", "--json", "--threads", "1"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        preexec_fn=die_with_parent)
        self.process.stdin.write(json.dumps(spec))
        self.process.stdin.close()
        self.total, self.seconds = 0, []
        self.stop_after_a_step()

    def stop_after_a_step(self):
        """A line is written as soon as its step ends."""
        if not self.process.stdout.readline():
            sys.exit(f"trainyard-train ended with {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        before, self.total = self.total, processor_seconds(self.process.pid)
        return self.total - before

    def step(self):
        self.process.send_signal(signal.SIGCONT)
        self.seconds.append(self.stop_after_a_step())

    def end(self):
        self.process.kill()
        self.process.wait()


def relative(folder, name, cut, rounds):
    """The default's time relative to the cut's: the median over the rounds. Two processes, for the memory's sake."""
    model, data, batch = MODELS[name]
    default, other = pair = [Run(folder, model, data, batch, c, rounds) for c in (None, cut)]
    for _ in range(rounds):
        default.step()
        other.step()
    for run in pair:
        run.end()
    return statistics.median(d / o for d, o in zip(default.seconds, other.seconds)), statistics.median(default.seconds)


def compare(folder, name, rounds):
    ratios, seconds = {}, 0
    for cut in (cut for cut in CUTS if MODELS[name][2] % cut == 0):
        ratios[cut], seconds = relative(folder, name, cut, rounds)
    best = max(ratios, key=ratios.get)
    return {"model": name, "precision": PRECISION, "default s": seconds, "best": f"{best} micro-batches",
            "default / best": ratios[best], "goal": f"<= {GOAL}", "met": ratios[best] <= GOAL,
            **{f"{cut}": ratio for cut, ratio in ratios.items()}}


def main():
    rounds = int(sys.argv[1]) if sys.argv[1:] else 9
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_data(pathlib.Path(folder))
        for name in MODELS:
            if not sys.argv[2:] or any(word.lower() in name.lower() for word in sys.argv[2:]):
                rows.append(compare(folder, name, rounds))
                print(rows[-1], file=sys.stderr, flush=True)
    report("defaults", rows, ["The last columns: the default relative to so many micro-batches."])


if __name__ == "__main__":
    main()
