"""Metric points from the agents' spools to committed rows: a worker that only reports fills the spool while the controller is
stopped; then the controller goes on, and the clock runs until the worker's last word is stored behind all its points."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from kills import event_time
from report import BIN, report
from service_fixture import Service, wait_until

STEPS = int(os.environ.get("TRAINYARD_FLOOD_STEPS", "300000"))
RANKS, NAMES = 2, 8


def spec(text):
    return {
        "name": "flood",
        "model": {"gpt": {"layers": 1, "heads": 1, "width": 8, "context": 8}},
        "data": {"text": {"files": [f"file://{text}"]}},
        "train": {"steps": STEPS, "global_batch": 8, "lanes": RANKS, "optimizer": {"adamw": {}}},
        "parallel": {"data": RANKS},
        "retry": {"max_restarts": 0},
    }


def spool_bytes(directory):
    return sum(f.stat().st_size for f in (directory / "spool").glob("*/*"))


def run(service, directory):
    text = directory / "text.txt"
    text.write_text("a text\n")
    place = directory / "flood"
    agent = subprocess.Popen([BIN / "trainyard-executor", "--controller", service.address, "--directory", place, "--slots",
                              str(RANKS), "--data-root", directory, "--checkpoint-root", service.directory, "--worker", BIN / "bench_flood"], stdout=subprocess.PIPE, text=True)
    assert agent.stdout.readline().startswith("ready ")
    controller = service.pid_of("trainyard-controller")
    try:
        job = service.submit(spec(text))
        with service.watch(job) as watch:
            watch.until_state("RUNNING")
        os.kill(controller, signal.SIGSTOP)
        wait_until(lambda: not any(_runs_flood(p) for p in os.listdir("/proc")), 8, "the flood is in the spool")
        spooled = spool_bytes(place)
        start = time.time()
        os.kill(controller, signal.SIGCONT)
        ended = service.wait_end(job, "FAILED")
        events = service.json("events", job)["events"]
        took = event_time(next(e for e in events if e["state"] == "FAILED")["time"]) - start
        # The rank that ends first takes the other one with it: what that one had reported by then counts, and is there.
        points = {int(s.get("rank", 0)): int(s["points"]) for s in service.json("metrics", job, "loss")["series"]}
        assert max(points.values()) == STEPS and "the flood is over" in ended["reason"], (points, ended["reason"])
        return NAMES * sum(points.values()), spooled, took
    finally:
        agent.terminate()
        agent.wait()


def _runs_flood(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("bench_flood")
    except OSError:
        return False


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    (directory / "service").mkdir()
    service = Service(directory / "service", executors=0).start()
    try:
        points, spooled, took = run(service, directory)
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report("ingest", [{"points": points, "MiB in the spool at the start": spooled / 2**20, "seconds": took,
                       "points per s": points / took, "goal per s": 500000}])


main()
