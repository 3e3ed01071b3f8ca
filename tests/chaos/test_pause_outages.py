"""Whatever dies while a job is PAUSING, it becomes PAUSED, says what is kept, and goes on from there."""

import contextlib
import os
import re
import signal
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, process_start_time, wait_until

ENDLESS = 1_000_000


def kill(pid):
    start = process_start_time(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_start_time(pid) != start, 5, "the victim is gone")


@pytest.fixture
def pausing(service, tiny):
    """A gang of two with a checkpoint is PAUSING, held there by a rank that stands still: (job, watch, its pid)."""
    job = service.submit(tiny(steps=ENDLESS, data=2, every=10, width=64, retry__max_restarts=0))
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
        pid = service.worker_pids(job)[1][0]
        os.kill(pid, signal.SIGSTOP)
        service.cli("pause", job)
        watch.until_state("PAUSING")
        yield job, watch, pid


def goes_on(service, job, watch):
    """From its newest checkpoint, though no restart was left; where that is."""
    newest = max(int(c["step"]) for c in service.json("checkpoints", job)["checkpoints"] if c["state"] == "COMMITTED")
    service.cli("resume", job)
    watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == 2, 60, "attempt 2")
    watch.until_step(newest + 5)
    now = service.json("get", job)
    assert now["attempt"] == 2 and int(now.get("restarts", 0)) == 0
    assert int(now["attempts"][1]["from_step"]) == newest
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    return newest


def test_the_controller_is_killed_and_no_step_is_lost(service, pausing):
    job, watch, rank = pausing
    kill(service.pid_of("trainyard-controller"))
    with contextlib.suppress(ProcessLookupError):  # after half a minute's stall it was killed for its silence
        os.kill(rank, signal.SIGCONT)
    message = watch.until_state("PAUSED")["message"]
    after = re.fullmatch(r"paused by its user after step (\d+)", message)
    assert after or "no sign of life" in message, message
    newest = goes_on(service, job, watch)
    assert not after or newest == int(after[1])


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_what_runs_it_is_killed_and_it_is_paused_all_the_same(service, pausing, victim):
    job, watch, rank = pausing
    kill(rank if victim == "worker" else service.pid_of("trainyard-executor"))
    message = watch.until_state("PAUSED")["message"]
    step = re.match(r"paused by its user(?: after|; it will go on from) step (\d+)", message)
    assert step, message
    assert goes_on(service, job, watch) == int(step[1])


def test_who_waits_for_a_pause_is_told_that_the_job_was_cancelled_meanwhile(service, tiny):
    """The cancel does not wait for the checkpoint of the pause, which a rank that stands still will not write."""
    job = service.submit(tiny(steps=ENDLESS, data=2, every=0, width=64))
    with service.watch(job) as watch:
        watch.until_step(5)
        os.kill(service.worker_pids(job)[1][0], signal.SIGSTOP)
        waits = subprocess.Popen([BIN / "trainyard", "pause", job, "--wait"], env=service.environment(), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        watch.until_state("PAUSING")
        service.cli("cancel", job)
        out, err = waits.communicate(timeout=60 * PATIENCE)
    assert (waits.returncode, out) == (3, f"{job} CANCELLED\n"), err
    assert "cancelled by its user" in err


def test_who_waits_for_a_pause_is_told_that_the_job_was_resumed_meanwhile(service, tiny):
    """Its slots are in use again: a script that goes on when they are free must not."""
    job = service.submit(tiny(steps=ENDLESS, data=2, every=0, width=64))
    with service.watch(job) as watch:
        watch.until_step(5)
        rank = service.worker_pids(job)[1][0]
        os.kill(rank, signal.SIGSTOP)
        waits = subprocess.Popen([BIN / "trainyard", "pause", job, "--wait"], env=service.environment(), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        watch.until_state("PAUSING")
        os.kill(waits.pid, signal.SIGSTOP)  # it sees nothing of what follows
        with contextlib.suppress(ProcessLookupError):  # killed for its silence
            os.kill(rank, signal.SIGCONT)
        watch.until_state("PAUSED")
        service.cli("resume", job)
        os.kill(waits.pid, signal.SIGCONT)
        out, err = waits.communicate(timeout=60 * PATIENCE)
        assert (waits.returncode, out) == (1, ""), err
        assert f"somebody resumed job {job} meanwhile" in err
        service.cli("cancel", job)
        service.wait_end(job, "CANCELLED")
