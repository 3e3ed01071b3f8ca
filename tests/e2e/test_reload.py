"""SIGHUP: the controller reads its options and certificates again, and no stream ends. What it says to a supervisor."""

import json
import signal
import socket
import ssl
import subprocess
import tempfile

import pytest

from monitored import Monitored
from service_fixture import BIN, PATIENCE, wait_until


def make_pair(folder, name):
    """Replaces FOLDER/cert.pem and key.pem by a new pair for 127.0.0.1."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True)


def shown_certificate(c):
    port = int(c.tls_address.rsplit(":", 1)[1])
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=30 * PATIENCE)


class Supervisor:
    """A socket as systemd's, and what came to it."""

    def __init__(self, folder):
        self.path = f"{folder}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(120 * PATIENCE)

    def expect(self, *messages):
        """Reads until each of these has come, in this order."""
        for message in messages:
            while self.socket.recv(100).decode() != message:
                pass


@pytest.fixture
def controller(shared_service, tmp_path):
    made = []

    def make(database, options, environment=None):
        c = Monitored(shared_service, tmp_path, database, options)
        if environment:
            own = c.service.environment() | environment
            c.service = type("Service", (), {"environment": staticmethod(lambda: dict(own))})()
        made.append(c)
        return c
    yield make
    for c in made:
        c.stop()


def reload(c, event):
    before = c.log().count(event)
    c.process.send_signal(signal.SIGHUP)
    wait_until(lambda: c.log().count(event) > before, 60, event)


def test_options_of_a_file_are_read_again_and_an_executor_stays(controller, tmp_path, tiny):
    options = tmp_path / "options"
    options.write_text("# what may change\nmax-jobs 1\nlog-level = warn\n")
    c = controller("reloads", ["--options", options]).launch()
    assert c.process.stdout.readline().startswith("ready ")
    assert "leading" not in c.log(), "log-level of the file"
    c.submit(tiny(steps=3))
    wait_until(lambda: "--max-jobs" in c.cli("submit", tmp_path / "submitted.json", "--wait-for-hosts", status=None).stderr, 60,
               "a refusal")
    options.write_text("max-jobs 500\nlog-level info\n")
    reload(c, " reloaded")
    c.submit(tiny(steps=3))
    executor = c.executor("stays")
    wait_until(lambda: "executor_attached executor=" + executor in c.log(), 60, "the attach")
    options.write_text("max-jobs many\n")
    reload(c, "not_reloaded")
    assert "--options: " in c.log() and ":1: --max-jobs: 'many' is not from 1 to 10000000" in c.log()
    options.write_text("log-level warn\nno-such-option 1\n")
    reload(c, "not_reloaded")
    assert ":2: 'no-such-option' is not an option of a file" in c.log()
    assert "executor_detached" not in c.log(), "log-level is still info: a file with an error changes nothing"
    assert c.process.poll() is None


def test_a_renewed_certificate_is_shown_after_sighup(controller, tmp_path):
    make_pair(tmp_path, "first")
    c = controller("renews", ["--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem", "--listen", "127.0.0.1:0"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        c.tls_address = f"127.0.0.1:{free.getsockname()[1]}"
    c.options[-1] = c.tls_address
    c.start()
    first = shown_certificate(c)
    assert first == (tmp_path / "cert.pem").read_text()
    make_pair(tmp_path, "second")
    assert shown_certificate(c) == first, "not before the signal"
    reload(c, " reloaded")
    assert shown_certificate(c) == (tmp_path / "cert.pem").read_text() != first
    (tmp_path / "key.pem").write_text("none\n")
    reload(c, "not_reloaded")
    assert shown_certificate(c) == (tmp_path / "cert.pem").read_text()


def test_a_supervisor_learns_when_it_serves_lives_reloads_and_stops(controller, tmp_path):
    supervisor = Supervisor(tmp_path)
    c = controller("supervised", [], {"NOTIFY_SOCKET": supervisor.path, "WATCHDOG_USEC": "3000000"}).start()
    supervisor.expect("READY=1", "WATCHDOG=1", "WATCHDOG=1")
    c.process.send_signal(signal.SIGHUP)
    supervisor.expect("RELOADING=1", "READY=1", "WATCHDOG=1")
    c.process.send_signal(signal.SIGTERM)
    supervisor.expect("STOPPING=1")
    assert c.process.wait(60 * PATIENCE) == 0


def test_an_executor_takes_another_token_without_ending_a_rank(controller, tmp_path, tiny):
    c = controller("tokens", [])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        tcp = f"127.0.0.1:{free.getsockname()[1]}"
    c.options += ["--listen", tcp]
    c.start()

    def new_token(name):
        return c.cli("token", "create", name, "--role", "EXECUTOR").stdout.strip().splitlines()[-1]

    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(new_token("first") + "\n")
    with open(tmp_path / "executor.log", "wb") as log:
        agent = subprocess.Popen([BIN / "trainyard-executor", "--controller", tcp, "--directory", tmp_path / "executor", "--slots", "1",
                                  "--data-root", tempfile.gettempdir(), "--checkpoint-root", tmp_path / "checkpoints", "--worker",
                                  BIN / "trainyard-worker", "--token-file", token], stdout=subprocess.PIPE, stderr=log, text=True,
                                 env=c.service.environment())
    c.executors.append(agent)
    assert agent.stdout.readline().startswith("ready ")

    def logged(event):
        return (tmp_path / "executor.log").read_text().count(event)

    job = c.submit(tiny(steps=1_000_000, every=1_000_000, train__learning_rate_schedule={"constant": {}}))

    def got():
        return json.loads(c.cli("get", job, "-o", "json").stdout)
    wait_until(lambda: got().get("state") == "RUNNING" and int(got().get("step", 0)) > 0, 120, "the job trains")
    pid = got()["attempts"][0]["placements"][0]["pid"]
    token.write_text("")
    agent.send_signal(signal.SIGHUP)
    wait_until(lambda: logged("not_reloaded") == 1, 60, "an empty file is no token")
    token.write_text(new_token("second") + "\n")
    agent.send_signal(signal.SIGHUP)
    wait_until(lambda: logged(" reloaded") == 1, 60, "the new token")
    assert logged(" detached ") == 0, "the streams stay"
    c.cli("token", "revoke", "first")
    wait_until(lambda: logged(" attached ") == 2, 120, "the executor attaches with the second token")
    step = int(got()["step"])
    wait_until(lambda: int(got()["step"]) > step, 120, "reports arrive")
    assert (got()["attempt"], got()["attempts"][0]["placements"][0]["pid"]) == (1, pid)
    c.cli("cancel", job)
