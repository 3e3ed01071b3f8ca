"""Runs of experiment trackers become jobs that have ended: trainyard import."""

import json
import math
import random
import shutil
import sqlite3
import struct
import subprocess
import time

import pytest

import event_files
from service_fixture import BIN
from test_program_tracking import pythons


def timed(tag, step, value, seconds):
    """A scalar with the time of its event."""
    value = event_files.member(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return event_files.record(b"\x09" + struct.pack("<d", seconds) + b"\x10" + event_files.number(step)
                              + event_files.member(5, event_files.member(1, value)))


def version(seconds):
    return event_files.record(b"\x09" + struct.pack("<d", seconds) + event_files.member(3, b"brain.Event:2"))


def write_run(folder, steps, start=1.7e9, tags=("loss", "accuracy"), name="events.out.tfevents.1700000000.host.1.0",
              mode="wb", first=0):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, mode) as f:
        if mode == "wb":
            f.write(version(start))
        for step in range(first, steps):
            for i, tag in enumerate(tags):
                f.write(timed(tag, step, step / 2 + i, start + step))


def imported(service, path, *arguments, source="tensorboard"):
    lines = service.cli("import", source, path, *arguments, "-o", "json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def series(service, job):
    return {s["name"]: dict(zip(map(int, s["step"]), s["mean"])) for s in service.json("metrics", job).get("series", [])}


@pytest.mark.sanitized
def test_each_folder_with_event_files_becomes_a_job_that_all_reading_commands_show(shared_service, tmp_path):
    write_run(tmp_path / "runs" / "a", 300)
    write_run(tmp_path / "runs" / "b" / "Validation Loss", 5, start=1.6e9)
    first, second = imported(shared_service, tmp_path / "runs")
    assert first["created"] and int(first["rows"]) == 600 and int(second["rows"]) == 10
    job = first["job"].split("/")[1]
    got = shared_service.json("get", job)
    assert got["state"] == "SUCCEEDED" and got["display_name"] == "a" and int(got["step"]) == 299
    assert got["start_time"].startswith("2023-11-14T22:13:20") and got["end_time"].startswith("2023-11-14T22:18:19")
    assert shared_service.json("get", second["job"].split("/")[1])["display_name"] == "b-validation-loss"
    assert series(shared_service, job) == {"loss": {s: s / 2 for s in range(300)},
                                           "accuracy": {s: s / 2 + 1 for s in range(300)}}
    rows = shared_service.cli("export", job, "--csv", "-").stdout.splitlines()
    assert len(rows) == 601 and any("2023-11-14T22:13:21" in row for row in rows)
    shared_service.cli("export", job, "--tensorboard", tmp_path / "back")
    assert any((tmp_path / "back").rglob("*tfevents*"))
    for command in (["watch", job], ["list"], ["events", job], ["explain", job], ["logs", job], ["metrics", job],
                    ["checkpoints", job], ["artifacts", job], ["get", job, "-o", "yaml"]):
        assert shared_service.cli(*command).returncode == 0
    assert f"{job} " in shared_service.cli("list").stdout


def test_a_second_import_adds_nothing_and_a_run_that_grew_gets_its_new_points(shared_service, tmp_path):
    run = tmp_path / "again"
    write_run(run, 100)
    first, = imported(shared_service, run)
    again, = imported(shared_service, run)
    assert again == {"job": first["job"], "rows": "200"} | ({"created": False} if "created" in again else {})
    assert "nothing to add" in shared_service.cli("import", "tensorboard", run).stdout
    shutil.copytree(run, tmp_path / "elsewhere" / "again")
    assert imported(shared_service, tmp_path / "elsewhere")[0]["job"] == first["job"]
    write_run(run, 150, mode="ab", first=100)
    write_run(run, 170, name="events.out.tfevents.1700000150.host.1.1", first=150)
    grown, = imported(shared_service, run)
    job = first["job"].split("/")[1]
    assert grown["job"] == first["job"] and int(grown["rows"]) == 340
    assert series(shared_service, job)["loss"] == {s: s / 2 for s in range(170)}
    assert shared_service.json("get", job)["end_time"].startswith("2023-11-14T22:16:09")
    text = shared_service.cli("import", "tensorboard", run, "-o", "name").stdout
    assert text.strip() == first["job"]


def points(service, job):
    """All points of a job, as (step, value), sorted."""
    rows = service.cli("export", job, "--csv", "-").stdout.splitlines()[1:]
    return sorted((int(row.split(",")[3]), float(row.split(",")[5])) for row in rows)


def test_each_file_of_a_run_may_grow_between_imports(shared_service, tmp_path):
    """Two ranks write into one folder: their times overlap, and each file grows after the other was read to its end."""
    run, seed = tmp_path / "two-ranks", random.randrange(1 << 31)
    print(f"TRAINYARD_SEED={seed}")
    draw = random.Random(seed)
    names = ["events.out.tfevents.1700000000.host.1.0", "events.out.tfevents.1700000000.host.2.0"]
    lengths, jobs = [10, 5], set()
    for name, length in zip(names, lengths):
        write_run(run, length, tags=("loss",), name=name, start=1.7e9)
    jobs.add(imported(shared_service, run)[0]["job"])
    for file in [0, 1] + [draw.randrange(2) for _ in range(4)]:
        more = lengths[file] + draw.randrange(5, 15)
        write_run(run, more, tags=("loss",), name=names[file], mode="ab", first=lengths[file])
        lengths[file] = more
        grown, = imported(shared_service, run)
        jobs.add(grown["job"])
        assert int(grown["rows"]) == sum(lengths)
        assert "nothing to add" in shared_service.cli("import", "tensorboard", run).stdout
    job, = jobs
    assert points(shared_service, job.split("/")[1]) == sorted((s, s / 2) for n in lengths for s in range(n))


def test_a_run_that_grows_while_it_is_imported_ends_with_each_point_once(shared_service, tmp_path):
    run = tmp_path / "growing"
    write_run(run, 1, tags=("loss",))
    file, = run.iterdir()
    for first in range(1, 20001, 5000):
        child = subprocess.Popen([BIN / "trainyard", "import", "tensorboard", run], env=shared_service.environment(),
                                 stdout=subprocess.DEVNULL)
        for step in range(first, first + 5000, 100):       # a record may be read before it is whole
            with open(file, "ab") as f:
                f.write(b"".join(timed("loss", s, s / 2, 1.7e9 + s) for s in range(step, step + 100)))
        assert child.wait() == 0
    last, = imported(shared_service, run)
    assert int(last["rows"]) == 20001
    assert points(shared_service, last["job"].split("/")[1]) == [(s, s / 2) for s in range(20001)]


def test_one_event_file_is_imported_and_what_cannot_be_read_is_said(shared_service, tmp_path):
    write_run(tmp_path / "one", 10)
    file, = (tmp_path / "one").iterdir()
    with open(file, "ab") as f:
        f.write(event_files.image("sample", 1) + timed("bad", 1 << 60, 1, 1.7e9) + timed("last", 3, 1, 1.7e9)
                + b"\x00" * 100 + timed("never", 3, 1, 1.7e9))
    done = shared_service.cli("import", "tensorboard", file)
    assert "22 points" not in done.stdout and "21 points" in done.stdout
    assert "no scalars" in done.stderr and "corrupt" in done.stderr and "1 points are left out" in done.stderr
    assert shared_service.cli("import", "tensorboard", tmp_path / "none", status=4).stderr
    (tmp_path / "empty").mkdir()
    assert "has no event files" in shared_service.cli("import", "tensorboard", tmp_path / "empty", status=4).stderr
    assert "is tensorboard, mlflow or wandb" in shared_service.cli("import", "comet", tmp_path, status=2).stderr


def test_an_imported_job_cannot_run_and_is_deleted_like_any_other(shared_service, tmp_path):
    write_run(tmp_path / "gone", 10)
    job = imported(shared_service, tmp_path / "gone")[0]["job"].split("/")[1]
    for command in ("retry", "cancel", "pause", "resume"):
        done = shared_service.cli(command, job, status=None)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, (command, done)
    assert "imported" in shared_service.cli("retry", job, status=1).stderr
    assert shared_service.cli("submit", "--fork", job, status=None).returncode != 0
    shared_service.cli("delete", job)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        done = shared_service.cli("import", "tensorboard", tmp_path / "gone", "-o", "name", status=None)
        if done.returncode == 0:
            break
        assert "is being deleted" in done.stderr
    assert done.returncode == 0 and done.stdout.strip() != f"jobs/{job}"


def test_an_import_that_is_killed_is_continued_without_a_point_twice(service, tmp_path):
    seed = random.randrange(1 << 31)
    print(f"TRAINYARD_SEED={seed}")
    write_run(tmp_path / "long", 30000, tags=("loss",))
    draw = random.Random(seed)
    for _ in range(4):
        child = subprocess.Popen([BIN / "trainyard", "import", "tensorboard", tmp_path / "long"],
                                 env=service.environment(), stdout=subprocess.DEVNULL)
        time.sleep(draw.random() * 0.2)
        child.kill()
        child.wait()
    last, = imported(service, tmp_path / "long")
    job = last["job"].split("/")[1]
    assert int(last["rows"]) == 30000
    rows = service.cli("export", job, "--csv", "-").stdout.splitlines()[1:]
    assert [int(row.split(",")[3]) for row in rows] == list(range(30000))


def test_imports_of_one_run_at_the_same_time_store_each_point_once_or_say_that_they_do_not(shared_service, tmp_path):
    seed, refused = random.randrange(1 << 31), 0
    print(f"TRAINYARD_SEED={seed}")
    draw = random.Random(seed)
    for i in range(4):
        run = tmp_path / f"both-{i}"
        write_run(run, 40000, tags=("loss",))
        children = []
        for _ in range(3):
            children.append(subprocess.Popen([BIN / "trainyard", "import", "tensorboard", run, "-o", "name"],
                                             env=shared_service.environment(), stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE, text=True))
            time.sleep(draw.random() * 0.1)
        for child in children:
            stderr = child.communicate()[1]
            assert child.returncode == 0 or "another import is adding points" in stderr
            refused += child.returncode != 0
        job = shared_service.cli("import", "tensorboard", run, "-o", "json").stdout
        assert int(json.loads(job)["rows"]) == 40000
        assert points(shared_service, json.loads(job)["job"].split("/")[1]) == [(s, s / 2) for s in range(40000)]
    print(f"{refused} of 12 imports were refused")


# ---- MLflow's file store ----

META = """artifact_uri: file:///x
end_time: {end}
experiment_id: '7'
lifecycle_stage: {stage}
run_id: {id}
run_name: {name}
start_time: 1700000000000
status: {status}
tags: []
"""


def write_mlflow(root, id, metrics, name="r", status=3, end=1700000100000, stage="active"):
    """metrics: {name: [(time_ms, value, step)]}. Returns the folder of the run."""
    run = root / "7" / id
    for kind in ("params", "tags", "metrics"):
        (run / kind).mkdir(parents=True, exist_ok=True)
    (root / "7" / "meta.yaml").write_text("experiment_id: '7'\nname: 'my ''own'' one'\n")
    (run / "meta.yaml").write_text(META.format(id=id, name=name, status=status, end=end, stage=stage))
    for metric, lines in metrics.items():
        (run / "metrics" / metric).parent.mkdir(parents=True, exist_ok=True)
        (run / "metrics" / metric).write_text("".join(f"{at} {value} {step}\n" for at, value, step in lines))
    return run


def loss(steps, first=0):
    return [(1700000000000 + step, step / 2, step) for step in range(first, steps)]


@pytest.mark.sanitized
def test_runs_of_mlflows_file_store_become_jobs_with_their_state_parameters_and_tags(shared_service, tmp_path):
    run = write_mlflow(tmp_path, "a" * 32, {"loss": loss(3000), "deep/er": [(1700000000001, "nan", 1)],
                                            "minus": [(1700000000001, -1, -1)]}, name='"First \\"run\\""')
    (run / "params" / "lr").write_text("0.1")
    (run / "params" / "text").write_text("two\nlines")
    (run / "tags" / "team").write_text("blue")
    (run / "tags" / "mlflow.user").write_text("me")
    with open(run / "metrics" / "loss", "a") as f:
        f.write("no point\n1700000003000 7.5 5000")        # its writer was killed: no newline
    write_mlflow(tmp_path, "b" * 32, {"loss": loss(2)}, status=4)
    write_mlflow(tmp_path, "c" * 32, {"loss": loss(2)}, status=5)
    write_mlflow(tmp_path, "d" * 32, {"loss": loss(2)}, status=1, end="null")
    write_mlflow(tmp_path, "e" * 32, {"loss": loss(2)}, stage="deleted")
    done = imported(shared_service, tmp_path, source="mlflow")
    jobs = [answer["job"].split("/")[1] for answer in done]
    got = [shared_service.json("get", job) for job in jobs]
    assert [job["state"] for job in got] == ["SUCCEEDED", "FAILED", "CANCELLED"]
    assert got[0]["display_name"] == "first-run" and got[0]["end_time"].startswith("2023-11-14T22:15:00")
    assert series(shared_service, jobs[0])["loss"][2999] == 2999 / 2 and int(got[0]["step"]) == 2999
    assert set(series(shared_service, jobs[0])) == {"loss", "deep/er"}
    events = {event["kind"]: event["message"] for event in shared_service.json("events", jobs[0])["events"]}
    assert events["parameters"] == "lr=0.1, text=two?lines"
    assert events["tags"] == "experiment=my 'own' one, team=blue"
    assert "imported" in shared_service.cli("retry", jobs[1], status=1).stderr
    said = shared_service.cli("import", "mlflow", tmp_path)
    assert said.stdout.count("nothing to add") == 3 and "1 runs have not ended" in said.stderr
    assert "1 lines of metrics are no points" in said.stderr and "1 points are left out" in said.stderr


def test_a_run_of_mlflow_that_was_resumed_gets_its_new_points_and_experiments_are_chosen(shared_service, tmp_path):
    write_mlflow(tmp_path, "f" * 32, {"loss": loss(10), "other": loss(10)})
    first, = imported(shared_service, tmp_path, "--experiment", "my 'own' one", source="mlflow")
    write_mlflow(tmp_path, "f" * 32, {"loss": loss(20), "other": loss(15)}, end=1700000200000)
    grown, = imported(shared_service, tmp_path / "7" / ("f" * 32), source="mlflow")
    assert grown["job"] == first["job"] and int(first["rows"]) == 20 and int(grown["rows"]) == 35
    job = first["job"].split("/")[1]
    assert series(shared_service, job) == {"loss": {s: s / 2 for s in range(20)}, "other": {s: s / 2 for s in range(15)}}
    assert imported(shared_service, tmp_path, "--experiment", "7", source="mlflow")
    assert shared_service.cli("import", "mlflow", tmp_path, "--experiment", "none", status=4).stderr
    assert shared_service.cli("import", "tensorboard", tmp_path, "--experiment", "x", status=2).stderr


@pytest.mark.sanitized
def test_lines_of_mlflow_that_are_too_long_are_counted_and_end_the_import_with_a_failure(shared_service, tmp_path):
    run = write_mlflow(tmp_path, "9" * 32, {"loss": loss(5), "cut": loss(3), "fits": loss(1)})
    write_mlflow(tmp_path, "a1" * 16, {"loss": loss(7)})
    for metric, length in (("loss", 8192), ("loss", 100000), ("cut", 8193), ("fits", 8191)):
        with open(run / "metrics" / metric, "a") as f:
            f.write("1700000000009 1 9 " + "x" * (length - 18))
            if metric != "cut":                             # its writer was killed
                f.write("\n1700000000010 5 10\n")
    done = shared_service.cli("import", "mlflow", tmp_path, "-o", "json", status=1)
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert int(second["rows"]) == 7
    got = series(shared_service, first["job"].split("/")[1])
    assert got == {"loss": {s: s / 2 for s in range(5)} | {10: 5}, "cut": {s: s / 2 for s in range(3)},
                   "fits": {0: 0, 9: 1, 10: 5}}
    assert "3 lines of metrics have 8192 bytes or more" in done.stderr
    assert "1 of 2 runs are not imported in full" in done.stderr


def test_a_folder_of_mlflow_that_cannot_be_read_ends_the_import_with_a_failure(shared_service, tmp_path):
    run = write_mlflow(tmp_path, "b2" * 16, {"loss": loss(5)})
    shutil.rmtree(run / "metrics")
    (run / "metrics").write_text("no folder")
    write_mlflow(tmp_path, "b3" * 16, {"loss": loss(7)})
    done = shared_service.cli("import", "mlflow", tmp_path, status=1)
    assert "1 files or folders of metrics cannot be read" in done.stderr and "7 points" in done.stdout


# ---- MLflow's database ----

TABLES = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT, lifecycle_stage TEXT);
CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name TEXT, status TEXT, start_time BIGINT, end_time BIGINT,
                   lifecycle_stage TEXT, experiment_id INTEGER);
CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN);
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);
"""


def write_database(path, runs):
    """runs: [(id, status, end_ms, stage, experiment)]; each has ten points of loss."""
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    database.executemany("INSERT INTO experiments VALUES (?, ?, 'active')", [(0, "Default"), (1, "it's")])
    for id, status, end, stage, experiment in runs:
        database.execute("INSERT INTO runs VALUES (?, ?, ?, 1700000000000, ?, ?, ?)",
                         (id, f"Run {id}", status, end, stage, experiment))
        database.executemany("INSERT INTO metrics VALUES ('loss', ?, ?, ?, ?, 0)",
                             [(step / 2, 1700000000000 + step, id, step) for step in range(10)])
        database.execute("INSERT INTO metrics VALUES ('bad', 0, 1700000000011, ?, 3, 1)", (id,))
        database.execute("INSERT INTO params VALUES ('lr', '0.1', ?)", (id,))
        database.executemany("INSERT INTO tags VALUES (?, ?, ?)", [("team", "blue", id), ("mlflow.user", "me", id)])
    database.commit()
    return database


@pytest.mark.sanitized
def test_runs_of_a_database_of_mlflow_become_jobs(shared_service, tmp_path):
    end, path = 1700000100000, tmp_path / "mlflow.db"
    write_database(path, [("d1", "FINISHED", end, "active", 1), ("d2", "FAILED", end, "active", 0),
                          ("d3", "KILLED", end, "active", 0), ("d4", "RUNNING", None, "active", 0),
                          ("d5", "FINISHED", end, "deleted", 0)])
    done = imported(shared_service, path, source="mlflow")
    jobs = [answer["job"].split("/")[1] for answer in done]
    got = [shared_service.json("get", job) for job in jobs]
    assert [job["state"] for job in got] == ["SUCCEEDED", "FAILED", "CANCELLED"]
    assert got[0]["display_name"] == "run-d1" and got[0]["end_time"].startswith("2023-11-14T22:15:00")
    have = series(shared_service, jobs[0])
    assert have["loss"] == {step: step / 2 for step in range(10)} and math.isnan(float(have["bad"][3]))
    events = {event["kind"]: event["message"] for event in shared_service.json("events", jobs[0])["events"]}
    assert events["parameters"] == "lr=0.1" and events["tags"] == "experiment=it's, team=blue"
    said = shared_service.cli("import", "mlflow", path)
    assert said.stdout.count("nothing to add") == 3 and "1 runs have not ended" in said.stderr
    assert len(imported(shared_service, path, "--experiment", "it's", source="mlflow")) == 1
    assert len(imported(shared_service, path, "--experiment", "0", source="mlflow")) == 2
    assert shared_service.cli("import", "mlflow", path, "--experiment", "none", status=4).stderr


def test_a_database_that_is_not_one_of_mlflow_or_is_damaged_is_refused(shared_service, tmp_path):
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (a)").connection.commit()
    said = shared_service.cli("import", "mlflow", tmp_path / "other.db", status=2).stderr
    assert "cannot be read as a database of MLflow: no such table: runs" in said
    write_database(tmp_path / "torn.db", [("e1", "FINISHED", 1700000100000, "active", 1)]).close()
    data = (tmp_path / "torn.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    assert "cannot be read" in shared_service.cli("import", "mlflow", tmp_path / "torn.db", status=2).stderr
    (tmp_path / "text").write_text("no database")
    assert "neither a folder nor a database" in shared_service.cli("import", "mlflow", tmp_path / "text", status=2).stderr


# ---- MLflow's client ----

WRITES_MLRUNS = """
import mlflow, sys
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("real")
with mlflow.start_run(run_name="client"):
    mlflow.log_param("lr", 0.1)
    for step in range(50):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
"""


@pytest.mark.parametrize("store", ["folder", "database"])
@pytest.mark.parametrize("python", pythons("mlflow"))
def test_what_mlflows_client_writes_is_imported(shared_service, tmp_path, python, store):
    if store == "database" and subprocess.run([python, "-c", "import mlflow.store.tracking.sqlalchemy_store"],
                                              stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"MLflow of {python} cannot use its database: another version of SQLAlchemy is installed")
    path = tmp_path / ("mlruns" if store == "folder" else "mlflow.db")
    uri = f"file://{path}" if store == "folder" else f"sqlite:///{path}"
    subprocess.run([python, "-c", WRITES_MLRUNS, uri], check=True, cwd=tmp_path,
                   env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MLFLOW_ALLOW_FILE_STORE": "true"})
    answer, = imported(shared_service, path, source="mlflow")
    job = answer["job"].split("/")[1]
    assert series(shared_service, job) == {"loss": {step: 1 / (step + 1) for step in range(50)}}
    assert shared_service.json("get", job)["display_name"] == "client"
