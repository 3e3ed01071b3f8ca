"""What stands still for a while and is not gone: a disk below the executor, a database. Nothing is restarted, nothing is
lost, and who asks waits. Nothing here is measured: what stands still goes on when the service has noticed."""

import os
import signal
import subprocess

import pytest

from kills import event_time
from service_fixture import BIN, descendants, wait_until

LEASE_S = 10


def open_pipe(path):
    """Nothing is written there until somebody reads: to whoever opens it, a disk that stands still."""
    os.mkfifo(path)

    def read_all():
        with open(path, "rb") as reader:
            reader.read()
    return read_all


def heard(service):
    """When the only executor was heard of last, as its row has it."""
    executor, = service.json("executors")["executors"]
    assert executor["state"] == "ATTACHED", executor
    return event_time(executor["heartbeat_time"])


@pytest.mark.waits
def test_an_executor_whose_disk_stands_still_for_longer_than_a_lease_keeps_its_attempt(service, tiny):
    disk_goes_on = open_pipe(service.directory / "executors" / "1" / "attempt.new")
    job = service.submit(tiny(steps=20, data=2))
    with service.watch(job) as watch:
        watch.until_state("STARTING")
    begun = heard(service)
    wait_until(lambda: heard(service) > begun + LEASE_S + 1, 90, "heartbeats for longer than a lease")
    assert service.json("get", job)["state"] == "STARTING", "the workers wait for their record"
    disk_goes_on()
    ended = service.wait_end(job)
    assert ended["attempt"] == 1 and len(ended["attempts"]) == 1


class Frozen:
    """PostgreSQL, all of it, from here to the end of the block."""

    def __init__(self, service):
        postmaster = service.postmaster_pid()
        self.pids = [postmaster, *descendants(postmaster)]

    def __enter__(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_):
        for pid in reversed(self.pids):
            os.kill(pid, signal.SIGCONT)


def locks_lost(service):
    """How often the controller has given up a connection that did not answer: after eight seconds."""
    return (service.directory / "logs" / "controller.log").read_text().count(" leader_lock_lost ")


@pytest.mark.waits
def test_a_database_that_stands_still_restarts_no_attempt(service, tiny):
    """Jobs wait, start, run and end meanwhile; each time the controller leads under another epoch afterwards."""
    jobs = []
    for steps in (100, 400):
        jobs.append(service.submit(tiny(steps=steps, every=50)))
        jobs.append(service.submit(tiny(steps=steps, data=2, every=50)))
        before = locks_lost(service)
        with Frozen(service):
            wait_until(lambda: locks_lost(service) > before, 60, "the controller misses its database")
    for job in jobs:
        ended = service.wait_end(job)
        assert ended["attempt"] == 1 and len(ended["attempts"]) == 1, ended["attempts"]
        steps = int(ended["spec"]["train"]["steps"])
        assert sorted(service.metric(job, "loss")) == list(range(1, steps + 1))


@pytest.mark.waits
def test_commands_wait_for_a_database_that_stands_still(service, tiny):
    job = service.submit(tiny(steps=20))
    service.wait_end(job)
    with Frozen(service):
        asked = {words: subprocess.Popen([BIN / "trainyard", *words], env=service.environment(), text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for words in (("get", job), ("list",), ("watch", job), ("logs", job),
                               ("submit", service.directory / "submitted.json"))}
        for words, process in asked.items():
            said = process.stderr.readline()
            assert "waiting for it" in said, f"{words}: {said}"
    answers = {words[0]: process.communicate(timeout=300)[0] for words, process in asked.items()}
    assert {words[0]: process.returncode for words, process in asked.items()} == dict.fromkeys(answers, 0)
    assert "finished after step 20" in answers["logs"]
    service.wait_end(answers["submit"].strip())
    assert len(service.json("list")["jobs"]) == 2, "what was asked for again happened once"
