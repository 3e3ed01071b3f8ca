"""trainyard-data when a store, a disk, a cache or a process fails: what can be repeated is repeated, what has changed is
read again, nothing wrong is ever kept, and a failure is one sentence with its cause."""

import os
import pathlib
import random
import shutil
import ssl
import subprocess
import threading
import time

import pytest

from data_program import BAD_SPEC, FINISHED, HOST_FAULT, Program, fetched, order, running
from object_store import Store, is_get, silent, slow, status, torn
from service_fixture import SANITIZED, wait_until
from test_data_program import COMMIT, KEYS, MIB, cache, copies, good, hf, hf_put, https, s3, sha256, store

__all__ = ["cache", "store"]
pytestmark = pytest.mark.sanitized


def refused(program, cause, *parts):
    """The program had no success, and its sentence contains the parts."""
    assert program.last.cause == cause, program.last
    assert all(part in program.last.message for part in parts), program.last.message
    assert not program.listed
    return program


# ---- what is repeated ----

def test_a_piece_goes_on_where_its_connection_broke(store, cache):
    data = os.urandom(20 * MIB)
    store.put("/a", data)
    store.fail(torn(store, 3 * MIB), times=2)
    good(fetched([store.url + "/a"], cache, stores=https(store)))
    assert copies(cache) == {sha256(data): data}
    asked = sorted(int(r.removeprefix("bytes=").split("-")[0]) for m, p, r, _ in store.requests if m == "GET")
    assert len(asked) == 4 and sum(at not in (0, 16 * MIB) for at in asked) == 2, "nothing is read twice"


@pytest.mark.parametrize("code", [408, 429, 500, 503])
def test_a_status_after_which_it_can_get_better_is_repeated(store, cache, code):
    store.put("/bucket/a", b"data")
    store.fail(status(code, where=lambda method, path, asked: method == "HEAD"), times=2)
    store.fail(status(code), times=2)
    good(fetched(["s3://bucket/a"], cache, stores=s3(store)))
    assert store.count("HEAD") == 3 and store.count("GET") == 3


def test_a_server_that_asks_for_a_pause_gets_it(store, cache):
    store.put("/a", b"data")
    store.fail(status(429, Retry_After="2"))
    since = time.monotonic()
    good(fetched([store.url + "/a"], cache, stores=https(store)))
    assert time.monotonic() - since >= 2


def test_a_store_that_stays_away_is_a_fault_of_the_host_with_its_own_words(store, cache):
    store.put("/bucket/a", b"data")
    store.fail(status(503, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>", keep=True))
    program = fetched(["s3://bucket/a"], cache, stores=s3(store), patience_s=2)
    refused(program, HOST_FAULT, "s3://bucket/a: ", store.url, "status 503: SlowDown: Please reduce your request rate.", "tried ")
    assert not copies(cache) and store.count("GET") > 2


def test_a_pause_beyond_the_patience_is_not_waited_for(store, cache):
    store.put("/a", b"data")
    store.fail(status(503, keep=True, Retry_After="3600"))
    refused(fetched([store.url + "/a"], cache, stores=https(store), patience_s=10), HOST_FAULT, "tried 1 times")


def test_a_server_that_never_answers_is_given_up_and_one_that_is_slow_is_not(store, cache):
    answer = threading.Event()
    store.put("/a", os.urandom(3 * MIB))
    store.fail(slow(store, MIB))
    good(fetched([store.url + "/a"], cache, stores=https(store), patience_s=1))
    store.put("/b", b"data")
    store.faults = [silent(answer, keep=True)]
    refused(fetched([store.url + "/b"], cache, stores=https(store), patience_s=4), HOST_FAULT, "/b: ", "too slow")
    answer.set()


def test_no_server_is_a_fault_of_the_host(store, cache):
    store.close()
    refused(fetched([store.url + "/a"], cache, stores=https(store), patience_s=1), HOST_FAULT, store.url)


# ---- what is not ----

@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 501])
def test_a_refusal_is_not_repeated(store, cache, code):
    store.put("/bucket/a", b"data")
    store.fail(status(code, where=lambda *_: True, keep=True))
    refused(fetched(["s3://bucket/a"], cache, stores=s3(store)), BAD_SPEC, f"s3://bucket/a: {store.url} answered with status {code}")
    assert len(store.requests) == 1


@pytest.mark.parametrize("uris, sentence", [
    (["s3://bucket/none/*.bin"], "no object matches 'none/*.bin'"),
    (["ftp://host/a"], "begins with neither s3://, hf:// nor https://"),
    (["http://example.org/a"], "only https:// is read"),
    (["https://user:hidden@example.org/a"], "has a user or a password"),
    (["https://example.org/*.bin"], "a web server does not list its files"),
    (["s3://bucket/{1..99999}{1..9}"], "more than 65536 names"),
    (["s3://bucket/../a"], "a part '.' or '..'"),
])
def test_a_wrong_uri_is_one_sentence_without_a_request(store, cache, uris, sentence):
    program = refused(fetched(uris, cache, stores=[*s3(store)]), BAD_SPEC, sentence)
    assert "hidden" not in program.last.message


@pytest.mark.parametrize("stores, sentence", [
    ([dict(scheme="ftp")], "not one of s3, https and hf"),
    ([dict(scheme="s3"), dict(scheme="s3")], "given twice"),
    ([dict(scheme="s3", access_key=b"key")], "without a secret key"),
    ([dict(scheme="s3", endpoint="https://host/path")], "is not https://HOST[:PORT]"),
    ([dict(scheme="s3", region="a/b")], "no region"),
    ([dict(scheme="https", secret_key=b"token")], "name the host that gets it"),
    ([dict(scheme="hf", secret_key=b"to\r\nken")], "no key has"),
])
def test_a_wrong_store_is_one_sentence(cache, stores, sentence):
    refused(fetched(["s3://bucket/a"], cache, stores=stores), BAD_SPEC, sentence)


def test_an_answer_without_a_version_or_a_size_is_refused(store, cache):
    store.put("/a", b"data")
    store.etags["/a"] = ""
    refused(fetched([store.url + "/a"], cache, stores=https(store)), BAD_SPEC, "neither an ETag nor a time of change")
    store.put("/a", b"data", Last_Modified="Tue, 01 Oct 2024 10:00:00 GMT")
    good(fetched([store.url + "/a"], cache, stores=https(store)))


# ---- objects that change, and wrong bytes ----

def test_an_object_that_changes_while_it_is_read_is_read_again(store, cache):
    old, new = os.urandom(64 * MIB), os.urandom(64 * MIB)
    store.put("/a", old)
    seen = []

    def change(h, method, path, asked):
        if is_get(method, path, asked):
            seen.append(asked)
            if len(seen) == 4:
                store.put("/a", new)
        return False
    change.keep = True
    store.fail(change)
    good(fetched([store.url + "/a"], cache, stores=https(store)))
    assert copies(cache) == {sha256(new): new}


def test_an_object_that_always_changes_is_given_up(store, cache):
    store.put("/a", b"data")
    numbers = iter(range(1000))

    def change(h, method, path, asked):
        if is_get(method, path, asked):
            store.put("/a", b"data %03d" % next(numbers))
        return False
    change.keep = True
    store.fail(change)
    refused(fetched([store.url + "/a"], cache, stores=https(store)), HOST_FAULT, "changes while it is read; tried 3 times")
    assert not copies(cache) and not list((cache / "parts").iterdir())


def test_a_server_that_ignores_if_match_is_found_out(store, cache):
    old, new = os.urandom(20 * MIB), os.urandom(20 * MIB)
    store.put("/a", old)

    def ignore(h, method, path, asked):
        if asked and asked.startswith("bytes=16777216"):
            store.put("/a", new)
        del h.headers["If-Match"]
        return False
    ignore.keep = True
    store.fail(ignore)
    good(fetched([store.url + "/a"], cache, stores=https(store)))
    assert copies(cache) == {sha256(new): new}


@pytest.mark.parametrize("size", [1000, 20 * MIB])
@pytest.mark.parametrize("kind", ["md5", "sha256", "crc32c", "hf"])
def test_bytes_without_the_stores_checksum_are_fetched_again_and_never_kept(store, cache, kind, size):
    import base64
    import hashlib
    data = os.urandom(size)
    wrong = bytes([data[0] ^ 1]) + data[1:]
    uri, where, access = "s3://bucket/a", "/bucket/a", s3(store)
    if kind == "hf":
        uri, where, access = f"hf://datasets/team/set@{COMMIT}/a", f"/datasets/team/set/resolve/{COMMIT}/a", hf(store)
        hf_put(store, "a", data)
    else:
        store.put(where, data)
    store.etags[where] = store.etag(where) if kind == "md5" else '"parts-2"'
    if kind == "sha256":
        store.headers[where]["x-amz-checksum-sha256"] = base64.b64encode(hashlib.sha256(data).digest()).decode()
    if kind == "crc32c":
        store.headers[where]["x-amz-checksum-crc32c"] = base64.b64encode(crc32c(data).to_bytes(4, "big")).decode() if size < MIB else "AAAAAA=="
    bad = 2 if kind != "crc32c" or size < MIB else 3

    def damage(h, method, path, asked):
        store.objects[where] = wrong if damage.left > 0 else data
        damage.left -= is_get(method, path, asked) and (not asked or asked.startswith("bytes=0-"))
        return False
    damage.left, damage.keep = bad, True
    store.fail(damage)
    program = fetched([uri], cache, stores=access)
    if bad == 3:
        refused(program, HOST_FAULT, uri, "do not have its CRC-32C; tried 3 times")
    else:
        good(program)
    assert copies(cache) == ({} if bad == 3 else {sha256(data): data})


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


# ---- redirects and keys ----

def test_a_token_stays_with_its_endpoint_when_a_redirect_leads_elsewhere(store, cache):
    other = Store()
    store.put("/a", b"data")
    other.put("/b", b"data")
    other.etags["/b"] = store.etag("/a")
    store.fail(status(302, Location=other.url + "/b", where=lambda *_: True, keep=True))
    good(fetched([store.url + "/a"], cache, stores=https(store, secret_key=b"the-token")))
    assert all(headers["Authorization"] == "Bearer the-token" for _, _, _, headers in store.requests)
    assert other.requests and not any("Authorization" in headers for _, _, _, headers in other.requests)
    other.close()


def test_an_https_server_needs_a_certificate_and_must_not_redirect_to_http(store, cache, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "key",
                    "-out", tmp_path / "cert", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    server = Store(context)
    server.put("/a", b"data")
    refused(fetched([server.url + "/a"], cache), HOST_FAULT, "certificate")
    trusted = {"SSL_CERT_FILE": str(tmp_path / "cert")}
    good(fetched([server.url + "/a"], cache, environment=trusted))
    store.put("/b", b"data")
    server.fail(status(302, Location=store.url + "/b", where=lambda *_: True, keep=True))
    refused(fetched([server.url + "/b"], cache, environment=trusted), BAD_SPEC, server.url)
    assert not store.requests
    server.close()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps freed memory, and has more than can be read")
def test_keys_are_in_no_argument_and_no_message_and_not_in_the_memory_after_the_copies(store, cache):
    store.put("/bucket/a", b"data")
    with running(["s3://bucket/a"], cache, stores=s3(store, **KEYS)) as program:
        program.wait()
        pid = program.process.pid
        assert KEYS["secret_key"] not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        memory = b""
        with open(f"/proc/{pid}/mem", "rb") as mem:
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                if " rw" in line and "[v" not in line:
                    first, last = (int(x, 16) for x in line.split()[0].split("-"))
                    mem.seek(first)
                    memory += mem.read(last - first)
        assert b"s3://bucket/a" in memory, "the memory was read"
        assert KEYS["secret_key"] not in memory and KEYS["access_key"] not in memory
    assert any(headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") for _, _, _, headers in store.requests)


# ---- the cache ----

def test_a_damaged_copy_is_fetched_again(store, cache):
    data = os.urandom(100000)
    store.put("/a", data)
    (path,) = map(pathlib.Path, good(fetched([store.url + "/a"], cache, stores=https(store))).paths)
    for damage in ("byte", "cut", "gone"):
        path.chmod(0o644)
        if damage == "byte":
            with open(path, "r+b") as f:
                f.seek(50000)
                f.write(bytes([data[50000] ^ 1]))
        elif damage == "cut":
            os.truncate(path, 99999)
        else:
            path.unlink()
        read = store.count("GET")
        good(fetched([store.url + "/a"], cache, stores=https(store)))
        assert store.count("GET") == read + 1 and copies(cache) == {sha256(data): data}, damage


def test_a_damage_that_leaves_no_trace_is_found_when_the_last_check_is_a_day_ago(store, cache):
    data = os.urandom(100000)
    store.put("/a", data)
    (path,) = map(pathlib.Path, good(fetched([store.url + "/a"], cache, stores=https(store))).paths)
    old = path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns - (24 * 3600 + 1) * 10 ** 9))
    good(fetched([store.url + "/a"], cache, stores=https(store)))
    assert copies(cache) == {sha256(data): data}
    assert store.count("GET") == 2


def put_many(store, n, size=MIB):
    for i in range(n):
        store.put(f"/o{i}", random.Random(i).randbytes(size))


def names(cache):
    """None before the first process has made the folder."""
    return {path.name for path in (cache / "objects").glob("*")}


def test_what_was_not_used_for_longest_is_removed_and_nothing_that_is_in_use(store, cache):
    put_many(store, 6)
    digest = {i: sha256(store.objects[f"/o{i}"]) for i in range(6)}

    def get(i, mib=4):
        return fetched([f"{store.url}/o{i}"], cache, mib=mib, stores=https(store))
    with running([f"{store.url}/o0"], cache, mib=4, stores=https(store)) as user:
        user.wait()
        for i in (1, 2, 3, 1, 4):
            good(get(i))
        assert names(cache) == {digest[i] for i in (0, 3, 1, 4)}, "2 is the oldest, and 0 is in use"
        refused(fetched([f"{store.url}/o{{2,3,4,5}}"], cache, mib=4, stores=https(store)), HOST_FAULT, "other attempts use 1 MiB")
        assert digest[0] in names(cache)
    good(fetched([f"{store.url}/o{{2,3,4,5}}"], cache, mib=4, stores=https(store)))
    assert names(cache) == {digest[i] for i in (2, 3, 4, 5)}
    assert len(list((cache / "index").iterdir())) == 4, "the index has no removed copies"


def test_data_that_are_larger_than_the_cache_are_refused_before_a_byte_is_read(store, cache):
    put_many(store, 3)
    refused(fetched([f"{store.url}/o{{0,1,2}}"], cache, mib=2, stores=https(store)), HOST_FAULT, "have 3 MiB", "--data-cache-mib 2")
    assert store.count("GET") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(store, tmp_path):
    put_many(store, 3, 8 * MIB)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        refused(fetched([f"{store.url}/o{{0,1,2}}"], disk / "cache", stores=https(store)), HOST_FAULT, "the disk of the host's cache", "no space for 24 MiB")
        assert store.count("GET") == 0
        good(fetched([f"{store.url}/o2"], disk / "cache", stores=https(store)))
        good(fetched([f"{store.url}/o{{0,1}}"], disk / "cache", stores=https(store)))
        assert len(copies(disk / "cache")) == 2
    finally:
        subprocess.run(["umount", disk], check=True)


def test_two_processes_that_need_the_same_read_it_once(store, cache):
    put_many(store, 8, 4 * MIB)
    gate = threading.Event()

    def hold(h, method, path, asked):
        if is_get(method, path, asked):
            gate.wait()
        return False
    hold.keep = True
    store.fail(hold)
    uris = [f"{store.url}/o{{0..7}}"]
    programs = [Program(order(uris, cache, stores=https(store))) for _ in range(3)]
    wait_until(lambda: store.count("HEAD") == 24 and store.count("GET") == 8, 30, "all processes")
    gate.set()
    for program in programs:
        program.wait()
        good(program)
        program.close()
    assert store.count("GET") == 8 and len(copies(cache)) == 8


def test_a_process_whose_space_another_one_has_reserved_waits_for_it(store, cache):
    put_many(store, 2, 2 * MIB)
    gate = threading.Event()

    def hold(h, method, path, asked):
        if is_get(method, path, asked) and path == "/o0":
            gate.wait()
        return False
    hold.keep = True
    store.fail(hold)
    first = Program(order([store.url + "/o0"], cache, mib=3, stores=https(store)))
    wait_until(lambda: store.count("GET") == 1, 30, "the first process")
    second = Program(order([store.url + "/o1"], cache, mib=3, stores=https(store)))
    while not second.events("data_fetching"):
        assert second.read(60)
    assert "wait for space" in second.events("data_fetching")[0] and store.count("GET", "/o1") == 0
    first.kill()
    second.wait()
    good(second)
    second.close()
    gate.set()


# ---- kills ----

def test_after_a_kill_only_the_missing_pieces_are_read(store, cache):
    data = os.urandom(96 * MIB)
    store.put("/a", data)
    gate = threading.Event()

    def hold(h, method, path, asked):
        if is_get(method, path, asked) and asked.startswith("bytes=83886080"):
            gate.wait()
        return False
    hold.keep = True
    store.fail(hold)
    program = Program(order([store.url + "/a"], cache, stores=https(store)))
    (part,) = wait_until(lambda: list((cache / "parts").glob("*")) if (cache / "parts").exists() else None, 30, "the part")
    wait_until(lambda: part.read_bytes()[96 * MIB:96 * MIB + 6].count(b"1") == 5, 30, "five pieces")
    program.kill()
    gate.set()
    store.faults.clear()
    store.requests.clear()
    good(fetched([store.url + "/a"], cache, stores=https(store)))
    assert [r for m, _, r, _ in store.requests if m == "GET"] == [f"bytes={80 * MIB}-{96 * MIB - 1}"]
    assert copies(cache) == {sha256(data): data} and not list((cache / "parts").iterdir())


def test_the_cache_is_whole_after_kills_at_random_moments(store, cache):
    seed = int(os.environ.get("TRAINYARD_SEED", random.randrange(1 << 30)))
    print(f"TRAINYARD_SEED={seed}")
    draw = random.Random(seed)
    kills = int(os.environ.get("TRAINYARD_KILLS", 8 if SANITIZED else 25))
    put_many(store, 40, 300 * 1000)
    for i in range(40, 44):
        store.put(f"/o{i}", random.Random(i).randbytes(20 * MIB))
    uris = [f"{store.url}/o{{0..43}}"]
    digests = {sha256(data) for data in store.objects.values()}
    for _ in range(kills):
        program = Program(order(uris, cache, mib=200, stores=https(store)))
        read = store.count("GET")
        more = draw.randrange(60)
        wait_until(lambda: store.count("GET") >= read + more or program.process.poll() is not None or
                   select_last(program), 30, "some requests")
        time.sleep(draw.random() * 0.02)
        program.kill()
        assert names(cache) <= digests and copies(cache).keys() <= digests
        if draw.random() < 0.3:
            shutil.rmtree(cache / "objects", ignore_errors=True)
    good(fetched(uris, cache, mib=200, stores=https(store)))
    assert copies(cache).keys() == digests and not list((cache / "parts").iterdir())
    read = store.count("GET")
    good(fetched(uris, cache, mib=200, stores=https(store)))
    assert store.count("GET") == read and not list((cache / "uses").iterdir())


def select_last(program):
    import select
    while select.select([program.records], [], [], 0)[0] and program.read(0):
        pass
    return program.last
