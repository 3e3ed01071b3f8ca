"""The controller dies after a drain, and in its midst: the host is still drained, and what had to leave it has left."""

import os
import signal
import subprocess

from service_fixture import BIN, PATIENCE, process_start_time, wait_until

ENDLESS = 1_000_000


def hosts(service):
    return {x["name"].split("/")[1]: x for x in service.json("executors")["executors"]}


def host_of(service, job):
    return service.json("get", job)["attempts"][-1]["placements"][0]["executor"].split("/")[1]


def kill_controller(service):
    pid = service.pid_of("trainyard-controller")
    start = process_start_time(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_start_time(pid) != start, 30, "the controller is gone")


def test_a_host_is_still_drained_for_the_next_controller(two_hosts, tiny):
    first, second = sorted(hosts(two_hosts))
    mark = two_hosts.json("drain", first, "--reason", "new disk")["drain"]
    kill_controller(two_hosts)
    job = two_hosts.submit(tiny(steps=3))
    two_hosts.wait_end(job)
    assert host_of(two_hosts, job) == second
    assert hosts(two_hosts)[first]["state"] == "DRAINED" and hosts(two_hosts)[first]["drain"] == mark


def test_what_had_to_leave_leaves_though_the_controller_dies_meanwhile(two_hosts, tiny):
    """Killed as soon as the mark is stored: the order to stop may have gone out, or not."""
    job = two_hosts.submit(tiny(steps=ENDLESS, every=ENDLESS))
    with two_hosts.watch(job) as watch:
        watch.until_step(1)
        host = host_of(two_hosts, job)
        two_hosts.cli("drain", host, "--now")
        kill_controller(two_hosts)
        wait_until(lambda: two_hosts.json("get", job)["attempt"] == 2, 60, "the next attempt")
        begun = int(two_hosts.json("get", job)["attempts"][-1]["from_step"])
        seen = max(int(u.get("progress", {}).get("step", 0)) for u in watch.seen)
        assert begun >= seen > 0, "it goes on from the checkpoint that it wrote as it left"
        watch.until_step(begun + 1)
    now = two_hosts.json("get", job)
    assert int(now.get("restarts", 0)) == 0 and host_of(two_hosts, job) != host
    two_hosts.cli("cancel", job)
    two_hosts.wait_end(job, "CANCELLED")


def test_who_waits_for_a_drain_outlasts_a_controller_that_is_away(two_hosts, tiny):
    """For longer than a question is asked again; `up`, which would start the next controller, stands still meanwhile."""
    job = two_hosts.submit(tiny(steps=ENDLESS, every=0))
    with two_hosts.watch(job) as watch:
        watch.until_step(1)
    host = host_of(two_hosts, job)
    waits = subprocess.Popen([BIN / "trainyard", "drain", host, "--wait"], env=two_hosts.environment(), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert waits.stderr.readline() == f"{host}: 1 rank left\n"
    controller = two_hosts.pid_of("trainyard-controller")
    os.kill(two_hosts.up.pid, signal.SIGSTOP)
    try:
        os.kill(controller, signal.SIGKILL)
        two_hosts.cli("get", job, status=5)
        assert waits.stderr.readline().endswith("; waiting for it\n")
    finally:
        os.kill(two_hosts.up.pid, signal.SIGCONT)
    two_hosts.cli("cancel", job)
    out, err = waits.communicate(timeout=120 * PATIENCE)
    assert waits.returncode == 0, err
    assert out.startswith(f"{host} DRAINED, 0 of "), out
    two_hosts.cli("undrain", host)
