"""Why a job waits, as a user hears it, over real processes: `trainyard explain`, and what `trainyard queues` counts meanwhile."""

import os
import signal

import pytest


@pytest.fixture
def held(service, tiny):
    """A service whose two slots are held by a job that runs until it is cancelled."""
    job = service.submit(tiny(steps=1000000, data=2, queue="night"))
    with service.watch(job) as watch:
        watch.until_state("RUNNING")
    return service, job


def kinds(explained):
    return [reason["kind"] for reason in explained["reasons"]]


def assert_every_reason_is_whole(explained):
    for reason in explained["reasons"]:
        assert reason["message"] and not reason["message"].endswith("."), reason
        assert reason["remedy"] and not reason["remedy"].endswith("."), reason


def test_a_job_of_four_ranks_on_two_slots_is_told_what_is_missing(service, tiny):
    job = service.submit(tiny(steps=2, data=4))
    explained = service.json("explain", job)
    assert explained["state"] == "QUEUED"
    assert kinds(explained) == ["TOO_WIDE"]
    assert explained["reasons"][0]["message"] == "needs 4 cpu slots, more than the 2 of all attached executors"
    assert "2 more cpu slots" in explained["reasons"][0]["remedy"]
    assert [e["verdict"] for e in explained["executors"]] == ["TAKES"]
    assert_every_reason_is_whole(explained)
    text = service.cli("explain", job).stdout
    assert text.startswith(f"job {job} is QUEUED: waits for 4 cpu slots, more than executors offer it\n"
                           "1. needs 4 cpu slots, more than the 2 of all attached executors\n   -> "), text
    assert "2 of 2 slots are free" in text
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    assert service.cli("explain", job).stdout == \
        f"job {job} is CANCELLED: has ended at step 0 of 2: cancelled while it was queued\n"


def test_jobs_behind_one_that_runs_are_told_their_turn_and_who_has_the_slots(held, tiny):
    service, running = held
    first, second = service.submit(tiny(steps=2, priority=3)), service.submit(tiny(steps=2))
    explained = service.json("explain", second)
    assert kinds(explained) == ["ORDER", "BUSY"]
    assert explained["reasons"][0]["message"].startswith(f"waits behind job {first} (priority 3), which needs 1 cpu slot")
    assert (explained["position"], explained["waiting"]) == (2, 2)
    holder, = explained["holders"]
    assert (holder["job"], holder["state"], holder["slots"]) == (f"jobs/{running}", "RUNNING", 2)
    assert holder["since"] and holder["steps"] == "1000000"
    assert_every_reason_is_whole(explained)
    assert kinds(service.json("explain", first)) == ["BUSY"]
    assert "tiny" in service.cli("explain", first).stdout

    runs = service.json("explain", running)
    assert runs["state"] == "RUNNING" and runs["reasons"] == [] and "step" in runs["summary"]
    queues = {q["name"]: q for q in service.json("queues")["queues"]}
    assert (queues["night"]["waiting"], queues["night"]["running"], queues["night"]["cpu_slots_used"]) == ("0", "1", "2")
    assert (queues["default"]["waiting"], queues["default"]["cpu_slots_wanted"]) == ("2", "2")
    assert queues["default"]["oldest_waiting"] == f"jobs/{first}"
    rows = service.cli("queues").stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["QUEUE", "WAITING"], ["default", "2"], ["night", "0"]]
    assert service.cli("queues", "-o", "name").stdout.split() == ["default", "night"]
    service.cli("cancel", running)
    for job in (first, second):
        service.wait_end(job)
    assert service.json("queues")["queues"] == []
    assert "has ended after its 2 steps" in service.cli("explain", second).stdout


def test_a_job_for_gpus_on_a_host_without_hears_what_the_host_says_of_itself(service, tiny):
    own, = service.json("executors")["executors"]
    if any(d["kind"] == "cuda" for d in own.get("devices", [])):
        pytest.skip("this host has a GPU")
    job = service.submit(tiny(steps=2, resources={"accelerator": "cuda"}))
    explained = service.json("explain", job)
    assert kinds(explained) == ["NO_SLOTS"]
    verdict, = explained["executors"]
    assert verdict["verdict"] == "WITHOUT" and verdict["message"] == own["reason"]
    assert "resources.accelerator: cpu" in explained["reasons"][0]["remedy"]
    assert own["reason"] in service.cli("explain", job).stdout


def test_a_job_in_backoff_is_told_until_when_and_what_it_died_of(service, tiny):
    job = service.submit(tiny(steps=1000000, data=1, retry={"max_restarts": 50}))
    with service.watch(job) as watch:
        # Each failure doubles the delay: the first ones may be over before they are seen.
        for _ in range(8):
            watch.until_event("state_changed", 60, state="RUNNING")
            (pid, _), = service.worker_pids(job).values()
            os.kill(pid, signal.SIGKILL)
            watch.until_event("rank_ended")
            while (explained := service.json("explain", job))["state"] not in ("STARTING", "RUNNING"):
                if kinds(explained)[:1] == ["BACKOFF"]:
                    break
            if kinds(explained)[:1] == ["BACKOFF"]:
                break
    reason = explained["reasons"][0]
    assert reason["until"] and "killed by signal 9" in reason["message"], reason
    assert_every_reason_is_whole(explained)


def test_a_job_that_is_not_there_is_not_explained(shared_service):
    assert "does not exist" in shared_service.cli("explain", 999, status=4).stderr
    assert shared_service.cli("queues", "-o", "yaml").stdout.strip() == "queues: []\nnext_page_token: \"\""
