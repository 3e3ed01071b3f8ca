"""Hosts that are taken out of use and given back, as an operator does it."""

import os
import signal

from service_fixture import wait_until

ENDLESS = 1_000_000


def hosts(service):
    return {x["name"].split("/")[1]: x for x in service.json("executors")["executors"]}


def host_of(service, job):
    """Where the newest attempt's only rank is."""
    return service.json("get", job)["attempts"][-1]["placements"][0]["executor"].split("/")[1]


def endless(tiny, **more):
    """It makes no checkpoint but one that it is asked for, and its learning rate does not depend on its end."""
    return tiny(steps=ENDLESS, every=ENDLESS, train__learning_rate_schedule={"constant": {}}, **more)


def test_the_next_job_goes_to_another_host_until_the_host_is_undrained(two_hosts, tiny):
    first, second = sorted(hosts(two_hosts))
    said = two_hosts.cli("drain", first, "--reason", "new disk").stdout
    assert said == f"{first} DRAINED, 0 of 1 slots in use\n"
    for _ in range(2):
        job = two_hosts.submit(tiny(steps=3))
        two_hosts.wait_end(job)
        assert host_of(two_hosts, job) == second
    gang = two_hosts.submit(tiny(steps=3, data=2))
    wait_until(lambda: "1 more is drained: executor " + first + " (new disk)" in two_hosts.json("get", gang).get("reason", ""),
               60, "the gang says why it waits")
    job = two_hosts.submit(tiny(steps=3))
    two_hosts.wait_end(job)  # it is not held up by who waits for a person

    assert two_hosts.cli("undrain", first).stdout.startswith(f"{first} ATTACHED, "), "the gang may be there already"
    two_hosts.wait_end(gang)


def test_a_mark_says_who_set_it_when_and_why_and_stands_over_starts_of_the_host(two_hosts, tiny):
    first, second = sorted(hosts(two_hosts))
    drained = two_hosts.json("drain", first, "--reason", "new disk")
    assert drained["state"] == "DRAINED" and drained["drain"]["reason"] == "new disk"
    assert drained["drain"]["requester"] and drained["drain"]["time"] and not drained["drain"]["now"]
    assert "drain" not in hosts(two_hosts)[second]
    assert two_hosts.json("drain", "executors/" + first)["drain"] == drained["drain"], "done again it changes nothing"
    row = next(line for line in two_hosts.cli("executors").stdout.splitlines() if line.startswith(first))
    assert "DRAINED" in row and f"by {drained['drain']['requester']}: new disk" in row

    before = {name: x["attach_time"] for name, x in hosts(two_hosts).items()}
    for pid in [two_hosts.pid_of("trainyard-executor", index) for index in (0, 1)]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(x["attach_time"] != before[name] for name, x in hosts(two_hosts).items()), 60,
               "both executors have started again")
    assert hosts(two_hosts)[first]["drain"] == drained["drain"] and hosts(two_hosts)[first]["state"] == "DRAINED"
    job = two_hosts.submit(tiny(steps=3))
    two_hosts.wait_end(job)
    assert host_of(two_hosts, job) == second


def test_what_runs_there_may_end_there(two_hosts, tiny):
    job = two_hosts.submit(endless(tiny))
    with two_hosts.watch(job) as watch:
        watch.until_step(1)
        host = host_of(two_hosts, job)
        assert two_hosts.cli("drain", host).stdout == f"{host} DRAINING, 1 of 1 slots in use\n"
        step = int(two_hosts.json("get", job)["step"])
        watch.until_step(step + 10)
    assert two_hosts.json("get", job)["attempt"] == 1
    two_hosts.cli("cancel", job)
    two_hosts.wait_end(job, "CANCELLED")
    assert hosts(two_hosts)[host]["state"] == "DRAINED"


def test_a_job_that_must_leave_loses_no_step_and_no_restart_and_keeps_its_bits(two_hosts, tiny):
    """Sent from one host to the other and back, it has the weights of one that was left alone."""
    job = two_hosts.submit(endless(tiny))
    homes, begun = [], []
    with two_hosts.watch(job) as watch:
        watch.until_step(1)
        for attempt in (1, 2):
            homes.append(host_of(two_hosts, job))
            seen = max(int(u.get("progress", {}).get("step", 0)) for u in watch.seen)
            two_hosts.cli("drain", homes[-1], "--now", "--wait", "--reason", "new disk")
            wait_until(lambda: two_hosts.json("get", job)["attempt"] == attempt + 1, 60, "the next attempt")
            begun.append(int(two_hosts.json("get", job)["attempts"][-1]["from_step"]))
            assert begun[-1] >= seen, "whatever was done before the drain is kept"
            watch.until_step(begun[-1] + 1)
            two_hosts.cli("undrain", homes[-1])
    now = two_hosts.json("get", job)
    assert homes[0] != homes[1] and now["attempt"] == 3 and int(now.get("restarts", 0)) == 0
    assert 0 < begun[0] < begun[1]
    two_hosts.cli("cancel", job)
    two_hosts.wait_end(job, "CANCELLED")
    states = [e["state"] for e in two_hosts.json("events", job)["events"]]
    assert states.count("PREEMPTING") >= 2 and "RESTARTING" not in states
    kept = {int(c["step"]): c for c in two_hosts.json("checkpoints", job)["checkpoints"]}
    assert set(begun) <= set(kept), "each attempt began with what the one before it wrote as it left"

    alone = two_hosts.submit(endless(tiny), "--set", f"train.steps={begun[1]}")
    assert two_hosts.wait_end(alone)["weights_sha256"] == kept[begun[1]]["weights_sha256"]


def test_a_gang_leaves_as_a_whole_and_waits_for_the_host(two_hosts, tiny):
    job = two_hosts.submit(endless(tiny, data=2))
    with two_hosts.watch(job) as watch:
        watch.until_step(1)
        host = sorted(hosts(two_hosts))[0]
        two_hosts.cli("drain", host, "--now", "--wait")
        watch.until_event("waiting")
        two_hosts.cli("undrain", host)
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and int(u["event"]["attempt"]) == 2, 60,
                    "it runs again")
    now = two_hosts.json("get", job)
    assert int(now.get("restarts", 0)) == 0 and int(now["attempts"][-1]["from_step"]) > 0
    two_hosts.cli("cancel", job)
    two_hosts.wait_end(job, "CANCELLED")


def test_the_only_executor_of_a_host_goes_by_the_hosts_name(shared_service):
    name, host = next((name, x["hostname"]) for name, x in hosts(shared_service).items())
    assert shared_service.cli("drain", host, "-o", "name").stdout == f"executors/{name}\n"
    assert shared_service.cli("undrain", host, "-o", "name").stdout == f"executors/{name}\n"


def test_of_two_executors_on_a_host_one_must_be_named(two_hosts):
    host = next(iter(hosts(two_hosts).values()))["hostname"]
    assert "has several executors" in two_hosts.cli("drain", host, status=2).stderr
    assert not any("drain" in x for x in hosts(two_hosts).values())


def test_an_unknown_host_is_not_found_and_wrong_usage_says_so(shared_service):
    for command in ("drain", "undrain"):
        assert "there is no executor with the id or host name 'nobody'" in shared_service.cli(command, "nobody", status=4).stderr
        assert "executors/nobody does not exist" in shared_service.cli(command, "executors/nobody", status=4).stderr
        shared_service.cli(command, "executors/" + "x" * 300, status=4)
        shared_service.cli(command, "executors/a/b", status=2)
    shared_service.cli("drain", status=2)
    shared_service.cli("drain", "executors/nobody", "--reason", "x" * 501, status=2)
