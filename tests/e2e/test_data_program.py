"""trainyard-data alone, driven over its pipes against a web server that misbehaves on order: what it finds and copies, what
its cache keeps, and one sentence for whatever goes wrong."""

import hashlib
import os
import pathlib
import stat

import pytest

from data_program import BAD_SPEC, FINISHED, HOST_FAULT, fetched, running
from object_store import Store, is_get, silent, slow, status, torn
from service_fixture import PATIENCE, wait_until

pytestmark = pytest.mark.sanitized
MIB = 1 << 20
KEYS = dict(access_key=b"AKIDEXAMPLE", secret_key=b"the/secret+key")


@pytest.fixture
def store():
    store = Store()
    yield store
    store.close()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def https(store, **more):
    return [dict(scheme="https", endpoint=store.url, **more)]


def s3(store, **more):
    return [dict(scheme="s3", endpoint=store.url, **more)]


def hf(store, **more):
    return [dict(scheme="hf", endpoint=store.url, **more)]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def copies(cache):
    """{digest: bytes}: every copy, which has the digest that its name says."""
    found = {path.name: path.read_bytes() for path in (cache / "objects").glob("*")}
    assert all(sha256(data) == name for name, data in found.items())
    return found


def good(program, **objects):
    """The program had success."""
    assert program.last.cause == FINISHED, program.last
    return program


# ---- what is found and copied ----

def test_objects_of_a_web_server_are_copied_and_a_second_process_reads_none_of_them_again(store, cache):
    objects = {"/d/large.bin": os.urandom(40 * MIB + 5), "/d/small.txt": b"hello", "/d/empty": b""}
    for path, data in objects.items():
        store.put(path, data)
    order = [store.url + "/d/{large.bin,small.txt}", store.url + "/d/empty"]
    first = good(fetched(order, cache, stores=https(store)))
    assert first.objects == {store.url + path: (sha256(data), len(data)) for path, data in objects.items()}
    assert [pathlib.Path(path).read_bytes() for path in first.paths] == list(objects.values())
    assert [o.uri for o in first.listed] == [0, 0, 1]
    assert first.events("data_fetching") and "0 MiB from the cache" in first.events("data_ready")[0]
    asked, read = store.count("HEAD"), store.count("GET")
    second = good(fetched(order, cache, stores=https(store)))
    assert second.objects == first.objects and not second.events("data_fetching")
    assert "40 MiB from the cache" in second.events("data_ready")[0]
    assert store.count("GET") == read and store.count("HEAD") == asked + 3, "one question for each object"


def test_a_copy_can_be_read_by_every_user_and_written_by_none(store, cache):
    store.put("/a", b"data")
    old = os.umask(0o077)
    try:
        program = good(fetched([store.url + "/a"], cache, stores=https(store)))
    finally:
        os.umask(old)
    (path,) = map(pathlib.Path, program.paths)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o755 for folder in (cache, cache / "objects"))
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in (cache / "index", cache / "parts", cache / "uses"))


def test_a_pattern_of_s3_finds_more_objects_than_a_page_of_the_listing_has(store, cache):
    store.page = 100
    for i in range(450):
        store.put(f"/bucket/train/shard-{i:03d}.bin", b"%d" % i)
    store.put("/bucket/train/shard-1.bin.md5", b"no match")
    store.put("/bucket/train/.shard-000.bin", b"no match: it is hidden")
    store.put("/bucket/train/more/shard-000.bin", b"no match: another folder")
    program = good(fetched(["s3://bucket/train/*.bin"], cache, stores=s3(store)))
    assert list(program.objects) == [f"s3://bucket/train/shard-{i:03d}.bin" for i in range(450)], "sorted"
    assert store.count("HEAD") == 0, "the listing says what is needed"
    read = store.count("GET")
    good(fetched(["s3://bucket/train/*.bin"], cache, stores=s3(store)))
    assert store.count("GET") == read + 5, "the pages of the listing alone"


def test_wildcards_in_folders_and_brackets_and_names_with_special_characters(store, cache):
    names = ["a/x1.bin", "a/x2.bin", "b/x1.bin", "b/y1.bin", "c d/x3.bin", "e%2F&+*=?/x4.bin", "é/x5.bin"]
    for name in names:
        store.put("/bucket/" + __import__("urllib.parse", fromlist=["quote"]).quote(name, safe="/-._~"), name.encode())
        store.objects["/bucket/" + name] = name.encode()  # for the listing
    got = good(fetched(["s3://bucket/*/x[1-2].bin"], cache, stores=s3(store)))
    assert list(got.objects) == ["s3://bucket/a/x1.bin", "s3://bucket/a/x2.bin", "s3://bucket/b/x1.bin"]
    got = good(fetched(["s3://bucket/e%252F&+%2A=%3F/x4.bin", "s3://bucket/c d/x3.bin", "s3://bucket/é/x5.bin"], cache, stores=s3(store)))
    assert [o.bytes for o in got.listed] == [len(n.encode()) for n in (names[5], names[4], names[6])]
    assert list(got.objects)[0] == "s3://bucket/e%252F&+%2A=%3F/x4.bin", "a name is a URI of the object"


COMMIT, OTHER = "c" * 40, "d" * 40


def hf_put(store, path, data, commit=COMMIT):
    store.put(f"/datasets/team/set/resolve/{commit}/{path}", data, ETag='"%s"' % hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())


def test_a_revision_of_hf_becomes_its_commit_and_a_commit_needs_no_store(store, cache):
    store.commits["team/set@main"] = COMMIT
    store.page = 2
    for name in ("a.bin", "b.bin", "c.bin", "deep/d.bin"):
        hf_put(store, f"data/{name}", name.encode())
    token = hf(store, secret_key=b"hf_token")
    got = good(fetched(["hf://datasets/team/set/data/*.bin"], cache, stores=token))
    assert list(got.objects) == [f"hf://datasets/team/set@{COMMIT}/data/{name}" for name in ("a.bin", "b.bin", "c.bin")]
    assert all(headers["Authorization"] == "Bearer hf_token" for _, _, _, headers in store.requests)
    before = len(store.requests)
    good(fetched([f"hf://datasets/team/set@{COMMIT}/data/{{a,b,c}}.bin"], cache, stores=token))
    assert len(store.requests) == before, "the cache has this commit"
    good(fetched(["hf://datasets/team/set/data/a.bin"], cache, stores=token))
    assert len(store.requests) == before + 1, "the commit of a branch is asked for"
    store.commits["team/set@main"] = OTHER
    hf_put(store, "data/a.bin", b"newer", OTHER)
    assert good(fetched(["hf://datasets/team/set/data/a.bin"], cache, stores=token)).listed[0].sha256 == sha256(b"newer")


def test_a_check_finds_objects_and_copies_nothing(store, cache):
    store.put("/bucket/a.bin", b"12345")
    store.put("/bucket/b.bin", b"1234567")
    got = good(fetched(["s3://bucket/a.bin", "s3://bucket/*.bin"], "", stores=s3(store), check=True))
    assert [(o.uri, o.name, o.bytes, o.sha256) for o in got.listed] == [
        (0, "s3://bucket/a.bin", 5, ""), (1, "s3://bucket/a.bin", 5, ""), (1, "s3://bucket/b.bin", 7, "")]
    assert not any(is_get(method, path, None) for method, path, _, _ in store.requests)


def test_two_names_of_the_same_bytes_are_one_copy(store, cache):
    data = os.urandom(100000)
    for name in ("one", "two", "three"):
        store.put(f"/{name}", data)
    got = good(fetched([f"{store.url}/{{one,two,three}}", f"{store.url}/one"], cache, stores=https(store)))
    assert len(got.listed) == 4 and list(copies(cache)) == [sha256(data)]
