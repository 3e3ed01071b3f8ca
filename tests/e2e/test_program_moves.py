"""Programs that pause, resume, leave a drained host, fail and are retried, with both launchers: each time they continue
from their checkpoint. Forks and retries of code have their tests in test_program_checkpoints.py and test_program_code.py."""

import json
import os
import pathlib
import signal
import sys

import pytest

from service_fixture import descendants, make_service, process_start_time, wait_until

MOVES = pathlib.Path(__file__).parent / "programs" / "moves.py"
LAUNCHERS = ["ranks", "host"]


def program(launcher, **more):
    environment = {"LAUNCHES": "1" if launcher == "host" else "0", **more.pop("environment", {})}
    return {"name": "moves", "parallel": {"data": 2}, **more,
            "program": {"command": [sys.executable, str(MOVES)], "launcher": launcher, "environment": environment}}


@pytest.fixture
def hosts_of_two():
    """Two executors of two slots each: a gang of two fits on either."""
    yield from make_service(executors=2, slots=2)


def begins(service, job):
    """The steps at which the processes of each attempt began."""
    found = {}
    for page in service.cli("logs", job, "-o", "json").stdout.splitlines():
        for line in json.loads(page)["lines"]:
            if line["text"].startswith("rank "):
                found.setdefault(int(line["attempt"]), []).append(int(line["text"].split()[-1]))
    return found


def until_steps(watch, more):
    """Some steps further than what was seen."""
    seen = max((int(u.get("progress", {}).get("step", 0)) for u in watch.seen), default=0)
    watch.until_step(seen + more)


def assert_each_step_once(service, job):
    shown = service.metric(job, "attempt")
    steps = sorted(shown)
    assert steps == list(range(1, len(steps) + 1))
    assert [shown[step] for step in steps] == sorted(shown.values()), "a later attempt has the later steps"


def end(service, job):
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    assert_each_step_once(service, job)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_paused_program_saves_and_resumes_after_its_last_step(service, launcher):
    job = service.submit(program(launcher))
    with service.watch(job) as watch:
        for attempt in (1, 2):
            until_steps(watch, 12)
            service.cli("pause", job, "--wait")
            last = int(service.json("get", job)["step"])
            service.cli("resume", job)
            watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == attempt + 1,
                        60, "the next attempt")
            wait_until(lambda: len(begins(service, job).get(attempt + 1, [])) == 2, 60, "both processes")
            assert begins(service, job)[attempt + 1] == [last, last]
        until_steps(watch, 5)
    ended = service.json("get", job)
    assert ended["attempt"] == 3 and int(ended.get("restarts", 0)) == 0
    end(service, job)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_program_leaves_a_drained_host_and_loses_no_step(hosts_of_two, launcher):
    service = hosts_of_two
    job = service.submit(program(launcher, retry={"max_restarts": 0}))
    with service.watch(job) as watch:
        until_steps(watch, 12)
        first = service.json("get", job)["attempts"][-1]["placements"][0]["executor"].split("/")[1]
        service.cli("drain", first, "--now", "--wait")
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == 2, 60, "attempt 2")
        wait_until(lambda: len(begins(service, job).get(2, [])) == 2, 60, "both processes")
        placements = service.json("get", job)["attempts"][-1]["placements"]
        assert {p["executor"].split("/")[1] for p in placements}.isdisjoint({first})
        step = begins(service, job)[2][0]
        assert step >= 12 and begins(service, job)[2] == [step, step]
        assert service.metric(job, "attempt")[step] == 1.0
        watch.until_step(step + 5)
    end(service, job)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_failed_program_is_retried_from_its_checkpoint(service, launcher):
    job = service.submit(program(launcher, environment={"FAILS": "1"}, retry={"max_restarts": 0}))
    failed = service.wait_end(job, "FAILED")
    assert "ValueError: a bad batch" in failed["reason"]
    service.cli("retry", job)
    wait_until(lambda: len(begins(service, job).get(2, [])) == 2, 60, "both processes")
    assert begins(service, job)[2] == [10, 10]
    with service.watch(job) as watch:
        watch.until_step(20)
    end(service, job)


@pytest.mark.parametrize("victim", ["a process", "a rank that follows", "the executor"])
def test_a_launched_program_resumes_from_its_checkpoint_after_a_kill(service, victim):
    job = service.submit(program("host"))
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
    ranks = {rank: pid for rank, (pid, _) in service.worker_pids(job).items()}
    processes = {pid: process_start_time(pid) for pid, line in descendants(ranks[0]).items() if "moves.py" in line}
    assert len(processes) == 3
    os.kill({"a process": max(processes), "a rank that follows": ranks[1],
             "the executor": service.pid_of("trainyard-executor")}[victim], signal.SIGKILL)
    wait_until(lambda: len(begins(service, job).get(2, [])) == 2, 60, "both processes of the second attempt")
    step = begins(service, job)[2][0]
    assert step >= 5 and begins(service, job)[2] == [step, step]
    wait_until(lambda: all(process_start_time(pid) != start for pid, start in processes.items()), 30,
               "the end of the first attempt's processes")
    with service.watch(job) as watch:
        watch.until_step(step + 10)
    end(service, job)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_cancel_ends_a_program_whose_checkpoint_is_not_stored_yet(service, launcher):
    """The one that it saves on SIGTERM is stored, or the attempt ends without it; none is half stored."""
    job = service.submit(program(launcher))
    with service.watch(job) as watch:
        watch.until_step(12)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    assert_each_step_once(service, job)
    for row in service.json("checkpoints", job)["checkpoints"]:
        assert row["state"] == "COMMITTED"
        assert service.cli("checkpoint", "verify", row["name"]).returncode == 0


def test_a_fork_of_a_launched_program_begins_with_the_checkpoint_of_its_origin(service):
    spec = program("host")
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
    service.cli("pause", job, "--wait")
    newest = max(int(row["step"]) for row in service.json("checkpoints", job)["checkpoints"])
    fork = service.submit(spec, "--fork", job)
    wait_until(lambda: len(begins(service, fork).get(1, [])) == 2, 60, "both processes of the fork")
    assert begins(service, fork)[1] == [newest, newest]
    for one in (fork, job):
        service.cli("cancel", one)
        service.wait_end(one, "CANCELLED")
