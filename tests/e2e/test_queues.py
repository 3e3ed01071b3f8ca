"""Queues as a user sees them, over real processes: `trainyard queue`, limits that hold jobs back, and what explains them."""

import json
import os
import signal

from monitored import Monitored


def queues(service):
    return {q["name"]: q for q in service.json("queue", "list")["queues"]}


def state(service, job):
    return service.json("get", job)["state"]


def test_a_queue_is_created_changed_and_deleted(service):
    assert service.cli("queue", "create", "research", "--weight", "3", "--quota-cpu", "1").stdout == "research created\n"
    assert "exists already" in service.cli("queue", "create", "research", status=1).stderr
    service.cli("queue", "set", "research", "--cohort", "lab", "--lend-cpu", "0", "--max-priority", "5")
    settings = queues(service)["research"]["settings"]
    assert (settings["weight"], settings["cohort"], settings["max_priority"]) == (3, "lab", 5)
    assert settings["cpu"] == {"quota": 1, "borrow": -1, "lend": 0, "user": -1}
    rows = service.cli("queue", "list").stdout.splitlines()
    assert rows[1].split() == ["research", "3", "lab", "5", "1+-", "-+-", "0+-", "-+-", "0+0", "0.0+0.0", "yes"]
    service.cli("queue", "set", "research", "--quota-cpu", "none", "--lend-cpu", "none", "--cohort", "none")
    assert queues(service)["research"]["settings"]["cpu"]["quota"] == -1
    for wrong, says in ((("set", "research", "--borrow-cpu", "1"), "set both"),
                        (("set", "research", "--weight", "0"), "settings.weight: 0 is not from 1 to 1000"),
                        (("set", "research"), "no option says what to change"),
                        (("create", "no name"), "is not a name"),
                        (("list", "--weight", "2"), "belong to 'queue create'"),
                        (("set", "research", "--user-cpu", "many"), "is not a number of slots")):
        assert says in service.cli("queue", *wrong, status=2).stderr, wrong
    assert "'nobody' was not created" in service.cli("queue", "set", "nobody", "--weight", "2", status=4).stderr
    service.cli("queue", "delete", "research")
    assert "research" not in queues(service)


def test_jobs_wait_for_the_quota_of_their_queue_and_start_when_it_grows(service, tiny):
    service.cli("queue", "create", "night", "--quota-cpu", "1")
    running = service.submit(tiny(steps=1000000, queue="night"))
    with service.watch(running) as watch:
        watch.until_state("RUNNING")
    waits = service.submit(tiny(steps=1000000, queue="night"))
    explained = service.json("explain", waits)
    assert [r["kind"] for r in explained["reasons"]] == ["QUOTA"]
    assert explained["reasons"][0]["message"] == "needs 1 cpu slot, and queue 'night' uses 1 of its quota of 1"
    assert state(service, waits) == "QUEUED" and explained["slots_free"] == 1
    day = service.submit(tiny(steps=2, queue="day"))  # it holds back no other queue
    service.wait_end(day)
    assert "has jobs that have not ended" in service.cli("queue", "delete", "night", status=1).stderr
    with service.watch(waits) as watch:
        service.cli("queue", "set", "night", "--quota-cpu", "2")
        watch.until_state("RUNNING")
    for job in (running, waits):
        service.cli("cancel", job)
        service.wait_end(job, "CANCELLED")
    service.cli("queue", "delete", "night")


def test_settings_and_limits_of_users_hold_after_a_crash_of_the_controller(service, tiny):
    service.cli("queue", "create", "one", "--user-cpu", "1")
    running = service.submit(tiny(steps=1000000, queue="one"))
    with service.watch(running) as watch:
        watch.until_state("RUNNING")
    os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
    waits, other = service.submit(tiny(steps=2, queue="one")), service.submit(tiny(steps=2, queue="two"))
    service.wait_end(other)
    explained = service.json("explain", waits)
    assert [r["kind"] for r in explained["reasons"]] == ["USER"]
    assert "uses 1 of the 1 of one user in queue 'one'" in explained["reasons"][0]["message"]
    service.cli("cancel", running)
    service.wait_end(running, "CANCELLED")
    service.wait_end(waits)
    service.cli("queue", "delete", "one")


def test_with_fixed_queues_a_job_of_a_queue_that_was_not_created_is_refused(service, tmp_path, tiny):
    fixed = Monitored(service, tmp_path, "fixed", ["--fixed-queues"]).start()
    try:
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps(tiny(steps=2, queue="day")))
        refused = fixed.cli("submit", spec, "--wait-for-hosts", status=None)
        assert refused.returncode != 0 and "queue: 'day' was not created" in refused.stderr
        fixed.cli("queue", "create", "day")
        assert fixed.cli("submit", spec, "--wait-for-hosts").stdout.strip() == "1"
    finally:
        fixed.stop()
