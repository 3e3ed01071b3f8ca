"""An executor that executes its program anew (SIGUSR2), as for an upgrade: its ranks keep running, and their job neither
ends, nor restarts, nor loses or repeats a record."""

import os
import shutil
import signal
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, descendants, make_service, process_start_time, sanitizer_environment, wait_until
from test_programs import log_lines, program

STEPS = 1500


def attach_times(service):
    return {x["name"]: x["attach_time"] for x in service.json("executors")["executors"]}


def restart(service, indices=(0,)):
    """Returns when the executors have attached again, each as the same process."""
    before = attach_times(service)
    pids = [service.pid_of("trainyard-executor", index) for index in indices]
    for pid in pids:
        os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: sum(t != before[n] for n, t in attach_times(service).items()) >= len(pids), 60, "the new attaches")
    below = descendants(service.up.pid)
    assert all("trainyard-executor" in below[pid] for pid in pids)


def assert_undisturbed(service, ended, job, steps):
    assert ended["attempt"] == 1 and int(ended.get("restarts", 0)) == 0
    assert int(service.series(job, "loss")["points"]) == steps, "each loss is stored once"


def running(service, job):
    return service.json("get", job)["state"] == "RUNNING"


def test_a_gang_of_two_hosts_keeps_its_processes_its_losses_and_its_bits(two_hosts, tiny):
    spec = tiny(steps=STEPS, data=2, every=100)
    alone = two_hosts.wait_end(two_hosts.submit(spec))
    job = two_hosts.submit(spec)
    with two_hosts.watch(job) as watch:
        watch.until_step(100)
        workers = two_hosts.worker_pids(job)
        restart(two_hosts, (0, 1))
        assert running(two_hosts, job) and two_hosts.worker_pids(job) == workers
        step = int(two_hosts.json("get", job)["step"])
        watch.until_step(step + 50)
    ended = two_hosts.wait_end(job)
    assert_undisturbed(two_hosts, ended, job, STEPS)
    assert ended["weights_sha256"] == alone["weights_sha256"]
    assert two_hosts.metric(job, "loss") == two_hosts.metric(alone["name"].split("/")[-1], "loss")


def test_twenty_restarts_in_one_job(service, tiny):
    spec = tiny(steps=9000, data=2, every=1000)
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_step(20)
        for _ in range(20):
            restart(service)
        assert running(service, job), "the last restart was within the job"
    assert_undisturbed(service, service.wait_end(job, timeout_s=300), job, 9000)


def test_restarts_while_ranks_start_and_end(service, tiny):
    """Whatever a restart falls into: the job ends as if there had been none."""
    pid = service.pid_of("trainyard-executor")
    for steps in (1, 5, 20, 60, 150, 400):
        job = service.submit(tiny(steps=steps, data=2, every=50))
        for _ in range(3):
            os.kill(pid, signal.SIGUSR2)
        assert_undisturbed(service, service.wait_end(job), job, steps)
    wait_until(lambda: "trainyard-executor" in descendants(service.up.pid).get(pid, ""), 30, "the same process")


def test_a_restart_while_the_controller_is_away(service, tiny):
    job = service.submit(tiny(steps=STEPS, data=2, every=100))
    with service.watch(job) as watch:
        watch.until_step(20)
        workers = service.worker_pids(job)
        log = next(service.directory.glob("**/executor-1.log"))
        controller, pid = service.pid_of("trainyard-controller"), service.pid_of("trainyard-executor")
        os.kill(controller, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGUSR2)
            wait_until(lambda: "restarting" in log.read_text(), 30, "the restart")
        finally:
            os.kill(controller, signal.SIGKILL)
    assert workers
    assert_undisturbed(service, service.wait_end(job), job, STEPS)


def test_a_death_right_after_a_restart_is_a_death_as_ever(service, tiny):
    """The job continues from a checkpoint, and no process stays."""
    job = service.submit(tiny(steps=STEPS, data=2, every=50))
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
        restart(service)
        workers = service.worker_pids(job)
        pid = service.pid_of("trainyard-executor")
        os.kill(pid, signal.SIGUSR2)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(process_start_time(p) != start for p, start in workers.values()), 30, "the ranks' end")
    ended = service.wait_end(job)
    assert ended["attempt"] >= 2
    assert int(service.series(job, "loss")["points"]) == STEPS


@pytest.mark.sanitized
def test_a_program_keeps_its_processes_and_its_output(service, tmp_path):
    enough = tmp_path / "enough"
    tmp_path.chmod(0o755)
    script = (f'i=0; while [ ! -e {enough} ]; do echo "line $i"; printf "half "; i=$((i+1)); sleep 0.05; echo "$i"; done; '
              'echo "end $i"')
    job = service.submit(program(script, ranks=2))
    workers = service.worker_pids(job)
    wait_until(lambda: running(service, job) and service.cli("logs", job).stdout.count("\n") > 10, 60, "its first lines")
    for _ in range(3):
        restart(service)
    assert running(service, job) and service.worker_pids(job) == workers
    enough.touch()
    assert service.wait_end(job)["attempt"] == 1
    lines = log_lines(service, job)
    counts = [int(line.removeprefix("end ")) for line in lines if line.startswith("end ")]
    assert len(counts) == 2 and min(counts) > 5
    expected = [line for n in counts for i in range(n) for line in (f"line {i}", f"half {i + 1}")]
    assert sorted(line for line in lines if not line.startswith("end ")) == sorted(expected)


class Second:
    """A second executor for a service of one slot, whose program is a file that a test replaces."""

    def __init__(self, service, folder):
        self.path, self.log = folder / "trainyard-executor", open(folder / "log", "ab")
        shutil.copy(BIN / "trainyard-executor", self.path)
        roots = [word for word in service.arguments if word.startswith("/")]
        self.process = subprocess.Popen(
            [self.path, "--controller", service.address, "--directory", folder / "executor", "--slots", "1",
             "--worker", BIN / "trainyard-worker", *[word for root in roots for word in ("--data-root", root)],
             "--checkpoint-root", str(service.directory)],
            stdout=self.log, stderr=self.log, env={**service.environment(), **sanitizer_environment(service.reports)})

    def replace(self, text):
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o755)
        os.replace(new, self.path)

    def said(self, text):
        return text in open(self.log.name).read()

    def close(self):
        self.process.terminate()
        self.process.wait(30 * PATIENCE)


@pytest.fixture
def one_slot():
    yield from make_service(executors=1, slots=1)


@pytest.fixture
def second(one_slot, tmp_path):
    other = Second(one_slot, tmp_path)
    yield other
    other.close()


OTHER_VERSION = f"""#!/usr/bin/python3
import os, sys
if sys.argv[1:] != ["--version"]:
    os.pwrite(int(os.environ["TRAINYARD_EXECUTOR_STATE"]), b"\\x08\\x63", 0)
    os.execv("{BIN}/trainyard-executor", ["trainyard-executor", *sys.argv[1:]])
"""


def begun(service, tiny, second):
    """A gang that spans both executors, because each has one slot."""
    wait_until(lambda: len(attach_times(service)) == 2, 60, "both executors")
    job = service.submit(tiny(steps=STEPS, data=2, every=50))
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
    return job


def test_a_program_that_cannot_run_does_not_end_the_ranks(one_slot, tiny, second):
    job = begun(one_slot, tiny, second)
    second.replace("#!/bin/false\n")
    second.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: second.said("not_restarted"), 60, "the refusal")
    assert_undisturbed(one_slot, one_slot.wait_end(job), job, STEPS)


def test_a_state_of_another_version_is_refused_and_the_ranks_end(one_slot, tiny, second):
    job = begun(one_slot, tiny, second)
    second.replace(OTHER_VERSION)
    second.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: second.said("the state that was handed over has version 99, and this program reads version 1"), 60,
               "the sentence")
    ended = one_slot.wait_end(job)
    assert ended["attempt"] == 2 and int(one_slot.series(job, "loss")["points"]) == STEPS
