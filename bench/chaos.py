"""kill -9 of a worker, an executor, the controller and PostgreSQL's postmaster, alone, at seeded steps: TRAINYARD_KILLS times
(default 50). Each time the job must end SUCCEEDED with the bits of the run that nobody touched."""

import os
import pathlib
import random
import shutil
import statistics
import tempfile

from kills import TARGETS, judge, run_job_with_a_kill
from report import percentile, report
from service_fixture import Service

KILLS = int(os.environ.get("TRAINYARD_KILLS", "50"))
SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))


def spec(text):
    return {
        "name": "chaos",
        "model": {"gpt": {"layers": 2, "heads": 2, "width": 64, "context": 32}},
        "data": {"text": {"files": [f"file://{text}"]}},
        "train": {"steps": 1600, "global_batch": 8, "micro_batch": 2, "lanes": 4, "seed": 1,
                  "optimizer": {"adamw": {"lr": 0.003}}, "eval": {"every": 0, "batches": 2}},
        "parallel": {"data": 2},
        "checkpoint": {"every": 100, "keep_last": 3},
        "retry": {"max_restarts": 5},
    }


def main():
    print(f"TRAINYARD_SEED={SEED} TRAINYARD_KILLS={KILLS}")
    draw = random.Random(SEED)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    text = directory / "text.txt"
    text.write_text("".join(f"line {i}: {draw.random():.12f} of a text that is long enough to draw windows from\n" for i in range(5000)))
    (directory / "service").mkdir()
    service = Service(directory / "service").start()
    facts = []
    try:
        digest = service.wait_end(service.submit(spec(text)))["weights_sha256"]
        for i in range(KILLS):
            ended, fact = run_job_with_a_kill(service, spec(text), TARGETS[i % len(TARGETS)], draw.randrange(1 << 31))
            judge(service, ended, fact, digest)
            facts.append(fact)
            print(f"{i + 1}/{KILLS} {fact['target']} at step {fact['at_step']}: same bits", flush=True)
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)
    rows = []
    for target in TARGETS:
        mine = [f for f in facts if f["target"] == target]
        known = [f["known_s"] for f in mine if "known_s" in f]
        again = [f["again_s"] for f in mine if "again_s" in f]
        rows.append({"killed": target, "times": len(mine), "same bits": len(mine),
                     "known p50 s": statistics.median(known) if known else None, "known max s": max(known, default=None),
                     "running again p50 s": statistics.median(again) if again else None,
                     "running again p99 s": percentile(again, 0.99) if again else None})
    report("chaos", rows)


main()
