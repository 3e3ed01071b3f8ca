"""The controller or PostgreSQL away: training does not notice, and nothing is lost. SIGSTOP keeps the supervisor from
bringing it back at once, as a machine that hangs would."""

import os
import signal
import statistics
import time

import pytest

from service_fixture import descendants, process_start_time, wait_until

EVERY = 50  # steps between checkpoints
AWAY_S = float(os.environ.get("TRAINYARD_AWAY_S", "40"))  # longer than a lease, and than what makes a hang


def train_slowly(pid, over):
    """Until over() this rank, and with it the other, trains for a tenth of the time: at full pace the two would take both
    processors of a small machine from the tests beside them, all the while."""
    try:
        while not over():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.09)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.waits
@pytest.mark.parametrize("target", ["controller", "postgres"])
def test_training_goes_on_while_it_is_away(service, tiny, target):
    spec = tiny(steps=100000, data=2, every=EVERY, layers=4, width=64)
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
    before = service.json("get", job)
    workers = service.worker_pids(job)
    pid = service.pid_of("trainyard-controller") if target == "controller" else service.postmaster_pid()
    frozen = [pid] + [p for p, line in descendants(pid).items()]
    for p in frozen:
        os.kill(p, signal.SIGSTOP)
    back = time.monotonic() + AWAY_S
    train_slowly(workers[1][0], lambda: time.monotonic() > back)
    for p in reversed(frozen):
        os.kill(p, signal.SIGCONT)
    first = int(before["step"])
    with service.watch(job) as watch:
        watch.until_step(first + 10 * EVERY)  # the spools drain
    last = int(service.json("get", job)["step"])
    assert service.json("get", job)["attempt"] == 1
    assert service.worker_pids(job) == workers, "the same processes"
    for rank in (0, 1):
        series = service.series(job, "memory_bytes", rank)
        assert int(series["points"]) == int(series["last_step"]), f"rank {rank}: every step is there once"
    series = service.series(job, "step_seconds")
    last = int(series["last_step"])
    assert int(series["points"]) == last, "every step is there once"
    longest = [(int(step), value) for step, value in zip(series["step"], series["max"])]
    earlier = [value for step, value in longest if step <= first]
    # A step that waits for who is away takes as long as the outage; one on a busy machine is late by far less.
    allowed = max(AWAY_S / 8, 5 * statistics.median(earlier), max(earlier))
    worst = max(value for step, value in longest if step > first)
    assert worst <= allowed, f"a step took {worst:.3f} s, {allowed:.3f} s are allowed"
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


@pytest.mark.parametrize("target", ["controller", "postgres"])
def test_a_job_that_ends_meanwhile_is_told_as_ended_afterwards(service, tiny, target):
    job = service.submit(tiny(steps=300, data=2, every=100, width=64))
    with service.watch(job) as watch:
        watch.until_step(10)
    workers = service.worker_pids(job)
    pid = service.pid_of("trainyard-controller") if target == "controller" else service.postmaster_pid()
    frozen = [pid] + [p for p, line in descendants(pid).items()]
    for p in frozen:
        os.kill(p, signal.SIGSTOP)
    wait_until(lambda: all(process_start_time(p) != s for p, s in workers.values()), 60, "the workers ended by themselves")
    for p in reversed(frozen):
        os.kill(p, signal.SIGCONT)
    ended = service.wait_end(job)
    assert ended["attempt"] == 1 and int(ended["step"]) == 300
    assert sorted(service.metric(job, "loss")) == list(range(1, 301))
