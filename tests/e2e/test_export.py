"""`trainyard export --csv` and `--tensorboard`: every point of every rank, also after a restart. The event files are read by a
reader of this file's own, which computes the checksums bit by bit and knows the wire format alone."""

import csv
import datetime
import struct
import subprocess

import pytest

from kills import event_time
from service_fixture import BIN


# ---- TFRecord and tensorflow.Event ----

def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C = crc32c_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = path.read_bytes()
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked_crc32c(data[at:at + 8])
        record = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length) == (masked_crc32c(record),)
        yield record
        at += 16 + length
    assert at == len(data)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(message):
    """{number: value} of a message whose fields come once each."""
    found, at = {}, 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
        elif kind == 1:
            (value,), at = struct.unpack_from("<d", message, at), at + 8
        elif kind == 5:
            (value,), at = struct.unpack_from("<f", message, at), at + 4
        else:
            length, at = varint(message, at)
            value, at = message[at:at + length], at + length
        assert key >> 3 not in found
        found[key >> 3] = value
    return found


def scalars(path):
    """[(tag, step, wall_time, value)] of an event file."""
    first, *events = map(fields, records(path))
    assert first[3] == b"brain.Event:2" and 5 not in first
    points = []
    for event in events:
        value = fields(fields(event[5])[1])
        points.append((value[1].decode(), event.get(2, 0), event.get(1, 0.0), value.get(2, 0.0)))
    return points


# ---- what a job reported ----

HEADER = ["metric", "rank", "attempt", "step", "time", "value"]


def rows_of(text):
    header, *rows = csv.reader(text.splitlines(keepends=True))
    assert header == HEADER
    assert all(line.endswith("\r\n") for line in text.splitlines(keepends=True))
    return [(name, int(rank), int(attempt), int(step), time, float(value)) for name, rank, attempt, step, time, value in rows]


def rows_on_stdout(service, job):
    return rows_of(service.cli("export", job, "--csv", "-").stdout.replace("\n", "\r\n"))  # subprocess has made them \n


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.fixture(scope="module")
def restarted(shared_service, tiny):
    """A job of two ranks, with more series than one page of points holds, whose first attempt can write no checkpoint after
    step 10: files stand where the folders would. While the first job has the slots they are put there."""
    first = shared_service.submit(tiny(steps=10**6, data=2))
    job = shared_service.submit(tiny(steps=80, data=2, every=10, train__inspect={"gradients_every": 1}))
    attempt = shared_service.directory / "checkpoints" / job / "attempt-1"
    attempt.mkdir(parents=True)
    for step in range(20, 90, 10):
        (attempt / f"step-{step}").touch()
    shared_service.cli("cancel", first)
    ended = shared_service.wait_end(job)
    assert ended["attempt"] == 2
    return ended


def test_every_point_of_every_rank_is_exported_once(shared_service, restarted, tmp_path):
    job = restarted["name"].split("/")[-1]
    said = shared_service.cli("export", job, "--csv", tmp_path / "points.csv")
    rows = rows_of((tmp_path / "points.csv").read_bytes().decode())
    assert rows_on_stdout(shared_service, job) == rows
    assert [path.name for path in tmp_path.iterdir()] == ["points.csv"]
    told = {(s["name"], int(s["rank"])): s for s in shared_service.json("metrics", job)["series"]}
    assert {(name, rank) for name, rank, *_ in rows} == set(told)
    assert said.stderr == f"jobs/{job}: {len(rows)} points of {len(told)} series\n"
    assert [row[:2] + row[3:4] for row in rows] == sorted(row[:2] + row[3:4] for row in rows)
    for key, series in told.items():
        mine = [(step, value) for name, rank, _, step, _, value in rows if (name, rank) == key]
        assert mine == list(zip(map(int, series["step"]), series["mean"])), key
    assert [step for name, rank, _, step, _, _ in rows if (name, rank) == ("loss", 0)] == list(range(1, 81))
    begun = int(restarted["attempts"][1].get("from_step", 0))
    for _, _, attempt, step, time, _ in rows:
        assert attempt == (1 if step <= begun else 2)
        assert event_time(restarted["create_time"]) <= seconds(time) <= event_time(restarted["end_time"])
    times = [seconds(time) for name, rank, _, _, time, _ in rows if (name, rank) == ("loss", 0)]
    assert times == sorted(times) and times[0] < times[-1]


def test_event_files_hold_the_same_points_a_run_a_rank(shared_service, restarted, tmp_path):
    job = restarted["name"].split("/")[-1]
    shared_service.cli("export", job, "--tensorboard", tmp_path / "runs" / job)
    rows = rows_on_stdout(shared_service, job)
    files = sorted(path.relative_to(tmp_path / "runs" / job) for path in tmp_path.glob("runs/*/*/*"))
    assert [str(path) for path in files] == [f"rank-{rank}/events.out.tfevents.trainyard" for rank in (0, 1)]
    for rank, path in enumerate(files):
        points = scalars(tmp_path / "runs" / job / path)
        wanted = [(name, step, time, value) for name, of, _, step, time, value in rows if of == rank]
        assert len(points) == len(wanted)
        for (tag, step, wall_time, value), (name, at, time, exact) in zip(points, wanted):
            assert (tag, step) == (name, at)
            assert abs(wall_time - seconds(time)) < 1e-5
            assert value == struct.unpack("<f", struct.pack("<f", exact))[0]


def test_what_exists_is_replaced_only_when_told(shared_service, restarted, tmp_path):
    job = restarted["name"].split("/")[-1]
    file, folder = tmp_path / "points.csv", tmp_path / "runs"
    file.write_text("mine")
    folder.mkdir()
    (folder / "mine").write_text("mine")
    for option, path, word in (("--csv", file, "exists"), ("--tensorboard", folder, "is not empty")):
        said = shared_service.cli("export", job, option, path, status=1).stderr
        assert word in said and "--overwrite" in said
    assert file.read_text() == "mine" and [path.name for path in folder.iterdir()] == ["mine"]
    shared_service.cli("export", job, "--csv", file, "--overwrite")
    assert len(rows_of(file.read_bytes().decode())) > 80
    for _ in range(2):
        shared_service.cli("export", job, "--tensorboard", folder, "--overwrite")
    assert {path.name for path in folder.iterdir()} == {"mine", "rank-0", "rank-1"}
    assert [path.name for path in (folder / "rank-0").iterdir()] == ["events.out.tfevents.trainyard"]
    assert {path.name for path in tmp_path.iterdir()} == {"points.csv", "runs"}


def test_what_is_no_file_or_has_no_name_is_refused_at_once(shared_service, tmp_path):
    folder, device = tmp_path / "folder", tmp_path / "device"
    folder.mkdir()
    device.symlink_to("/dev/null")
    for path in (folder, device):
        for overwrite in ((), ("--overwrite",)):
            assert "is not a file" in shared_service.cli("export", 4711, "--csv", path, *overwrite, status=2).stderr
    for option in ("--csv", "--tensorboard", "--huggingface"):  # "" would be the root folder's rank-0
        assert "is empty" in shared_service.cli("export", 4711, option, "", status=2).stderr
    assert device.is_symlink() and {path.name for path in tmp_path.iterdir()} == {"folder", "device"}


def test_an_export_that_fails_leaves_no_file(shared_service, restarted, tmp_path):
    for option in ("--csv", "--tensorboard"):
        said = shared_service.cli("export", 4711, option, tmp_path / "out", status=4).stderr
        assert said == "trainyard: jobs/4711 does not exist\n"
    assert list(tmp_path.iterdir()) == []
    job = restarted["name"].split("/")[-1]
    for option in ("--csv", "--tensorboard"):
        short = ["bash", "-c", 'trap "" XFSZ && ulimit -f 8 && exec "$@"', "bash", BIN / "trainyard", "export", job, option]
        done = subprocess.run([*short, tmp_path / "out"], env=shared_service.environment(), text=True, capture_output=True)
        assert done.returncode == 1 and "File too large" in done.stderr
        assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
        assert not list(tmp_path.glob("*/*"))


def test_an_export_is_of_one_kind(shared_service, tmp_path):
    for wrong, word in (((), "one of"), (("--csv", "a", "--tensorboard", "b"), "one of"),
                        (("--csv", "a", "--average"), "--average")):
        assert word in shared_service.cli("export", 1, *wrong, status=2).stderr
