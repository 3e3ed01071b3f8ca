"""A damaged newest checkpoint is told in one sentence, marked CORRUPT, and the older good one is used by every rank; so is
one whose files are gone for longer than a job waits for them, which is MISSING."""

import os
import pathlib
import random
import shutil
import signal

import pytest

from service_fixture import make_service


@pytest.fixture(scope="module")
def impatient():
    """A job waits a second for files that are gone."""
    yield from make_service(executors=1, slots=2, options=["--checkpoint-wait", "1"])


def corrupt(path, draw):
    raw = bytearray(path.read_bytes())
    raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def truncate(path, draw):
    os.truncate(path, draw.randrange(path.stat().st_size))


def delete(path, draw):
    path.unlink()


def swap(path, draw):
    """The same file of the older checkpoint, which is whole but not this one."""
    older = sorted((p for p in path.parent.parent.glob("step-*") if p != path.parent), key=lambda p: int(p.name[5:]))[-1]
    shutil.copyfile(older / path.name, path)


def remove(path, draw):
    """All of it, as somebody does who needs room."""
    shutil.rmtree(path.parent)


FILES = ["manifest.json", "rank-1.safetensors", "rank-0.json"]
SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))


@pytest.mark.parametrize("damage", [corrupt, truncate, delete, swap, remove])
def test_a_damaged_checkpoint_is_passed_over(impatient, tiny, damage):
    """Of a drawn file: tests/engine/test_checkpoint_faults.c does each to each."""
    service = impatient
    draw = random.Random(f"{SEED}/{damage.__name__}")
    name = draw.choice(FILES)
    print(f"TRAINYARD_SEED={SEED}: {name}")
    spec = tiny(steps=100000, data=2, every=20, retry__max_restarts=0)
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
        watch.until_event("checkpoint_committed", 60)
        os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    service.wait_end(job, "FAILED")
    good = [c for c in service.json("checkpoints", job)["checkpoints"] if c["state"] == "COMMITTED"]
    newest, older = good[0], good[1]
    damage(pathlib.Path(newest["directory"]) / name, draw)
    service.cli("retry", job)
    with service.watch(job) as watch:
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] >= 3, 60, "another attempt")
    rows = {c["name"]: c for c in service.json("checkpoints", job)["checkpoints"]}
    assert rows[newest["name"]]["state"] == ("MISSING" if damage in (delete, remove) else "CORRUPT")
    assert rows[newest["name"]]["reason"]
    attempts = service.json("get", job)["attempts"]
    assert attempts[-1]["from_checkpoint"] == older["name"]
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
