"""Metrics of programs that were written for an experiment tracker, without a change: TensorBoard's event files."""

import json
import pathlib

import pytest

import event_files
from service_fixture import wait_until

TESTS = str(pathlib.Path(event_files.__file__).parent)
WRITES = f"import os, sys\nsys.path.insert(0, {TESTS!r})\nfrom event_files import *\n"


def program(script, *arguments, ranks=1, environment=None, **more):
    """A job that runs a script of Python."""
    return {"name": "tracking", "program": {"command": ["/usr/bin/python3", "-c", script, *map(str, arguments)],
                                            "environment": environment or {}, **more}, "parallel": {"data": ranks}}


def events(service, job, kind):
    return [event["message"] for event in service.json("events", job)["events"] if event["kind"] == kind]


def points(service, job, name, rank=0):
    """{step: value} of a metric; empty if there is none of this name."""
    found = [s for s in service.json("metrics", job).get("series", [])
             if s["name"] == name and int(s.get("rank", 0)) == rank]
    return dict(zip(map(int, found[0]["step"]), found[0]["mean"])) if found else {}


# ---- TensorBoard's event files ----

@pytest.mark.sanitized
def test_event_files_below_the_working_directory_become_metrics_of_each_rank(shared_service):
    job = shared_service.submit(program(WRITES + """
os.makedirs("runs/now")
with open("runs/now/events.out.tfevents.1", "wb") as f:
    f.write(version())
    for step in range(300):
        f.write(scalar("loss", step, step / 2) + scalar("rank", step, int(os.environ["RANK"])) + image("sample", step))
""", ranks=2))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: step / 2 for step in range(300)}
    for rank in (0, 1):
        assert points(shared_service, job, "rank", rank) == {step: float(rank) for step in range(300)}
    assert [message.split(" are ")[0] for message in events(shared_service, job, "tensorboard_ignored")] == \
        ["300 values in event files"] * 2


def test_points_are_seen_while_the_program_runs_and_a_record_may_arrive_in_two_pieces(shared_service):
    job = shared_service.submit(program(WRITES + """
import time
with open(os.environ["TRAINYARD_TENSORBOARD"] + "/tfevents", "wb", 0) as f:
    whole = scalar("loss", 1, 0.5) + scalar("loss", 2, 0.25)
    f.write(whole[:60]); print("half", flush=True)
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    f.write(whole[60:])
""", shared_service.directory / "go"))
    wait_until(lambda: points(shared_service, job, "loss"), 60, "the first point")
    assert points(shared_service, job, "loss") == {1: 0.5}
    (shared_service.directory / "go").touch()
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {1: 0.5, 2: 0.25}


def test_a_folder_of_the_spec_is_read_once_and_without_the_files_of_earlier_runs(shared_service):
    folder = shared_service.directory / "event files"
    (folder / "run-1").mkdir(parents=True)
    (folder / "run-1/events.out.tfevents.0").write_bytes(event_files.scalar("old", 1, 1.0))
    job = shared_service.submit(program(WRITES + """
attempt = int(os.environ["TRAINYARD_ATTEMPT"])
if os.environ["RANK"] == "0":
    with open(f"{sys.argv[1]}/run-1/events.out.tfevents.{attempt}", "wb") as f:
        for step in range(attempt * 5 - 5, attempt * 5 + 3):
            f.write(scalar("loss", step, attempt))
    if attempt == 1:
        os.kill(os.getpid(), 9)
elif attempt == 1:
    import time
    time.sleep(600)
""", folder, ranks=2, tensorboard=str(folder)))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {**{s: 1.0 for s in range(5)}, **{s: 2.0 for s in range(5, 13)}}
    assert not points(shared_service, job, "loss", 1) and not points(shared_service, job, "old")


def test_a_corrupt_event_file_is_reported_once_and_the_job_succeeds(shared_service):
    job = shared_service.submit(program(WRITES + """
good = scalar("loss", 1, 0.5)
open("tfevents.1", "wb").write(good + good[:-1] + b"x" + good)
open("tfevents.2", "wb").write(scalar("accuracy", 1, 1.0))
"""))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {1: 0.5} and points(shared_service, job, "accuracy") == {1: 1.0}
    [message] = events(shared_service, job, "tensorboard_file")
    assert message.endswith("tfevents.1' is not read any further: a record is corrupt")


def test_a_million_names_are_refused_by_two_events_and_harm_no_other_job(shared_service):
    job = shared_service.submit(program(
        'import os\nwith open(os.environ["TRAINYARD_METRICS"], "w") as f:\n'
        '  for i in range(1000000): f.write(\'{"step": 1, "m%d": 1}\\n\' % i)\n'))
    after = shared_service.submit(program(
        'import os; open(os.environ["TRAINYARD_METRICS"], "w").write(\'{"step": 1, "loss": 2}\\n\')'))
    shared_service.wait_end(after)
    assert points(shared_service, after, "loss") == {1: 2.0}
    shared_service.wait_end(job)
    refused = events(shared_service, job, "metric_refused")
    assert len(refused) == 2 and refused[1] == "999040 points of further metrics were not stored", refused
    assert points(shared_service, job, "m959") == {1: 1.0} and not points(shared_service, job, "m960")


@pytest.mark.parametrize("path", ["relative", "./x"])
def test_the_folder_of_event_files_is_an_absolute_path(shared_service, path):
    spec = shared_service.directory / "refused.json"
    spec.write_text(json.dumps(program("pass", tensorboard=path)))
    assert f"program.tensorboard: '{path}' is not an absolute path" in shared_service.cli("validate", spec, status=2).stderr
