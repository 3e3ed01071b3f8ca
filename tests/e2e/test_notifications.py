"""Notifications: signed webhooks and commands, with receivers that are slow, away, refuse or redirect, and a controller that
is killed before it has delivered."""

import collections
import hashlib
import hmac
import http.server
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time

import pytest

from monitored import Monitored
from service_fixture import PATIENCE, wait_until

KEY = "a key of at least sixteen bytes"


class Receiver:
    """Answers with `answers` in turn, then with 200. An answer is a status, or a function of the handler."""

    def __init__(self, port=0, tls=None):
        """tls: the SSLContext of a server for https."""
        self.got, self.answers, self.redirected = [], collections.deque(), 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                answer = receiver.answers.popleft() if receiver.answers else 200
                status = answer(self) if callable(answer) else answer
                try:
                    self.send_response(status)
                    if status == 302:
                        self.send_header("Location", "/elsewhere")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # the sender no longer waits

            def do_GET(self):
                receiver.redirected += 1
                self.send_error(404)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.scheme = "https" if tls else "http"
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    def bodies(self):
        return [json.loads(body) for _, body in self.got]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def is_signed(key, headers, body):
    """As docs/monitoring.md describes it."""
    signed = headers["X-Trainyard-Timestamp"].encode() + b"." + body
    wanted = "sha256=" + hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted, headers["X-Trainyard-Signature"])


@pytest.fixture
def receiver():
    r = Receiver()
    yield r
    r.close()


def configure(folder, targets):
    key, path = folder / "key", folder / "notify.yaml"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    path.write_text(json.dumps({"targets": targets}))
    return path


def hook(folder, receiver, name="hook", **more):
    return {"name": name, "webhook": {"url": receiver if isinstance(receiver, str) else receiver.url(),
                                      "secret_file": str(folder / "key"), **more.pop("webhook", {})}, **more}


@pytest.fixture
def service_with(shared_service, tmp_path, request):
    """A function that starts a controller with these targets."""
    started = []

    def start(targets, name="n" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]):
        started.append(Monitored(shared_service, tmp_path, name, ["--notify", configure(tmp_path, targets)]))
        return started[-1].start()
    yield start
    for c in started:
        c.stop()


def cancelled(c, tiny):
    """A job that is cancelled while it waits for an executor."""
    job = c.submit(tiny(), "--skip-check")
    c.cli("cancel", job)
    return job


def test_a_jobs_end_is_delivered_once_and_signed(service_with, receiver, tmp_path, tiny):
    c = service_with([hook(tmp_path, receiver)])
    c.executor("cpu")
    job = c.submit(tiny(steps=4))
    wait_until(lambda: receiver.got, 60, "a notification")
    headers, body = receiver.got[0]
    message = json.loads(body)
    assert message | {"delivery": "", "time": ""} == {
        "delivery": "", "event": "SUCCEEDED", "time": "", "job": f"jobs/{job}", "job_name": "tiny", "state": "SUCCEEDED", "attempt": 1,
        "executor": "", "message": ""}
    assert headers["X-Trainyard-Event"] == "SUCCEEDED" and headers["X-Trainyard-Delivery"] == message["delivery"]
    assert abs(time.time() - int(headers["X-Trainyard-Timestamp"])) < 60 * PATIENCE and headers["Content-Type"] == "application/json"
    assert is_signed(KEY, headers, body)
    assert not is_signed(KEY + "?", headers, body) and not is_signed(KEY, headers, body + b" ")
    assert not is_signed(KEY, headers | {"X-Trainyard-Timestamp": "1"}, body)
    wait_until(lambda: c.value("trainyard_notifications_total", target="hook", result="delivered") == 1, 30, "the count")
    c.cli("submit", "--wait-for-hosts", c.directory / "submitted.json")
    wait_until(lambda: len(receiver.got) > 1, 60, "the next one")
    assert len({m["delivery"] for m in receiver.bodies()}) == len(receiver.got) == 2  # nothing was sent twice
    assert KEY not in c.log()


def test_a_receiver_that_fails_gets_the_same_delivery_again_and_one_that_refuses_does_not(service_with, receiver, tmp_path, tiny):
    url = receiver.url().replace("://", "://hidden:hidden@") + "hidden"
    c = service_with([hook(tmp_path, url, events=["CANCELLED"])])
    receiver.answers.extend([500, 302, 400])
    for _ in range(2):
        cancelled(c, tiny)
    wait_until(lambda: len(receiver.got) == 4, 60, "three tries and the next notification")
    first, second, third, other = receiver.bodies()
    assert first == second == third and other["delivery"] != first["delivery"] and other["job"] != first["job"]
    assert receiver.redirected == 0
    wait_until(lambda: c.value("trainyard_notifications_total", result="delivered") == 1, 30, "the count")
    assert c.value("trainyard_notifications_total", result="failed_try") == 3
    assert c.value("trainyard_notifications_total", result="given_up") == 1
    assert re.search(r"notification_given_up target=hook .* about=CANCELLED job=1 tries=3 reason=.*status 400", c.log())
    assert "hidden" not in c.log()


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_a_slow_and_an_absent_receiver_delay_nothing_else(service_with, receiver, tmp_path, tiny):
    slow, done = Receiver(), threading.Event()
    slow.answers.append(lambda handler: done.wait(300) and 200)
    port = closed_port()
    c = service_with([hook(tmp_path, slow, "slow", events=["QUEUED"], webhook={"timeout_seconds": 300}),
                      hook(tmp_path, f"http://127.0.0.1:{port}/", "absent"), hook(tmp_path, receiver, "good")])
    c.executor("cpu")
    c.submit(tiny(steps=4))
    wait_until(lambda: receiver.got, 60, "the notification of the good receiver")
    wait_until(lambda: c.value("trainyard_notifications_total", target="absent", result="failed_try"), 30, "a try of the absent one")
    assert len(slow.got) == 1 and c.value("trainyard_notifications_total", target="slow", result="delivered") == 0
    late = Receiver(port)  # the absent receiver comes back
    wait_until(lambda: late.got, 60, "its notification")
    assert late.bodies()[0]["event"] == "SUCCEEDED"
    begun = time.monotonic()
    c.stop()  # does not wait for the slow one
    assert time.monotonic() - begun < 30 * PATIENCE
    done.set()
    late.close()
    slow.close()


def test_a_controller_that_is_killed_before_a_delivery_delivers_after_its_next_start(service_with, tmp_path, tiny):
    port = closed_port()
    c = service_with([hook(tmp_path, f"http://127.0.0.1:{port}/")])
    cancelled(c, tiny)
    wait_until(lambda: c.value("trainyard_notifications_total", result="failed_try"), 30, "a try")
    c.kill()
    receiver = Receiver(port)
    # Killed after the receiver has it, and before the controller knows: it is delivered again, under the same id.
    receiver.answers.append(lambda handler: c.kill() or 200)
    try:
        c.start()
    except AssertionError:
        pass  # it may be killed before it is ready
    wait_until(lambda: c.process.poll() is not None, 60, "the second kill")
    c.start()
    wait_until(lambda: len(receiver.got) == 2, 60, "the second delivery")
    wait_until(lambda: c.value("trainyard_notifications_total", result="delivered") == 1, 30, "the count")
    first, second = receiver.bodies()
    assert first == second and first["event"] == "CANCELLED" and len(receiver.got) == 2
    receiver.close()


def test_only_the_leader_delivers(service_with, receiver, shared_service, tmp_path, tiny):
    c = service_with([hook(tmp_path, receiver)])
    standby = Monitored.beside(c, tmp_path / "standby")
    standby.launch()
    wait_until(lambda: "http_listens" in standby.log(), 60, "the standby")
    cancelled(c, tiny)
    wait_until(lambda: receiver.got, 60, "a notification")
    c.kill()
    standby.await_ready()
    cancelled(standby, tiny)
    wait_until(lambda: len(receiver.got) >= 2, 60, "a notification of the new leader")
    assert {m["job"] for m in receiver.bodies()} == {"jobs/1", "jobs/2"}
    standby.stop()


def test_a_command_gets_the_notification_and_nothing_of_the_controller(service_with, tmp_path, tiny):
    program, out = tmp_path / "program", tmp_path / "out"
    program.write_text(f"#!/bin/sh\ncat > {out}.$TRAINYARD_EVENT\nenv > {out}.env\nfor f in /proc/$$/fd/*; do readlink $f; done > {out}.fds\nexit 0\n")
    program.chmod(0o755)
    c = service_with([{"name": "command", "events": ["CANCELLED", "QUEUED"],
                       "command": {"argv": [str(program), "word"], "environment": ["GREETING=hello there"]}}])
    job = cancelled(c, tiny)
    wait_until(lambda: c.value("trainyard_notifications_total", result="delivered") == 2, 60, "two runs")
    message = json.loads((tmp_path / "out.CANCELLED").read_text())
    assert message["job"] == f"jobs/{job}" and message["state"] == "CANCELLED"
    environment = dict(line.split("=", 1) for line in (tmp_path / "out.env").read_text().splitlines() if "=" in line)
    assert {k for k in environment if k not in ("PWD", "OLDPWD", "SHLVL", "_")} == {
        "PATH", "LANG", "TRAINYARD_EVENT", "TRAINYARD_DELIVERY", "TRAINYARD_JOB", "GREETING"}
    assert environment["TRAINYARD_JOB"] == f"jobs/{job}" and environment["TRAINYARD_DELIVERY"] == message["delivery"]
    files = (tmp_path / "out.fds").read_text().split()  # also those of the shell itself
    assert len(files) > 2 and all(f == "/dev/null" or f.startswith(("pipe:", str(program), str(out))) for f in files), files


def test_a_command_that_fails_or_takes_too_long_is_killed_with_its_children_and_runs_again(service_with, tmp_path, tiny):
    program, marks = tmp_path / "program", tmp_path / "marks"
    program.write_text(f"""#!/bin/sh
echo x >> {marks}
case $(wc -l < {marks}) in
1) echo "the mail server is away" >&2; exit 3;;
2) sleep 987 & echo $! > {tmp_path}/child; wait;;
esac
""")
    program.chmod(0o755)
    c = service_with([{"name": "command", "events": ["CANCELLED"], "command": {"argv": [str(program)], "timeout_seconds": 1}}])
    cancelled(c, tiny)
    wait_until(lambda: c.value("trainyard_notifications_total", result="delivered") == 1, 60, "the third run")
    assert "ended with status 3: the mail server is away" in c.log()
    assert "did not end within 1 seconds" in c.log()
    assert not os.path.exists(f"/proc/{(tmp_path / 'child').read_text().strip()}")


def test_restarts_lost_executors_and_quarantined_devices_are_events(service_with, receiver, tmp_path, tiny):
    c = service_with([hook(tmp_path, receiver, events=["RESTARTING", "executor_lost", "device_quarantined"])])
    c.executor("cpu", slots=1)
    job = c.submit(tiny(steps=1000000))
    wait_until(lambda: c.value("trainyard_job_step"), 60, "a step")
    c.executors[0].kill()
    wait_until(lambda: {m["event"] for m in receiver.bodies()} >= {"RESTARTING", "executor_lost"}, 60, "both")
    by_event = {m["event"]: m for m in receiver.bodies()}
    assert by_event["RESTARTING"]["job"] == f"jobs/{job}" and by_event["executor_lost"]["executor"].startswith("executors/")
    gpu = c.executor("gpu", driver=c.driver(tmp_path))
    (c.directory / "gpu.script").write_text("xid 1 79\n")
    wait_until(lambda: any(m["event"] == "device_quarantined" for m in receiver.bodies()), 60, "the quarantine")
    found = [m for m in receiver.bodies() if m["event"] == "device_quarantined"]
    assert len(found) == 1 and found[0]["executor"] == f"executors/{gpu}" and "Xid 79" in found[0]["message"], found


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A CA, and a function that makes the SSLContext of a server whose certificate it has signed for a name."""
    folder = tmp_path_factory.mktemp("authority")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

    def run(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)
    run("req", "-x509", *new_key, "-days", "2", "-subj", "/CN=the CA of this test", "-keyout", "ca.key", "-out", "ca.pem")

    def server(name):
        run("req", *new_key, "-subj", "/CN=a receiver", "-keyout", "server.key", "-out", "server.csr")
        (folder / "names").write_text(f"subjectAltName={name}\n")
        run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names",
            "-out", "server.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        return context
    return folder / "ca.pem", server


def test_a_webhook_over_https_is_sent_to_a_trusted_certificate_of_its_host_only(service_with, authority, tmp_path, tiny):
    ca, server = authority
    good, elsewhere = Receiver(tls=server("IP:127.0.0.1")), Receiver(tls=server("DNS:elsewhere.example"))
    trusts = {"ca_file": str(ca)}
    c = service_with([hook(tmp_path, good, "good", webhook=trusts), hook(tmp_path, good, "untrusted"),
                      hook(tmp_path, elsewhere, "elsewhere", webhook=trusts)])
    cancelled(c, tiny)
    for target in ("untrusted", "elsewhere"):
        wait_until(lambda: c.value("trainyard_notifications_total", target=target, result="failed_try"), 60, "a try")
    wait_until(lambda: c.value("trainyard_notifications_total", target="good", result="delivered") == 1, 60, "the delivery")
    (headers, body), = good.got  # the untrusted target has sent nothing
    assert is_signed(KEY, headers, body) and json.loads(body)["event"] == "CANCELLED" and elsewhere.got == []
    def reason(target):
        return re.search(rf'notification_failed target={target} .* reason="(.*)"', c.log())[1]
    assert re.match(rf"https://127.0.0.1:{good.port}: .*certificate.*webhook.ca_file can name the CA", reason("untrusted"))
    assert re.match(rf"https://127.0.0.1:{elsewhere.port}: .*certificate.*'127.0.0.1'", reason("elsewhere"))
    good.close()
    elsewhere.close()


def test_a_wrong_file_is_one_sentence(service_with, tmp_path):
    with pytest.raises(AssertionError):
        service_with([{"name": "a", "command": {"argv": ["relative"]}}], "wrong")
    log = (tmp_path / "controller.log").read_text().splitlines()
    assert log[-1] == (f"trainyard-controller: --notify: '{tmp_path}/notify.yaml': targets[0].command.argv: the first word must be "
                       "the absolute path of a program")
