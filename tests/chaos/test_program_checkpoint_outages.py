"""PostgreSQL is killed while a checkpoint of a program is stored: before its bytes are read, and while they are."""

import os
import pathlib
import random
import signal
import sys

import pytest

from service_fixture import process_start_time, wait_until

SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))
MIB = 256

SAVES = f"""
import os, sys, time
folder = os.environ["TRAINYARD_CHECKPOINTS"]
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
def report(step): metrics.write('{{"step": %d, "loss": %d}}\\n' % (step, step))
print(folder, flush=True)
report(1)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
with open(folder + "/part", "wb") as part:
    for i in range({MIB}): part.write(bytes([i % 256]) * (1 << 20))
os.rename(folder + "/part", folder + "/step-1")
step = 1
while not os.path.exists(sys.argv[2]):
    step += 1; report(step); time.sleep(0.02)
print("ends at", step, flush=True)
"""


def rank_reads(pid):
    """A tenth of the checkpoint has been read."""
    read = next(line for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("rchar"))
    return int(read.split()[1]) > (MIB << 20) // 10


@pytest.mark.parametrize("moment", ["before it is read", "while it is read"])
def test_a_checkpoint_is_stored_though_the_database_is_killed_meanwhile(service, tmp_path, moment):
    draw = random.Random(f"{SEED}/{moment}")
    print(f"TRAINYARD_SEED={SEED}")
    go, end = tmp_path / "go", tmp_path / "end"
    job = service.submit({"name": "saves", "program": {"command": [sys.executable, "-c", SAVES, str(go), str(end)]}})
    with service.watch(job) as watch:
        watch.until_step(1)
    folder = wait_until(lambda: service.cli("logs", job).stdout.split("\n")[0], 60, "the folder").split()[-1]
    rank = service.worker_pids(job)[0][0]
    os.kill(rank, signal.SIGSTOP)    # it cannot store what the program saves
    go.touch()
    wait_until(lambda: pathlib.Path(folder, "step-1").exists(), 60, "the program's checkpoint")
    assert not service.json("checkpoints", job).get("checkpoints")
    postmaster = service.postmaster_pid()
    start = process_start_time(postmaster)
    if moment == "while it is read":
        os.kill(rank, signal.SIGCONT)
        wait_until(lambda: rank_reads(rank), 60, "the read of its bytes")
    os.kill(postmaster, draw.choice([signal.SIGKILL, signal.SIGQUIT]))
    wait_until(lambda: process_start_time(postmaster) != start, 30, "the end of PostgreSQL")
    os.kill(rank, signal.SIGCONT)
    rows = wait_until(lambda: [row for row in service.json("checkpoints", job).get("checkpoints", [])
                               if row["state"] == "COMMITTED"], 60, "the checkpoint")
    assert [(int(row["step"]), int(row["bytes"])) for row in rows] == [(1, MIB << 20)]
    end.touch()
    ended = service.wait_end(job)
    assert ended["attempt"] == 1
    last = int(ended["step"])
    assert service.metric(job, "loss") == {step: float(step) for step in range(1, last + 1)}
    assert f"ends at {last}" in service.cli("logs", job).stdout
    assert service.cli("checkpoint", "verify", rows[0]["name"]).returncode == 0
