"""The engine's training speed on this machine's CPUs, as ratios:

  - against PyTorch (best of eager and compiled; bf16 is bf16 weights with fp32 masters, which is what the engine does,
    eager, compiled, or autocast, whichever is fastest), same model, batch, threads: ratio = PyTorch's step / ours
  - against the bound: the step's matrix products and one AdamW pass alone, in the same process: bound / ours
  - data parallel: 2 ranks x 1 thread against 1 rank x 2 threads, through trainyard-train, in turn

Ratios are of the fastest steps, which noise disturbs least.
TRAINYARD_TORCH names a Python with PyTorch 2.13 (else the peer's columns stay empty); its compiler caches what it built,
so that a second run is minutes shorter. TRAINYARD_BENCH_CLOCK=cpu counts processor time of one thread instead of wall
time of two: what a machine that is busy otherwise still tells truly. Arguments: steps, then models (all without; `ranks`:
none, only the data-parallel rows).
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from report import BIN, ROOT, machine, report

CPU_CLOCK = os.environ.get("TRAINYARD_BENCH_CLOCK") == "cpu"
THREADS = 1 if CPU_CLOCK else 2
GANG_ROUNDS = 5
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592",
               "MALLOC_TOP_PAD_": "268435456"}
SLOWEST = 4
START_S = {"eager": 20, "compiled": 180}  # imports and compilation
OVERRIDE = BIN / "bench_mkl_intel.so"
SPEC = """
name: bench
model: {{gpt: {{layers: 6, heads: 6, width: 384, context: 256}}}}
data: {{text: {{files: ["file://{text}"], tokenizer: char, validation_fraction: 0}}}}
train:
  {{steps: {steps}, global_batch: 12, micro_batch: 6, lanes: 2, seed: 1, optimizer: {{adamw: {{lr: 3.0e-4}}}},
   learning_rate_schedule: {{constant: {{}}}}}}
"""


numerics = set()  # what computed our steps
given_up = {}  # by model: the peer's (precision, mode)s


def run_json(command, extra=None, timeout_s=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    done = subprocess.run(command, env=environment | (extra or {}), capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def peer_environments():
    """With the override of bench/peer/mkl_intel.c, MKL chooses its kernels as on Intel's processors. On another maker's the
    peer also runs without it, since either can be the faster one."""
    overridden = KEEP_MEMORY | {"LD_PRELOAD": str(OVERRIDE)}
    return [overridden] if "GenuineIntel" in pathlib.Path("/proc/cpuinfo").read_text() else [overridden, KEEP_MEMORY]


def peer_facts():
    """Sentences: what computes PyTorch's products, and whether the override of MKL's check is in effect."""
    python = os.environ.get("TRAINYARD_TORCH")
    if not python:
        return []
    verbose = {"MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1"}
    done = subprocess.run([python, ROOT / "bench" / "peer" / "train_pytorch.py", "facts"], capture_output=True, text=True,
                          env=os.environ | peer_environments()[0] | verbose)
    facts = json.loads(next(line[6:] for line in done.stdout.splitlines() if line.startswith("FACTS ")))
    mkl = next((line for line in done.stdout.splitlines() if line.startswith("MKL_VERBOSE") and "build" in line), "none")
    calls = facts["mkl_override_calls"]
    onednn = [line.split("info,", 1)[1] for line in done.stdout.splitlines()
              if re.match(r"(dnnl|onednn)_verbose,(v1,)?info,(oneDNN v|cpu,isa)", line)]
    return [f"PyTorch {facts['torch']}, its own kernels: {facts['capability']}",
            f"PyTorch's BLAS: {mkl.removeprefix('MKL_VERBOSE ')}",
            f"PyTorch's oneDNN: {'; '.join(onednn) or 'none'}",
            "MKL's check of the processor's maker: " + (f"overridden, asked {calls} times" if calls else
                                                        "the override is not in effect" if calls == 0 else "not overridden")]


def peer(model, precision, steps, ours_ms):
    """PyTorch's fastest step in ms and its mode. A mode that is SLOWEST times slower than our step is given up, and what
    computes the same products with it: on a processor without instructions for bf16, PyTorch takes minutes for a step."""
    python = os.environ.get("TRAINYARD_TORCH")
    if not python:
        return None, None
    clock = ["cpu"] if CPU_CLOCK else []
    kinds = [(precision, "eager"), (precision, "compiled")] + [("autocast", "eager")] * (precision == "bf16")
    script = ROOT / "bench" / "peer" / "train_pytorch.py"
    runs = []
    for environment in peer_environments():
        for kind, mode in kinds:
            if (kind, "eager") in given_up.get(model, ()):
                continue
            timeout_s = START_S[mode] + SLOWEST * ours_ms / 1e3 * (steps + 3)
            command = [python, script, model, kind, str(THREADS), str(steps), mode, *clock]
            try:
                runs += run_json(command, environment, timeout_s)[:1]
            except subprocess.TimeoutExpired:
                given_up.setdefault(model, []).append((kind, mode))
    if not runs:
        return None, f"more than {SLOWEST} times ours"
    best = min(runs, key=lambda r: r["step_fastest_ms"])
    return best["step_fastest_ms"], f"{best['mode']} {best['precision']}"


def single(model, precision, steps):
    clock = ["cpu"] if CPU_CLOCK else []
    ours = run_json([BIN / "bench_train", model, precision, str(THREADS), str(steps), *clock])[0]
    fastest, bound = ours["step_fastest_ms"], ours.get("bound_fastest_ms")
    torch_ms, mode = peer(model, precision, steps, fastest)
    numerics.add(ours["numerics"])
    return {"what": f"{model} {precision}", "threads": THREADS, "median ms": ours["step_ms"], "fastest ms": fastest,
            "tokens or images/s": ours["samples"] / fastest * 1e3, "bound ms": bound,
            "bound / ours": bound / fastest if bound else None, "PyTorch ms": torch_ms, "PyTorch mode": mode,
            "PyTorch / ours": torch_ms / fastest if torch_ms else None,
            "bound / PyTorch": bound / torch_ms if bound and torch_ms else None}


def gangs(steps):
    """The fastest step of 1 rank x 2 threads and of 2 ranks x 1 thread, in ms: in turn, GANG_ROUNDS times each."""
    fastest = {(1, 2): [], (2, 1): []}
    with tempfile.TemporaryDirectory() as folder:
        text, spec = pathlib.Path(folder, "text"), pathlib.Path(folder, "spec.yaml")
        alphabet = "".join(chr(c) for c in range(33, 98))
        text.write_text("".join(random.Random(1).choices(alphabet, k=200_000)))
        spec.write_text(SPEC.format(text=text, steps=steps))
        for _ in range(GANG_ROUNDS):
            for (ranks, threads), rounds in fastest.items():
                rows = run_json([BIN / "trainyard-train", spec, "--ranks", str(ranks), "--threads", str(threads), "--json"])
                rounds.append(min(r["step_seconds"] for r in rows[2:]) * 1e3)
    return fastest[1, 2], fastest[2, 1]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    models = [m for m in sys.argv[2:] if m != "ranks"] if sys.argv[2:] else ["char", "gpt2", "llama", "resnet18"]
    rows = [single(model, precision, steps) for model in models for precision in ("fp32", "bf16")]
    notes = [f"processor: {machine()['cpu']}", *(f"Trainyard's numerics: {id}" for id in sorted(numerics)), *peer_facts(),
             *(f"given up, more than {SLOWEST} times slower than ours: PyTorch {model} {mode} {kind}"
               for model, modes in given_up.items() for kind, mode in modes),
             "PyTorch's memory settings: " + " ".join(f"{k}={v}" for k, v in KEEP_MEMORY.items())]
    ratios = {row["what"]: row["PyTorch / ours"] for row in rows if row["PyTorch / ours"]}
    if ratios:
        lowest = min(ratios, key=ratios.get)
        notes.append(f"lowest ratio PyTorch / ours: {ratios[lowest]:.3f} ({lowest})")
    if not CPU_CLOCK:
        ones, twos = gangs(steps)
        one, two = min(ones), min(twos)
        rows.append({"what": "char, 2 micro-batches, 1 rank x 2 threads", "threads": 2, "fastest ms": one,
                     "tokens or images/s": 12 * 256 / one * 1e3})
        rows.append({"what": "char, 2 micro-batches, 2 ranks x 1 thread", "threads": 2, "fastest ms": two,
                     "tokens or images/s": 12 * 256 / two * 1e3})
        each = sorted(a / b for a, b in zip(ones, twos))
        notes.append(f"2 ranks x 1 thread against 1 rank x 2 threads: {one / two:.3f}, the fastest step of {GANG_ROUNDS} "
                     f"rounds in turn; round by round {each[0]:.3f} to {each[-1]:.3f}, median {each[len(each) // 2]:.3f}")
    report("train", rows, notes)


if __name__ == "__main__":
    main()
