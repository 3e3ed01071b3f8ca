"""What a program pays for Trainyard: a DDP step beside bare torchrun, the way from submit to its first line and from an edit
to a running program, calls that report a metric, and 10,000 points a second from each of two ranks."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from report import report
from service_fixture import Service

PEER = pathlib.Path(__file__).resolve().parent / "peer"
PYTHON = os.environ.get("TRAINYARD_TORCH", sys.executable)
PAIRS = int(os.environ.get("TRAINYARD_PAIRS", "9"))
STEPS = 400
# 10,000 points a second for five seconds, each in a line of its own; prints the seconds and the slowest write.
FLOOD = """
import os, time
metrics = os.open(os.environ["TRAINYARD_METRICS"], os.O_WRONLY)
begun, slowest = time.perf_counter(), 0
for tick in range(500):
    lines = "".join('{"step": %d, "loss": 1}\\n' % (tick * 100 + i) for i in range(100)).encode()
    at = time.perf_counter()
    os.write(metrics, lines)
    slowest = max(slowest, time.perf_counter() - at)
    time.sleep(max(0, begun + (tick + 1) / 100 - time.perf_counter()))
print(time.perf_counter() - begun, 1e3 * slowest, flush=True)
"""


def has(*modules):
    return subprocess.run([PYTHON, "-c", "import " + ", ".join(modules)], stderr=subprocess.DEVNULL).returncode == 0


def run(service, command, ranks=1, launcher="ranks", **more):
    """The ended job and its lines of stdout."""
    job = service.submit({"name": "overhead", "parallel": {"data": ranks}, **more,
                          "program": {"command": list(map(str, command)), "launcher": launcher,
                                      "environment": {"HOME": str(service.files)}}})
    service.wait_end(job)
    return job, [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == "stdout"]


def ddp_command(torchrun):
    return [torchrun, "--nproc-per-node", "2", "--nnodes", "1", "--master-port", "29555", PEER / "ddp_step.py", STEPS]


def ddp_bare(torchrun, folder, cores):
    environment = {**os.environ, "TRAINYARD_METRICS": str(folder / "metrics.json"), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(list(map(str, ddp_command(torchrun))), env=environment, text=True, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          preexec_fn=lambda: os.sched_setaffinity(0, cores)).stdout
    return json.loads(said.splitlines()[-1])


def ddp_under_trainyard(service, torchrun):
    _, lines = run(service, ddp_command(torchrun), 2, "host")
    return json.loads(next(line for line in lines if line.startswith("{")))


def ddp(service, folder):
    torchrun = pathlib.Path(PYTHON).parent / "torchrun"
    if not torchrun.exists():
        return [{"figure": f"DDP step: there is no {torchrun} (TRAINYARD_TORCH)"}]
    cores = ddp_under_trainyard(service, torchrun)["cores"]    # the first run also fills the caches
    ratios, bare_ms = [], []
    for pair in range(PAIRS):
        both = {}
        for side in ("bare", "trainyard") if pair % 2 else ("trainyard", "bare"):
            both[side] = ddp_bare(torchrun, folder, cores) if side == "bare" else ddp_under_trainyard(service, torchrun)
        assert both["bare"]["cores"] == both["trainyard"]["cores"], both
        ratios.append(both["bare"]["step_ms"] / both["trainyard"]["step_ms"])
        bare_ms.append(both["bare"]["step_ms"])
    return [{"figure": f"DDP step, speed relative to bare torchrun, {PAIRS} pairs", "p50": statistics.median(ratios),
             "least": min(ratios), "most": max(ratios), "goal": ">= 0.99"},
            {"figure": "the same step under bare torchrun, ms", "p50": statistics.median(bare_ms), "least": min(bare_ms),
             "most": max(bare_ms)}]


def first_lines(service, change, command, times=25, **more):
    """Milliseconds from the start of the client to the program's first line."""
    found = []
    for i in range(times):
        change(i)
        begun = time.time()
        _, lines = run(service, command, **more)
        found.append(1e3 * (float(lines[0]) - begun))
    return found


def starts(service, folder):
    date = ["date", "+%s.%N"]
    rows = [("submit to first line, ms", "<= 100", first_lines(service, lambda i: None, date))]
    code = folder / "code"
    code.mkdir()
    for i in range(100):
        (code / f"module_{i}.py").write_text(f"x = {i}\n" * 200)
    path = service.directory / "submitted.json"

    def edited(i):
        (code / "module_0.py").write_text(f"x = {i}\n")
        path.write_text(json.dumps({"name": "edited", "program": {"command": date, "code": {"folder": str(code)}}}))
        begun = time.time()
        job = service.cli("submit", path).stdout.strip()
        service.wait_end(job)
        (line,) = [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == "stdout"]
        return 1e3 * (float(line) - begun)
    rows.append(("edit to running (100 files), ms", "<= 2000", [edited(i) for i in range(15)]))
    return [{"figure": what, "p50": statistics.median(values), "least": min(values), "most": max(values), "goal": goal}
            for what, goal, values in rows]


def log_calls(service):
    rows = []
    for way, modules in (("json", ["os"]), ("tensorboard", ["torch", "tensorboard"]), ("mlflow", ["mlflow"]),
                         ("wandb", ["wandb"])):
        if not has(*modules):
            rows.append({"figure": f"a call of {way}: {PYTHON} does not have it"})
            continue
        job, lines = run(service, [PYTHON, PEER / "log_calls.py", way])
        p50 = next(float(line.split()[1]) for line in lines if line.startswith("p50_ms"))
        stored = int(service.series(job, "loss")["points"])
        assert stored == 500, f"{way}: {stored} points"
        rows.append({"figure": f"a call of {way}, ms", "p50": p50, "goal": "<= 1"})
    return rows


def flood(service):
    job, lines = run(service, ["/usr/bin/python3", "-c", FLOOD], 2)
    for rank in (0, 1):
        stored = int(service.series(job, "loss", rank)["points"])
        assert rank or stored == 50000, f"rank {rank}: {stored} points"
    values = [list(map(float, line.split())) for line in lines]
    return [{"figure": "10,000 points/s on 2 ranks for 5 s, seconds", "p50": statistics.median(v[0] for v in values),
             "most": max(v[0] for v in values), "goal": "5.0"},
            {"figure": "the same, slowest write of 100 points, ms", "p50": statistics.median(v[1] for v in values),
             "most": max(v[1] for v in values)}]


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    (folder / "service").mkdir()
    service = Service(folder / "service").start()
    try:
        rows = starts(service, folder) + flood(service) + log_calls(service) + ddp(service, folder)
    finally:
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report("program_overhead", rows)


main()
