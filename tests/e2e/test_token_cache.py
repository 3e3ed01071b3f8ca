"""Texts of byte-pair tokens are encoded once on a host, for all ranks and jobs, whoever is killed meanwhile; and the
weights are those of a run without the cache."""

import contextlib
import json
import os
import pathlib
import pwd
import random
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, ROOT, SANDBOX, Service, remove_tree, wait_until
from store_hosts import Host
from test_program_sandbox import ABI

pytestmark = pytest.mark.skipif(SANDBOX != "off" and ABI < 1, reason="without Landlock, executors with a sandbox have no token cache")

TOKENIZER = ROOT / "tests/engine/tokenizers/gpt2.json"
WORDS = ["the", "quick", "brown", "fox's", "jumps", "over", "12345", "lazy", "dog.", "(x)", "Encoding"]


def text_of(path, size):
    seed = int(os.environ.get("TRAINYARD_SEED", 17))
    print("seed", seed)
    draw = random.Random(seed)
    line = " ".join(draw.choice(WORDS) for _ in range(4000)) + "\n"
    block = "".join(" ".join(draw.choice(WORDS) for _ in range(9)) + "\n" for _ in range(2000)) + line
    path.write_text((block * (size // len(block) + 1))[:size])
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return text_of(tmp_path_factory.mktemp("text") / "text.txt", 2 << 20)


@pytest.fixture(scope="module")
def long_text(tmp_path_factory):
    """Some seconds of encoding."""
    return text_of(tmp_path_factory.mktemp("text") / "long.txt", 48 << 20)


@pytest.fixture
def spec_of(tiny):
    def make(path, steps=6, data=2, **more):
        spec = tiny(steps=steps, data=data, **more)
        spec["data"] = {"text": {"files": [f"file://{path}"], "tokenizer": f"file://{TOKENIZER}",
                                 "validation_fraction": 0.1}}
        return spec
    return make


def train(spec, folder, *options, status=0):
    """trainyard-train: the last line's weights, and stderr."""
    folder.mkdir(exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run([BIN / "trainyard-train", folder / "spec.json", "--checkpoints", folder / "out", "--json", *options],
                          capture_output=True, text=True, timeout=120 * PATIENCE)
    assert done.returncode == status, done.stderr
    return re.findall(r"weights_sha256 ([0-9a-f]{64})", done.stderr)[-1], done.stderr


def files_in(folder):
    """{name: (inode, time of change)}"""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in pathlib.Path(folder).iterdir()
            if path.name != "lock"}


def kinds(service, job):
    return [event["kind"] for event in service.json("events", job)["events"]]


def cache_of(service):
    return service.directory / "tokens/texts"


def test_ranks_and_jobs_encode_a_text_once(service, spec_of, text, tmp_path):
    first = service.submit(spec_of(text))
    ended = service.wait_end(first)
    kept = files_in(cache_of(service))
    assert kinds(service, first).count("text_encoded") == 1
    assert len(kept) == 1 and re.fullmatch("[0-9a-f]{64}", *kept), kept
    second = service.submit(spec_of(text, data=1, seed=2))
    service.wait_end(second)
    assert "text_encoded" not in kinds(service, second)
    again = service.submit(spec_of(text, data=1))
    assert service.wait_end(again)["weights_sha256"] == ended["weights_sha256"]
    for job in (first, second, again):
        assert "token_cache_missed" not in kinds(service, job)
    assert {name: inode for name, (inode, _) in files_in(cache_of(service)).items()} == \
        {name: inode for name, (inode, _) in kept.items()}
    alone, _ = train(spec_of(text), tmp_path / "alone")
    assert alone == ended["weights_sha256"]


def test_a_program_without_a_service_keeps_tokens_too(spec_of, text, tmp_path):
    spec, tokens = spec_of(text), ("--token-cache", tmp_path / "tokens")
    without, said = train(spec, tmp_path / "without")
    assert "encoded" not in said
    first, said_first = train(spec, tmp_path / "first", *tokens)
    second, said_second = train(spec, tmp_path / "second", *tokens)
    assert first == second == without
    assert said_first.count("was encoded to") == 1 and "was encoded to" not in said_second
    planned = [json.loads(line)["planned_bytes"] for said in (said, said_first) for line in said.splitlines()
               if line.startswith('{"rank":0')]
    size = next(path.stat().st_size for path in (tmp_path / "tokens").iterdir() if path.name != "lock")
    assert planned[0] - planned[1] == size - 128  # the tokens, without their header


def test_a_damaged_file_is_encoded_again(service, spec_of, text):
    service.wait_end(service.submit(spec_of(text)))
    (name,) = files_in(cache_of(service))
    with open(cache_of(service) / name, "r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    job = service.submit(spec_of(text))
    service.wait_end(job)
    assert "token_cache_damaged" in kinds(service, job)
    assert kinds(service, job).count("text_encoded") == 1
    assert "token_cache_missed" not in kinds(service, job)


def test_a_full_cache_leaves_the_tokens_to_each_rank(tmp_path, spec_of, text):
    shared = tmp_path / "checkpoints"
    shared.mkdir()
    service = Service(tmp_path / "service", executors=0, roots=(), checkpoint_roots=[shared])
    service.directory.mkdir()
    service.start()
    host = Host(service, tmp_path / "host", slots=2, options=["--token-cache-mib", "1", "--data-root", text.parent,
                                                              "--data-root", TOKENIZER.parent, "--checkpoint-root", shared])
    try:
        spec = spec_of(text)
        spec["checkpoint"]["directory"] = f"file://{shared}"
        job = service.submit(spec)
        ended = service.wait_end(job)
        assert kinds(service, job).count("token_cache_missed") == 2
        why = next(event["message"] for event in service.json("events", job)["events"] if event["kind"] == "token_cache_missed")
        assert "has no space" in why and "stay in memory" in why, why
        assert not files_in(tmp_path / "host/state/tokens/texts")
    finally:
        host.stop()
        service.stop()
    alone, _ = train(spec_of(text), tmp_path / "alone")
    assert alone == ended["weights_sha256"]


def leave_tokens(folder, uid):
    """What another user's processes have left there."""
    folder.mkdir(parents=True)
    for path in (folder / "lock", folder / ("0" * 64), folder / ("1" * 64 + ".part"), folder):
        if path != folder:
            path.touch(mode=0o600)
        os.chown(path, uid, -1)
    folder.chmod(0o711)
    folder.parent.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
@pytest.mark.parametrize("options, owner", [
    pytest.param(("--worker-user", "nobody", "--sandbox", "available"), None, id="one user",
                 marks=pytest.mark.skipif(ABI < 1, reason="this kernel has no Landlock")),
    pytest.param(("--job-users", "70000-70100", "--sandbox", "off"), 70100, id="a user for each job")])
def test_jobs_of_other_users_share_tokens_that_no_job_can_change(spec_of, text, options, owner):
    """The folder belongs to the user of requests: with --job-users that of no job. Before it was that of another one."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-tokens-"))
    place.chmod(0o755)
    for name in ("service", "checkpoints"):
        (place / name).mkdir()
    leave_tokens(place / "tokens/texts", 70200)
    os.chown(place / "checkpoints", pwd.getpwnam("nobody").pw_uid, os.getegid())
    (place / "checkpoints").chmod(0o2770)
    shutil.copy(text, place / "text.txt")
    shutil.copy(TOKENIZER, place / "tokenizer.json")
    service = Service(place / "service", executors=0, checkpoint_roots=[place / "checkpoints"]).start()
    host = Host(service, place / "host", options=["--checkpoint-root", place / "checkpoints", "--data-root", place,
                                                  "--token-cache", place / "tokens", *options])
    try:
        jobs = []
        for seed in (1, 2):
            spec = spec_of(place / "text.txt", data=1, seed=seed)
            spec["data"]["text"]["tokenizer"] = f"file://{place}/tokenizer.json"
            spec["checkpoint"]["directory"] = f"file://{place}/checkpoints"
            jobs.append(service.submit(spec))
            service.wait_end(jobs[-1])
        assert [kinds(service, job).count("text_encoded") for job in jobs] == [1, 0]
        assert not any("token_cache_missed" in kinds(service, job) for job in jobs)
        (name,) = files_in(place / "tokens/texts")
        uid = owner or pwd.getpwnam("nobody").pw_uid
        for path, mode in ((place / "tokens/texts", 0o711), (place / "tokens/texts" / name, 0o644)):
            assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (uid, mode)
    finally:
        host.stop()
        service.stop()
        remove_tree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
def test_jobs_that_share_a_user_and_have_no_sandbox_get_no_token_cache(tmp_path):
    """Any of them could write the tokens that the others train on."""
    service = Service(tmp_path / "service", executors=0)
    service.directory.mkdir()
    service.start()
    hosts = []
    try:
        for name, options in (("shared", ("--worker-user", "nobody")), ("own", ("--job-users", "70000-70100"))):
            hosts.append(Host(service, tmp_path / name, options=["--token-cache", tmp_path / name / "tokens", "--sandbox", "off", *options]))
        shared, own = ((host.directory / "log").read_text() for host in hosts)
        assert "no_token_cache" in shared and "because --sandbox is off and all jobs run as one user" in shared, shared
        assert "no_token_cache" not in own and (tmp_path / "own/tokens/texts").is_dir()
    finally:
        for host in hosts:
            host.stop()
        service.stop()


def encoder_of(folder):
    """The process that encodes into the folder: the only one with a part open; None: there is none now."""
    for fd in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith(f"{folder}/") and target.endswith(".part"):
            return int(fd.parts[2])
    return None


def is_stopped(pid):
    """All of its threads, or the process has ended."""
    with contextlib.suppress(OSError):  # a thread that ends meanwhile
        return all(path.read_text().rpartition(")")[2].split()[0] in "TZ" for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))
    return False


def stopped_encoder(folder):
    """Stopped while it encodes. One that has published its text before it stopped goes on."""
    found = []

    def is_there():
        pid = encoder_of(folder)
        if pid and pid > 1:
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: is_stopped(pid), 60 * PATIENCE, "the stop")
            if encoder_of(folder) == pid:
                found.append(pid)
            else:
                os.kill(pid, signal.SIGCONT)
        return found

    wait_until(is_there, 60 * PATIENCE, "a process that encodes")
    return found[0]


def test_a_killed_encoder_is_followed_by_another(service, spec_of, long_text):
    job = service.submit(spec_of(long_text))
    pid = stopped_encoder(cache_of(service))
    os.kill(pid, signal.SIGKILL)
    service.wait_end(job)
    assert kinds(service, job).count("text_encoded") == 1
    assert "token_cache_missed" not in kinds(service, job)
    assert [name for name in files_in(cache_of(service)) if name.endswith(".part")] == []


RANK_THAT_ASKS_THRICE = """#!/usr/bin/python3
import os, sys, time
sys.path[:0] = {paths!r}
from data_program import COMMAND, RECORD

def read_bytes(n):
    data = b""
    while len(data) < n:
        some = os.read(3, n - len(data))
        if not some:
            sys.exit(0)
        data += some
    return data

def read():
    return COMMAND.FromString(read_bytes(int.from_bytes(read_bytes(4), "little")))

command = read()
if command.WhichOneof("command") == "encode":
    open(f"{folder}/encode.{{os.getpid()}}", "w").close()
    while True:
        time.sleep(1)
for i in range(3):
    record = RECORD()
    record.encode_text.files.append(f"file:///text-{{i}}")
    data = record.SerializeToString()
    os.write(4, len(data).to_bytes(4, "little") + data)
with open("{folder}/answers", "w") as answers:
    while True:
        said = read().text_encoded
        if said.last:
            answers.write(said.message + "\\n")
            answers.flush()
"""


def test_a_rank_has_one_text_encoded_at_a_time(tmp_path, spec_of, text):
    worker, answers, shared = (tmp_path / name for name in ("worker", "answers", "checkpoints"))
    worker.write_text(RANK_THAT_ASKS_THRICE.format(paths=[str(ROOT / "tests/e2e"), str(ROOT / "tests")], folder=tmp_path))
    worker.chmod(0o755)
    shared.mkdir()
    service = Service(tmp_path / "service", executors=0, roots=(), checkpoint_roots=[shared])
    service.directory.mkdir()
    service.start()
    host = Host(service, tmp_path / "host", options=["--worker", worker, "--data-root", text.parent, "--data-root", TOKENIZER.parent,
                                                     "--checkpoint-root", shared])
    try:
        spec = spec_of(text, data=1)
        spec["checkpoint"]["directory"] = f"file://{shared}"
        job = service.submit(spec, "--skip-check")
        wait_until(lambda: answers.exists() and len(answers.read_text().splitlines()) == 2, 60 * PATIENCE, "two refusals")
        assert set(answers.read_text().splitlines()) == {"the rank already waits for another text"}
        wait_until(lambda: list(tmp_path.glob("encode.*")), 60 * PATIENCE, "the process that encodes the first text")
        assert len(list(tmp_path.glob("encode.*"))) == 1
        service.cli("cancel", job)
    finally:
        host.stop()
        service.stop()


def test_an_encoder_that_stands_still_is_replaced(service, spec_of, long_text):
    """As a rank that stands still is, after --hang-timeout."""
    job = service.submit(spec_of(long_text))
    pid = stopped_encoder(cache_of(service))
    wait_until(lambda: encoder_of(cache_of(service)) not in (pid, None), 120 * PATIENCE, "another process that encodes")
    service.wait_end(job)
    assert kinds(service, job).count("text_encoded") == 1


def test_a_job_that_is_cancelled_waits_for_no_text(service, spec_of, long_text):
    job = service.submit(spec_of(long_text))
    pid = stopped_encoder(cache_of(service))
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists() or encoder_of(cache_of(service)) != pid, 60 * PATIENCE,
               "the end of the process that encodes")
    later = service.submit(spec_of(long_text))  # begins what was left
    service.wait_end(later)
    assert kinds(service, later).count("text_encoded") == 1
