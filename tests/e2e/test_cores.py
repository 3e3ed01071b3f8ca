"""A rank computes on the cores that are free: all of them while it is alone, its share while others run, and all again; `submit`,
`get` and `executors` say how many; and its weights do not show any of it."""

import json
import os
import re
import socket

import pytest

from service_fixture import Service, wait_until


@pytest.fixture(scope="module")
def three_cores(tmp_path_factory):
    """As many as it may use, however many there are. (OpenMP keeps the second thread of a team of one.)"""
    service = Service(tmp_path_factory.mktemp("cores") / "service", executors=1, slots=2)
    service.arguments += ["--cores", "3"]
    service.start()
    yield service
    service.stop()


def placements(service, job):
    attempts = service.json("get", job).get("attempts", [])
    return attempts[-1]["placements"] if attempts else []


def threads(service, job):
    return [p.get("threads", 0) for p in placements(service, job)]


def tasks(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.fixture
def shareable(tiny):
    """A model whose operations have work for three threads; a rate that does not depend on how many steps there will be."""
    def make(steps):
        return tiny(steps=steps, layers=1, width=128, every=20, train__global_batch=16, train__micro_batch=16, train__lanes=1,
                    train__learning_rate_schedule={"constant": {}})
    return make


def test_a_rank_gives_a_core_up_and_gets_it_back_with_the_same_weights(three_cores, shareable, tiny):
    service = three_cores
    job = service.submit(shareable(10**6))
    wait_until(lambda: threads(service, job) == [3], 30, "all cores")
    pid = int(placements(service, job)[0]["pid"])
    wait_until(lambda: int(service.json("get", job).get("step", 0)) > 0, 30, "steps")
    alone = tasks(pid)

    other = service.submit(tiny(steps=10**6))
    wait_until(lambda: threads(service, job) == [2] and threads(service, other) == [1], 30, "two cores and one")
    wait_until(lambda: tasks(pid) == alone - 1, 30, "a thread less")
    assert "2 cores)" in service.cli("get", job).stdout

    service.cli("cancel", other)
    wait_until(lambda: threads(service, job) == [3], 30, "all cores again")
    wait_until(lambda: tasks(pid) == alone, 30, "a thread more")

    def told():
        return re.findall(r"step (\d+): computes with (\d) threads from here on", service.cli("logs", job).stdout)
    changes = wait_until(lambda: told() if len(told()) == 2 else None, 30, "both changes in the log")
    assert [n for _, n in changes] == ["2", "3"]

    def later():
        return next((c for c in service.json("checkpoints", job).get("checkpoints", [])
                     if c["state"] == "COMMITTED" and int(c["step"]) > int(changes[1][0])), None)
    checkpoint = wait_until(later, 60, "a checkpoint behind both changes")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    undisturbed = service.wait_end(service.submit(shareable(int(checkpoint["step"]))))
    assert checkpoint["weights_sha256"] == undisturbed["weights_sha256"]


def test_submit_says_how_many_cores_each_rank_has(three_cores, tiny, tmp_path):
    """A host may be so busy that a rank starts too late to be told of: then nothing is said."""
    def told(**spec):
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(tiny(steps=10**6, **spec)))
        for _ in range(10):
            said = three_cores.cli("submit", path)
            job = said.stdout.strip()
            assert job.isdigit()
            three_cores.cli("cancel", job)
            three_cores.wait_end(job, "CANCELLED")
            if said.stderr:
                return said.stderr
        raise AssertionError("ten jobs took half a second to start")
    assert told() == f"1 rank on host {socket.gethostname()}, 3 cores\n"
    assert told(data=2) == f"2 ranks on host {socket.gethostname()}, 1 core each\n"
    head, row = three_cores.cli("executors").stdout.splitlines()
    assert row[head.index("CORES"):].split()[0] == "3"
    assert row[head.index("DEVICES"):] == "none"
    assert three_cores.json("executors")["executors"][0]["reason"].startswith("no NVIDIA driver: ")


def test_executors_of_one_machine_share_its_cores(two_hosts):
    cores = sorted(x["cores"] for x in two_hosts.json("executors")["executors"])
    assert len(cores) == 2 and cores[1] - cores[0] <= 1
    assert sum(cores) <= max(2, len(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def own_cores(tmp_path_factory):
    """An executor with all cores of this machine, and space for two ranks."""
    service = Service(tmp_path_factory.mktemp("own") / "service", executors=1, slots=2)
    service.start()
    yield service
    service.stop()


def cpus(service, job):
    """Those of every thread of the job's only rank; None while they differ, or there is no rank."""
    try:
        pid = int(placements(service, job)[0]["pid"])
        sets = {frozenset(os.sched_getaffinity(int(task))) for task in os.listdir(f"/proc/{pid}/task")}
    except (IndexError, KeyError, FileNotFoundError, ProcessLookupError):
        return None
    return set(next(iter(sets))) if len(sets) == 1 else None


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_two_ranks_run_on_processors_of_their_own_and_one_alone_on_all(own_cores, tiny):
    service, everything = own_cores, os.sched_getaffinity(0)
    job = service.submit(tiny(steps=10**6))
    wait_until(lambda: cpus(service, job) == everything, 30, "all processors")
    other = service.submit(tiny(steps=10**6))

    def apart():
        one, two = cpus(service, job), cpus(service, other)
        return one and two and not one & two and one | two <= everything
    wait_until(apart, 30, "processors of their own")
    service.cli("cancel", other)
    wait_until(lambda: cpus(service, job) == everything, 30, "all processors again")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_rank_gets_no_more_cores_than_its_spec_wants(three_cores, tiny):
    job = three_cores.submit(tiny(steps=10**6, resources__cores=2))
    wait_until(lambda: threads(three_cores, job) == [2], 30, "two of three cores")
    three_cores.cli("cancel", job)
    three_cores.wait_end(job, "CANCELLED")
