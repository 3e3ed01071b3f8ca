"""Whatever is killed, the job ends SUCCEEDED with the bits of the run that nobody touched."""

import os
import random
import signal

import pytest

from kills import TARGETS, judge, run_job_with_a_kill

SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))


def long_enough(tiny):
    """Steps of a few ms: long enough that a kill in the first quarter finds the job RUNNING."""
    return tiny(steps=1600, data=2, every=100, layers=2, width=64, retry__max_restarts=5)


@pytest.fixture(scope="module")
def untouched(shared_service, tiny):
    return shared_service.wait_end(shared_service.submit(long_enough(tiny)))["weights_sha256"]


@pytest.mark.parametrize("target", [*TARGETS, "any"])
def test_a_killed_part_changes_no_bit(shared_service, tiny, untouched, target):
    draw = random.Random(f"{SEED}/{target}")
    if target == "any":
        target = draw.choice(TARGETS)
    seed = draw.randrange(1 << 31)
    print(f"TRAINYARD_SEED={SEED}: {target}, seed {seed}")
    ended, facts = run_job_with_a_kill(shared_service, long_enough(tiny), target, seed)
    judge(shared_service, ended, facts, untouched)
    events = shared_service.json("events", ended["name"])["events"]
    assert not [event["message"] for event in events if event["kind"] == "not_repeatable"]


def test_a_job_that_keeps_dying_fails_with_the_cause(service, tiny):
    """max_restarts bounds the attempts, and the sentence names the signal, not its echo in the other rank."""
    spec = tiny(steps=100000, data=2, every=0, retry__max_restarts=1)
    job = service.submit(spec)
    with service.watch(job) as watch:
        for attempt in (1, 2):
            watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == attempt,
                        60, f"attempt {attempt} running")
            os.kill(service.worker_pids(job)[1][0], signal.SIGKILL)
    ended = service.wait_end(job, "FAILED")
    assert ended["attempt"] == 2
    assert "rank 1" in ended["reason"] and ("SIGKILL" in ended["reason"] or "signal 9" in ended["reason"]), ended["reason"]


def test_a_failed_job_goes_on_after_retry(service, tiny):
    spec = tiny(steps=100000, data=2, every=20, width=64, retry__max_restarts=0)  # it never ends of itself
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
        os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    service.wait_end(job, "FAILED")
    service.cli("retry", job)
    with service.watch(job) as watch:
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == 2, 60, "attempt 2")
        from_step = int(service.json("get", job)["attempts"][1]["from_step"])
        assert from_step >= 20
        watch.until_step(from_step + 20)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


@pytest.mark.waits
def test_a_stopped_worker_is_a_hang_and_is_replaced(service, tiny):
    """SIGSTOP: no exit to see, only progress that stays away. Known within 30 s."""
    job = service.submit(tiny(steps=100000, data=2, every=50, width=64))
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
        os.kill(service.worker_pids(job)[1][0], signal.SIGSTOP)
        event = watch.until_state("RESTARTING", 45)
    assert "progress" in event["message"] or "rank" in event["message"], event
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
