"""`trainyard join`: a new host becomes an executor with one command, and only with a token that is good."""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile

import pytest

from object_store import Store, free_ports
from service_fixture import BIN, PATIENCE, ROOT, Database, Service, wait_until
from store_hosts import children

TLS = ("--tls-ca", "good.pem", "--tls-cert", "server.pem", "--tls-key", "server.key")


class Cluster:
    """A controller with mutual TLS and the key of its CA, on a database of its own."""

    def __init__(self, directory, up):
        self.directory, self.environment = directory, up.environment()
        subprocess.run(["sh", ROOT / "tests" / "rpc" / "certificates.sh", directory], check=True, capture_output=True)
        self.database, self.up = Database(up, "joining"), up
        self.processes = []
        arguments = ["--checkpoints", directory / "checkpoints", "--listen", f"unix:{directory}/controller.sock", "--listen",
                     "127.0.0.1:0", "--join", "127.0.0.1:0", "--ca-key", "good.key", *TLS]
        self.start([BIN / "trainyard-controller", "--database", self.database.conninfo, *arguments], "controller.log")

    def start(self, command, log):
        """Starts a program and waits until it prints `ready`."""
        process = subprocess.Popen(command, cwd=self.directory, env=self.environment, text=True, stdout=subprocess.PIPE,
                                   stderr=open(self.directory / log, "ab"))
        self.processes.append(process)

        def ready():
            assert process.poll() is None, (self.directory / log).read_text()[-2000:]
            can, _, _ = select.select([process.stdout], [], [], 0.1)
            return can and process.stdout.readline().startswith("ready ")
        wait_until(ready, 60, f"{command[0]} is ready")
        return process

    def cli(self, *arguments, status=0):
        environment = dict(self.environment, TRAINYARD_CONTROLLER=f"unix:{self.directory}/controller.sock")
        done = subprocess.run([BIN / "trainyard", *arguments], env=environment, cwd=self.directory, capture_output=True, text=True,
                              timeout=120 * PATIENCE)
        assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def join_token(self, name, *more):
        return self.cli("token", "create", name, "--join", *more).strip()

    def join(self, token, name):
        """A join that is refused: its exit status and sentence."""
        done = subprocess.run([BIN / "trainyard", "join", token, "--foreground", "--directory", self.directory / name], text=True,
                              env=self.environment, capture_output=True, timeout=120 * PATIENCE)
        assert not (self.directory / name / "joined.conf").exists() and done.stdout == ""
        return done.returncode, done.stderr

    def host(self, name, token, *more):
        """A host that joins and runs its executor."""
        return self.start([BIN / "trainyard", "join", token, "--foreground", "--directory", self.directory / name, "--", "--slots", "1",
                           "--checkpoint-root", self.directory / "checkpoints", "--data-root", tempfile.gettempdir(), *more],
                          f"{name}.log")

    def attached(self):
        return [row for row in json.loads(self.cli("executors", "-o", "json")).get("executors", []) if row["state"] == "ATTACHED"]


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="trainyard-join-") as directory:
        directory = pathlib.Path(directory)
        (directory / "up").mkdir()
        (directory / "checkpoints").mkdir()
        up = Service(directory / "up", executors=0).start()
        cluster = None
        try:
            cluster = Cluster(directory, up)
            yield cluster
        finally:
            for process in reversed(cluster.processes if cluster else []):
                process.terminate()
                process.wait(60 * PATIENCE)
            up.stop()


def test_a_joined_host_runs_jobs_until_its_token_is_revoked(cluster, tiny):
    token = cluster.join_token("gpu-1")
    host = cluster.host("gpu-1", token)
    assert len(cluster.attached()) == 1
    files = {path.name: path.stat().st_mode & 0o777 for path in (cluster.directory / "gpu-1").iterdir() if path.is_file()}
    assert files == dict.fromkeys(("ca.pem", "cert.pem", "key.pem", "token", "joined.conf"), 0o600)
    assert "gpu-1" in cluster.cli("token", "list") and "EXECUTOR" in cluster.cli("token", "list")
    (cluster.directory / "job.json").write_text(json.dumps(tiny(steps=5)))
    cluster.cli("watch", cluster.cli("submit", "job.json").strip())

    status, sentence = cluster.join(token, "gpu-1-again")
    assert status == 6 and "the join token was used, was revoked, has expired, or is wrong: " in sentence

    cluster.cli("token", "revoke", "gpu-1")
    wait_until(lambda: not cluster.attached(), 60, "the executor is lost")
    host.terminate()
    host.wait(60 * PATIENCE)
    refused = subprocess.run([BIN / "trainyard", "join", token, "--foreground", "--directory", cluster.directory / "gpu-1"],
                             capture_output=True, text=True, env=cluster.environment)
    assert refused.stderr == f"trainyard: this host has joined already; to join again, remove '{cluster.directory}/gpu-1/joined.conf'\n"


def test_a_certificate_of_a_joined_host_serves_nobody(cluster):
    """Else a host could pretend to be the controller, whose name it may have chosen."""
    host = cluster.host("localhost", cluster.join_token("localhost"))
    host.terminate()
    host.wait(60 * PATIENCE)

    def verify(purpose):
        return subprocess.run(["openssl", "verify", "-CAfile", "good.pem", "-purpose", purpose, "localhost/cert.pem"],
                              cwd=cluster.directory, capture_output=True).returncode
    assert verify("sslclient") == 0 and verify("sslserver") != 0


def renew_key(cluster, host, name):
    """A new key, with a certificate as that of a join; and the executor is told."""
    folder = cluster.directory / name
    script = (f"openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout new.key -out new.csr\n"
              "echo extendedKeyUsage=clientAuth > new.ext\n"
              "openssl x509 -req -in new.csr -CA ../good.pem -CAkey ../good.key -CAcreateserial -days 2 -extfile new.ext -out new.pem\n"
              "mv new.key key.pem && mv new.pem cert.pem")
    subprocess.run(["bash", "-ec", script], check=True, capture_output=True, cwd=folder)
    (executor,) = [pid for pid in (host.pid, *children(host.pid, "trainyard-executor"))
                   if b"trainyard-executor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]]
    os.kill(executor, signal.SIGHUP)
    log = cluster.directory / f"{name}.log"
    wait_until(lambda: all(log.read_text().count(event) == 2 for event in (" cache_served ", " attached ")), 60 * PATIENCE,
               "the host serves its cache with the new key, and attaches with its offer")


@pytest.mark.parametrize("renewed", [False, True])
def test_a_joined_host_reads_the_copies_of_another_one_with_its_certificate(cluster, tiny, text_file, renewed):
    """Those certificates are for clients alone, and name no address. renewed: the other one has another key since it started."""
    with contextlib.closing(Store()) as store:
        store.put("/bucket/text", text_file.read_bytes())
        spec = tiny(steps=2)
        spec["data"]["text"]["files"], spec["stores"] = ["s3://bucket/text"], {"s3": {"endpoint": store.url}}
        (cluster.directory / "peers.json").write_text(json.dumps(spec))
        hosts = []
        for name, port in zip((f"cache-1-{renewed}", f"cache-2-{renewed}"), free_ports(2)):
            hosts.append(cluster.host(name, cluster.join_token(name), "--cache-listen", f"0.0.0.0:{port}"))
            cluster.cli("watch", cluster.cli("submit", "peers.json").strip())
            if len(hosts) == 1 and renewed:
                renew_key(cluster, hosts[0], name)
                cluster.cli("watch", cluster.cli("submit", "peers.json").strip())  # the controller learns again who has the data
            if len(hosts) == 1:
                cluster.cli("drain", cluster.attached()[0]["name"])
        assert store.count("GET", "/bucket/text") == 1 and store.count("HEAD", "/bucket/text") >= 2
        for host in hosts:
            host.terminate()
            host.wait(60 * PATIENCE)


def test_a_revoked_token_is_refused(cluster):
    token = cluster.join_token("revoked")
    cluster.cli("token", "revoke", "revoked")
    status, sentence = cluster.join(token, "revoked")
    assert status == 6 and sentence.endswith(": the token 'revoked' was revoked\n")


def test_an_expired_token_is_refused(cluster):
    token = cluster.join_token("expired", "--expires", "30m")
    cluster.database.sql("UPDATE token SET create_time = now() - interval '2 h', expire_time = now() - interval '1 h' "
                         "WHERE name = 'expired'")
    status, sentence = cluster.join(token, "expired")
    # The second sentence follows if the controller read its tokens just before the update.
    assert status == 6 and sentence.endswith((": the token 'expired' has expired\n",
                                              ": the token 'expired' was used, has expired or was revoked\n"))


def test_a_token_with_another_fingerprint_is_not_sent(cluster):
    token = cluster.join_token("damaged")
    address, fingerprint, secret = token.split("/")
    wrong = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    status, sentence = cluster.join(f"{address}/{wrong}/{secret}", "damaged")
    assert status == 1 and sentence == (f"trainyard: {address} does not show the CA that the join token names by its fingerprint: another server "
                                        "answers, or the join token is damaged; nothing was sent\n")
    assert not (cluster.directory / "damaged").exists() or not list((cluster.directory / "damaged").iterdir())


def test_a_man_in_the_middle_who_shows_the_right_ca_gets_no_secret(cluster):
    _, fingerprint, secret = cluster.join_token("observed").split("/")
    observer = subprocess.Popen(["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", "stranger.pem", "-key", "stranger.key",
                                 "-cert_chain", "good.pem", "-alpn", "h2"], cwd=cluster.directory, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with contextlib.ExitStack() as stack:
        stack.callback(observer.kill)
        line = next(line for line in observer.stdout if line.startswith("ACCEPT"))
        status, sentence = cluster.join(f"localhost:{line.strip().rpartition(':')[2]}/{fingerprint}/{secret}", "observed")
        assert status == 5 and "cannot be reached" in sentence
        observer.kill()
        seen = observer.stdout.read()
    assert "CIPHER" in seen and "trainyard_" not in seen and secret not in seen


@pytest.mark.parametrize("token", ["", "localhost:1", "localhost:1/ab/cd", "unix:/x/" + "0" * 64 + "/trainyard_" + "0" * 64,
                                  "localhost:1/" + "x" * 64 + "/trainyard_" + "0" * 64])
def test_what_is_no_token_is_refused_without_repeating_it(cluster, token):
    status, sentence = cluster.join(token, "none")
    assert status == 2 and sentence == ("trainyard: the join token is not HOST:PORT/FINGERPRINT/SECRET, as 'trainyard token create NAME --join' "
                                        "prints it\n")


def test_a_controller_without_the_key_of_its_ca_makes_no_token(cluster):
    done = subprocess.run([BIN / "trainyard", "token", "create", "gpu-9", "--join"], env=cluster.environment, capture_output=True,
                          text=True, timeout=60 * PATIENCE)
    assert done.returncode == 1 and done.stderr == ("trainyard: no host can join: this controller has no key of a CA (its options --ca-key "
                                                    "and --join)\n")


@pytest.mark.parametrize("options, sentence", [
    (["--join", "127.0.0.1:0", *TLS], "--join and --ca-key belong together, and need --tls-ca"),
    (["--join", "127.0.0.1:0", "--ca-key", "good.key"], "--join and --ca-key belong together, and need --tls-ca"),
    (["--join", "unix:/tmp/x", "--ca-key", "good.key", *TLS], "--join: 'unix:/tmp/x' is not host:port"),
    (["--join", "127.0.0.1:0", "--ca-key", "other.key", *TLS], "--ca-key: 'other.key' is not the key of the certificate 'good.pem'"),
    (["--join", "127.0.0.1:0", "--ca-key", "open.key", *TLS],
     "--ca-key: 'open.key' has the mode 0644: others than its owner may use the key; run chmod 600 'open.key'"),
])
def test_a_controller_starts_only_with_the_key_of_its_ca(cluster, options, sentence):
    shutil.copy(cluster.directory / "good.key", cluster.directory / "open.key")
    (cluster.directory / "open.key").chmod(0o644)
    done = subprocess.run([BIN / "trainyard-controller", "--database", cluster.database.conninfo, "--checkpoints", "/tmp", "--listen",
                           "127.0.0.1:0", *options], cwd=cluster.directory, env=cluster.environment, capture_output=True, text=True,
                          timeout=60 * PATIENCE)
    assert done.returncode in (1, 2) and done.stderr.splitlines()[-1] == f"trainyard-controller: {sentence}"
