"""What jobs may not read: files outside of every data root, and tokens, keys and files of the service whatever the roots."""

import contextlib
import json
import os
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, Service


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("closed")
    (directory / "up").mkdir()
    (directory / "shared").mkdir()
    service = Service(directory / "up", executors=0, checkpoint_roots=[directory / "shared"]).start()
    yield service
    service.stop()


@contextlib.contextmanager
def executor(service, name, *options):
    """The only one of the service."""
    directory = service.directory.parent / name
    process = subprocess.Popen(
        [BIN / "trainyard-executor", "--controller", service.address, "--directory", directory, "--slots", "1",
         "--checkpoint-root", service.directory / "checkpoints", *options],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=service.environment(), text=True)
    try:
        assert process.stdout.readline().startswith("ready ")
        yield directory, process.pid
    finally:
        process.terminate()
        assert process.wait(40 * PATIENCE) == 0
        process.stdout.close()


def ended(service, tiny, path, state, **more):
    spec = tiny(steps=3, data__text={"files": [f"file://{path}"]}, **{"retry__max_restarts": 0, **more})
    submitted = service.submit(spec, "--skip-check")  # which would refuse it: here the rank has to
    return service.wait_end(submitted, state)


def test_without_a_data_root_no_file_is_read(service, tiny, text_file):
    with executor(service, "none"):
        reason = ended(service, tiny, text_file, "FAILED")["reason"]
        assert f"data.text.files[0]: '{text_file}' is closed to jobs: no --data-root of this executor is given" in reason
        # Whether a file exists is not told.
        assert "is closed to jobs" in ended(service, tiny, "/no/such/file", "FAILED")["reason"]


def test_tokens_keys_and_files_of_the_service_are_no_data_below_any_root(service, tiny, text_file, tmp_path):
    token, key, foreign = tmp_path / "own.token", tmp_path / "own.key", tmp_path / "controller.key"
    token.write_text(service.cli("token", "create", "own", "--role", "EXECUTOR").stdout)
    for path in (key, foreign):
        subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path], check=True)
    copy, link, hard = tmp_path / "copy", tmp_path / "link", tmp_path / "hard"
    copy.write_bytes(token.read_bytes())
    os.symlink(token, link)
    os.link(key, hard)
    with executor(service, "all", "--data-root", "/", "--token-file", token, "--data-except", text_file.parent,
                  "--tls-key", key, "--tls-cert", key, "--tls-ca", key, "--sandbox", "off") as (directory, pid):
        own, secret = "belongs to the service itself", "never read as data"
        for path, words in ((token, own), (directory / "id", own), (text_file, own), (foreign, secret), (copy, secret),
                            (link, "symbolic link"), (key, own), (hard, own), (f"/proc/{pid}/environ", "kernel's")):
            reason = ended(service, tiny, path, "FAILED")["reason"]
            assert f"data.text.files[0]: '{path}'" in reason and words in reason, (path, reason)
        text = tmp_path / "text"
        text.write_bytes(text_file.read_bytes())
        ended(service, tiny, text, "SUCCEEDED")


def test_checkpoints_are_written_below_the_checkpoint_roots_alone(service, tiny, text_file, tmp_path):
    shared = service.directory.parent / "shared"
    spec = service.directory / "spec.json"

    def refused(directory):
        spec.write_text(json.dumps(tiny(checkpoint__directory=f"file://{directory}")))
        return service.cli("submit", spec, "--wait-for-hosts", status=2).stderr

    for directory in ("/tmp", "/dev/shm/new", tmp_path, service.directory / "executors" / "1", service.directory / "checkpoints2"):
        said = refused(directory)
        assert f"checkpoint.directory: '{directory}' is closed to jobs: it lies below no --checkpoint-root" in said, said
    for directory in (service.directory / "checkpoints" / "1" / "attempt-1", shared / "team" / "7"):
        assert f"checkpoint.directory: '{directory}' has a number as a folder's name" in refused(directory)
    for directory in (shared / ".trainyard-cluster", service.directory / "checkpoints" / ".trainyard-cluster" / "new"):
        assert f"checkpoint.directory: '{directory}' has '.trainyard-cluster' as a folder's name" in refused(directory)

    (shared / "open").mkdir()
    (shared / "open").chmod(0o1777)
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", shared / "link")
    state = service.directory.parent / "shared" / "state"
    with executor(service, "shared/state", "--data-root", text_file.parent, "--checkpoint-root", shared):
        def job(directory, state="FAILED"):
            return ended(service, tiny, text_file, state, checkpoint__directory=f"file://{directory}")
        sampled = job(shared / "team" / "a", "SUCCEEDED")["name"]
        assert list((shared / "team" / "a").glob("*/attempt-*/step-3/manifest.json"))
        assert "a folder that all users may write to" in job(shared / "open")["reason"]
        assert "symbolic link" in job(shared / "link")["reason"]
        assert "belongs to the service itself" in job(state)["reason"]
        assert "belongs to the service itself" in job(state / "new")["reason"]
    assert not list((tmp_path / "elsewhere").iterdir()) and not (state / "new").exists()
    with executor(service, "except", "--checkpoint-root", shared, "--data-except", shared / "team"):
        done = service.cli("sample", sampled, "--prompt", "a", status=None)
        assert done.returncode != 0 and "belongs to the service itself" in done.stderr, done
    with executor(service, "narrow", "--data-root", text_file.parent):
        reason = ended(service, tiny, text_file, "FAILED", checkpoint__directory=f"file://{shared}/b")["reason"]
        assert "lies below no --checkpoint-root of this executor" in reason


def test_up_lets_jobs_read_its_users_folders_alone(tmp_path, tiny, text_file):
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    for folder in (home, outside):
        (folder / "text").write_bytes(text_file.read_bytes())
    service = Service(home / "service", slots=1, roots=())
    service.directory.mkdir()
    environment = service.environment
    service.environment = lambda: dict(environment(), HOME=str(home))
    service.start()
    ended(service, tiny, home / "text", "SUCCEEDED")
    assert "it lies below no --data-root" in ended(service, tiny, outside / "text", "FAILED")["reason"]
    for own in ("executors/1/id", "logs/up.log"):
        assert "belongs to the service itself" in ended(service, tiny, service.directory / own, "FAILED")["reason"]
    service.stop()


def test_up_that_other_users_can_call_reads_nothing_unasked(tmp_path, tiny, text_file):
    service = Service(tmp_path / "service", slots=1, roots=())
    service.directory.mkdir()
    service.arguments += ["--listen", "127.0.0.1:0"]
    environment = service.environment
    service.environment = lambda: dict(environment(), HOME=str(text_file.parent))
    service.start()
    assert "no --data-root of this executor is given" in ended(service, tiny, text_file, "FAILED")["reason"]
    assert "name folders with --data-root" in service.tail()
    service.stop()
