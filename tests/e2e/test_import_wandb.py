"""The files that clients of Weights & Biases keep become jobs that have ended: trainyard import wandb."""

import json
import os
import random
import struct
import subprocess
import time
import zlib

import pytest

from event_files import member, number
from test_import import imported, series
from test_program_tracking import pythons

BLOCK = 32768


def item(path, value):
    keys = path.split("/")
    name = member(1, keys[0].encode()) if len(keys) == 1 else b"".join(member(2, key.encode()) for key in keys)
    return name + member(16, (value if isinstance(value, str) else json.dumps(value)).encode())


def history(step, **values):
    rows = {"_step": step, "_timestamp": 1.7e9 + step, **values}
    return member(2, b"".join(member(1, item(path, value)) for path, value in rows.items()))


def run_record(id, name="My run", project="proj", config=(("lr", 0.1),), tags=("first",)):
    update = b"".join(member(1, item(key, value)) for key, value in config)
    return member(17, member(1, id.encode()) + member(3, project.encode()) + member(4, update) + member(8, name.encode())
                  + b"".join(member(10, tag.encode()) for tag in tags) + member(17, b"\x08" + number(1_700_000_000)))


def exit_record(code):
    return member(18, b"\x08" + number(code))


def log_file(records):
    """The bytes of run-ID.wandb: records in pieces that do not cross a block."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        first = True
        while True:
            room = BLOCK - len(out) % BLOCK
            if room < 7:
                out += bytes(room)
                continue
            piece, record = record[:room - 7], record[room - 7:]
            kind = bytes([(1 if not record else 2) if first else (4 if not record else 3)])
            out += struct.pack("<IH", zlib.crc32(kind + piece), len(piece)) + kind + piece
            first = False
            if not record:
                break
    return bytes(out)


def write_run(root, id, records, idle=True, folder=None):
    """The path of the file; idle: it has not changed for an hour."""
    path = root / (folder or f"run-20231114_221320-{id}") / f"run-{id}.wandb"
    path.parent.mkdir(parents=True)
    path.write_bytes(log_file([run_record(id), *records]))
    if idle:
        os.utime(path, (time.time() - 3600,) * 2)
    return path


@pytest.mark.sanitized
def test_runs_of_wandb_become_jobs_with_their_state_parameters_tags_and_times(shared_service, tmp_path):
    steps = [history(step, loss=step / 2, **{"val/loss": step, "a.b": 7}) for step in range(3000)]
    write_run(tmp_path, "aaaa", [*steps, history(3000, bad="NaN", big="-Infinity", text='"x"', wrong="{"), exit_record(0)])
    write_run(tmp_path, "bbbb", [history(0, loss=1), exit_record(1)])
    write_run(tmp_path, "cccc", [history(0, loss=1)])
    write_run(tmp_path, "dddd", [history(0, loss=1)], idle=False)
    (tmp_path / "latest-run").symlink_to(tmp_path / "run-20231114_221320-aaaa")
    done = shared_service.cli("import", "wandb", tmp_path, "-o", "json")
    jobs = [json.loads(line)["job"].split("/")[1] for line in done.stdout.splitlines()]
    assert "1 runs have not ended" in done.stderr and "1 values are no scalars" in done.stderr
    got = [shared_service.json("get", job) for job in jobs]
    assert [job["state"] for job in got] == ["SUCCEEDED", "FAILED", "FAILED"]     # the third was killed
    assert got[0]["display_name"] == "my-run" and int(got[0]["step"]) == 3000
    assert got[0]["start_time"].startswith("2023-11-14T22:13:20") and got[0]["end_time"].startswith("2023-11-14T23:03:20")
    have = series(shared_service, jobs[0])
    assert have["loss"] == {s: s / 2 for s in range(3000)} and have["val.loss"][2999] == 2999 and have["a.b"][0] == 7
    assert set(have) == {"loss", "val.loss", "a.b", "bad", "big"}
    events = {event["kind"]: event["message"] for event in shared_service.json("events", jobs[0])["events"]}
    assert events["parameters"] == "lr=0.1" and events["tags"] == "project=proj, first"
    assert shared_service.cli("import", "wandb", tmp_path).stdout.count("nothing to add") == 3


@pytest.mark.sanitized
def test_keys_that_are_no_text_or_lead_too_deep_are_left_out(shared_service, tmp_path):
    bad = member(2, member(1, member(2, b"\xff") + member(2, b"a") + member(2, b"b") + member(16, b"1")))
    deep = member(2, member(1, b"".join(member(2, b"k") for _ in range(500_000)) + member(16, b"1")))
    write_run(tmp_path, "kkkk", [history(0, loss=1), bad, deep, history(1, loss=2), exit_record(0)])
    job, = imported(shared_service, tmp_path, source="wandb")
    assert series(shared_service, job["job"].split("/")[1]) == {"loss": {0: 1, 1: 2}}


def test_a_run_of_wandb_that_was_resumed_is_one_job(shared_service, tmp_path):
    write_run(tmp_path, "eeee", [*(history(step, loss=step) for step in range(10)), exit_record(0)])
    first, = imported(shared_service, tmp_path, source="wandb")
    write_run(tmp_path, "eeee", [*(history(step, loss=step) for step in range(10, 25)), exit_record(0)],
              folder="run-20231115_000000-eeee")
    both = imported(shared_service, tmp_path, source="wandb")
    assert {answer["job"] for answer in both} == {first["job"]} and int(both[1]["rows"]) == 25
    assert series(shared_service, first["job"].split("/")[1]) == {"loss": {s: float(s) for s in range(25)}}


@pytest.mark.sanitized
def test_records_of_every_length_are_read_across_blocks(shared_service, tmp_path):
    """Each padding moves the end of a block to another byte of a head or of the data."""
    seed = int(os.environ.get("TRAINYARD_SEED", random.randrange(1 << 31)))
    print(f"TRAINYARD_SEED={seed}")
    draw = random.Random(seed)
    records = [history(step, loss=step, note=json.dumps("x" * draw.choice((0, draw.randrange(64), BLOCK - 200 + step % 300,
                                                                            3 * BLOCK)))) for step in range(400)]
    path = write_run(tmp_path, "ffff", [*records, exit_record(0)])
    job, = imported(shared_service, path, source="wandb")
    assert series(shared_service, job["job"].split("/")[1]) == {"loss": {s: float(s) for s in range(400)}}


@pytest.mark.sanitized
def test_what_is_wrong_with_a_file_is_said_and_the_other_runs_are_imported(shared_service, tmp_path):
    whole = [history(step, loss=step, note=json.dumps("x" * 900)) for step in range(100)]
    flipped = write_run(tmp_path / "1", "gggg", [*whole, exit_record(0)])
    data = bytearray(flipped.read_bytes())
    data[40000] ^= 1
    flipped.write_bytes(data)
    cut = write_run(tmp_path / "2", "hhhh", whole)
    cut.write_bytes(cut.read_bytes()[:-100])                   # its writer was killed in the middle of a record
    other = write_run(tmp_path / "3", "iiii", [])
    other.write_bytes(b"no run of W&B")
    write_run(tmp_path / "4", "jjjj", [history(0, loss=5), exit_record(0)])
    for path in (flipped, cut, other):
        os.utime(path, (time.time() - 3600,) * 2)
    done = shared_service.cli("import", "wandb", tmp_path, "-o", "json", status=1)
    jobs = [json.loads(line)["job"].split("/")[1] for line in done.stdout.splitlines()]
    assert len(jobs) == 3
    assert len(series(shared_service, jobs[0])["loss"]) in range(30, 45)
    assert series(shared_service, jobs[1])["loss"] == {s: float(s) for s in range(99)}
    assert series(shared_service, jobs[2])["loss"] == {0: 5}
    assert f"'{flipped}' is not read to its end: a record is corrupt" in done.stderr
    assert f"'{other}' is not read to its end: it does not begin like a run file of W&B" in done.stderr
    assert "2 of 4 files are not imported in full" in done.stderr
    assert "no runs of W&B that have ended" in shared_service.cli("import", "wandb", tmp_path / "3", status=1).stderr \
        or "1 of 1 files" in shared_service.cli("import", "wandb", tmp_path / "3", status=1).stderr


LOGS_OFFLINE = """
import sys, wandb
run = wandb.init(mode="offline", project="real", name="client", config={"lr": 0.1, "deep": {"er": 2}}, tags=["t"])
for step in range(500):
    run.log({"loss": 1 / (step + 1), "inner": {"value": step}})
run.finish()
"""


@pytest.mark.parametrize("python", pythons("wandb"))
def test_what_wandbs_client_keeps_of_an_offline_run_is_imported(shared_service, tmp_path, python):
    subprocess.run([python, "-c", LOGS_OFFLINE], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL,
                   env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WANDB_SILENT": "true"})
    answer, = imported(shared_service, tmp_path / "wandb", source="wandb")
    job = answer["job"].split("/")[1]
    assert series(shared_service, job) == {"loss": {step: 1 / (step + 1) for step in range(500)},
                                           "inner.value": {step: float(step) for step in range(500)}}
    got = shared_service.json("get", job)
    assert got["display_name"] == "client" and got["state"] == "SUCCEEDED"
    events = {event["kind"]: event["message"] for event in shared_service.json("events", job)["events"]}
    assert "lr=0.1" in events["parameters"] and events["tags"] == "project=real, t"
