"""Checkpoints in a store: hosts that share no folder train, stop and continue with the same bits, whatever the store does."""

import os
import signal
import threading

import pytest

from object_store import Store, is_put, status
from service_fixture import wait_until
from store_hosts import service_of_hosts, stored

pytestmark = pytest.mark.sanitized
CHECKPOINTS = "/bucket/checkpoints/"


@pytest.fixture(scope="module")
def bits(shared_service, tiny):
    """The weights of the job with files of one host and checkpoints in a folder."""
    return shared_service.wait_end(shared_service.submit(tiny()))["weights_sha256"]


@pytest.fixture
def store(text_file):
    store = Store()
    store.put("/bucket/text", text_file.read_bytes())
    yield store
    store.close()


class Gate:
    """Holds every upload behind the first n until it opens."""

    def __init__(self, store, n):
        self.passed, self.n, self.mutex, self.opened = 0, n, threading.Lock(), threading.Event()
        self.keep = True
        store.faults.append(self)

    def __call__(self, h, method, path, asked):
        with self.mutex:
            self.passed += method == "PUT"
            held = method == "PUT" and self.passed > self.n
        if held:
            self.opened.wait()
        return False


def steps_of(store):
    """{step: names of its objects}"""
    found = {}
    for path in list(store.objects):
        if path.startswith(CHECKPOINTS):
            cluster, job, attempt, step, name = path[len(CHECKPOINTS):].split("/")
            found.setdefault(int(step[5:]), set()).add(name)
    return found


def events(service, job, kind):
    return [e for e in service.json("events", job)["events"] if e["kind"] == kind]


def nothing_left(hosts):
    """The hosts keep copies in their caches, and no step folder."""
    for host in hosts:
        assert not list((host.directory / "own").rglob("*"))
        assert not [path for path in (host.directory / "cache" / "checkpoints").rglob("*") if path.is_file()]


def test_a_job_continues_on_a_host_that_shares_no_folder_with_the_first(store, tiny, bits, tmp_path):
    with service_of_hosts(tmp_path, 2) as (service, hosts):
        gate = Gate(store, 3)
        job = service.submit(stored(tiny(), store.url))
        with service.watch(job) as watch:
            watch.until_event("checkpoint_committed")
        first = service.json("get", job)["attempts"][0]["placements"][0]["executor"]
        next(host for host in hosts if host.id in first).stop()
        gate.opened.set()
        ended = service.wait_end(job)
        assert ended["weights_sha256"] == bits and ended["attempt"] == 2
        assert ended["attempts"][1]["placements"][0]["executor"] != first
        rows = service.json("checkpoints", job)["checkpoints"]
        assert all(row["directory"].startswith("s3://bucket/checkpoints/") for row in rows)
        assert {int(row["step"]) for row in rows} <= set(steps_of(store))
        wait_until(lambda: not [path for host in hosts for path in (host.directory / "cache" / "checkpoints").rglob("step-*")], 30,
                   "the folders of the attempts are removed")
        nothing_left(hosts)


def test_two_hosts_with_a_store_that_fails_give_the_same_bits(store, tiny, bits, tmp_path):
    """A gang of two hosts; refused, late and wrong answers; a rank killed behind a checkpoint."""
    with service_of_hosts(tmp_path, 2) as (service, hosts):
        for fault in (status(503, where=is_put, Retry_After="1"), status(500, where=is_put),
                      status(400, b"<Error><Code>BadDigest</Code></Error>", where=is_put)):
            store.fail(fault, times=2)
        gate = Gate(store, 5)  # after the refusals
        job = service.submit(stored(tiny(data=2), store.url))
        with service.watch(job) as watch:
            watch.until_event("checkpoint_committed")
        os.kill(service.worker_pids(job)[1][0], signal.SIGKILL)
        gate.opened.set()
        ended = service.wait_end(job)
        assert ended["weights_sha256"] == bits and ended["attempt"] == 2
        assert len({p["executor"] for p in ended["attempts"][1]["placements"]}) == 2
        last = steps_of(store)[40]
        assert last == {"rank-0.safetensors", "rank-0.json", "rank-1.safetensors", "rank-1.json", "manifest.json"}


def test_a_refused_upload_is_an_event_and_a_refused_final_one_ends_the_job(store, tiny, bits, tmp_path):
    refused = status(403, b"<Error><Code>AccessDenied</Code></Error>", where=lambda method, path, asked: method == "PUT" and "/step-10/" in path,
                     keep=True)
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        store.faults.append(refused)
        job = service.submit(stored(tiny(), store.url))
        assert service.wait_end(job)["weights_sha256"] == bits
        assert "status 403: AccessDenied" in events(service, job, "checkpoint_failed")[0]["message"] and 10 not in steps_of(store)
        store.faults[:] = [status(403, where=is_put, keep=True)]
        spec = stored(tiny(), store.url)
        spec["retry"] = {"max_restarts": 0}
        assert "status 403" in service.wait_end(service.submit(spec), "FAILED")["reason"]


def test_old_checkpoints_and_deleted_jobs_leave_no_objects(store, tiny, tmp_path):
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        spec = stored(tiny(), store.url)
        spec["checkpoint"]["keep_last"] = 1
        job = service.submit(spec)
        service.wait_end(job)
        wait_until(lambda: set(steps_of(store)) == {40}, 60, "older steps are removed")
        store.put(f"{CHECKPOINTS}other/1/attempt-1/step-1/x", b"of another service")
        service.cli("delete", job)
        wait_until(lambda: [path for path in store.objects if path.startswith(CHECKPOINTS)] == [f"{CHECKPOINTS}other/1/attempt-1/step-1/x"], 90,
                   "its objects are removed")


def test_a_fork_begins_in_a_store_and_what_reads_folders_says_so(store, tiny, bits, tmp_path):
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        job = service.submit(stored(tiny(steps=20), store.url))
        service.wait_end(job)
        name = service.json("checkpoints", job)["checkpoints"][0]["name"]
        for command in (("sample", job), ("checkpoint", "verify", name), ("export", name, "--huggingface", tmp_path / "out")):
            assert "is in " in (said := service.cli(*command, status=None).stderr) and "store" in said, said
        fork = service.submit(stored(tiny(steps=40), store.url), "--fork", job)
        ended = service.wait_end(fork)
        assert ended["attempt"] == 1 and int(ended["step"]) == 40
        plain = tiny(steps=40)
        plain["data"]["text"]["files"] = ["s3://bucket/text"]
        plain["stores"] = {"s3": {"endpoint": store.url}}
        (tmp_path / "plain.json").write_text(__import__("json").dumps(plain))
        assert "needs checkpoint.store" in service.cli("submit", tmp_path / "plain.json", "--fork", job, status=None).stderr
