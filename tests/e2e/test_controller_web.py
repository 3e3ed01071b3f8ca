"""`trainyard-controller --web`: the page for everyone who has a token, and what tokens, TLS and bad clients get there."""

import http.client
import json
import os
import pathlib
import re
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

import pytest

from service_fixture import BIN, PATIENCE, ROOT, Database, wait_until

CHROMIUM = shutil.which("chromium")
# A folder with playwright-core, as `npm install playwright-core` makes it.
NODE_MODULES = os.environ.get("TRAINYARD_NODE_MODULES")
HERE = pathlib.Path(__file__).parent


class Controller:
    """A controller of its own, on a database of its own in the cluster of `up`. Its page is where other machines reach it."""

    def __init__(self, directory, up, web, *options):
        self.directory, self.socket, self.log = directory, f"unix:{directory}/controller.sock", directory / "log"
        self.environment, self.database = up.environment(), Database(up, f"web{time.monotonic_ns()}")
        self.process = subprocess.Popen(
            [BIN / "trainyard-controller", "--database", self.database.conninfo, "--checkpoints", directory / "checkpoints",
             "--listen", self.socket, "--web", web, *options],
            stdout=subprocess.PIPE, stderr=open(self.log, "ab"), text=True, env=self.environment)
        ready, _, _ = select.select([self.process.stdout], [], [], 60 * PATIENCE)
        assert ready and self.process.stdout.readline().startswith("ready "), self.log.read_text()[-2000:]
        self.scheme, self.port = re.search(r"web_listens address=\W*(https?)://[^:]+:(\d+)", self.log.read_text()).groups()
        self.port = int(self.port)
        self.host = f"127.0.0.1:{self.port}"

    def cli(self, *arguments):
        environment = dict(self.environment, TRAINYARD_CONTROLLER=self.socket)
        return subprocess.run([BIN / "trainyard", *arguments], env=environment, capture_output=True, text=True, check=True,
                              timeout=120 * PATIENCE).stdout.strip()

    def token(self, name, role):
        return self.cli("token", "create", name, "--role", role)

    def connection(self):
        if self.scheme == "http":
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * PATIENCE)
        context = ssl.create_default_context(cafile=self.directory / "good.pem")
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60 * PATIENCE, context=context)

    def request(self, method, path, body=None, **headers):
        connection = self.connection()
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items() if value})
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def call(self, name, request=None, token=None, **headers):
        return self.request("POST", f"/api/{name}", json.dumps(request or {}),
                            Authorization=token and f"Bearer {token}", **headers)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(40 * PATIENCE) == 0, self.log.read_text()[-2000:]


@pytest.fixture(scope="module")
def directory():
    with tempfile.TemporaryDirectory(prefix="trainyard-web-") as directory:
        subprocess.run(["sh", ROOT / "tests/rpc/certificates.sh", directory], check=True, capture_output=True)
        yield pathlib.Path(directory)


def tls(directory):
    return "--tls-cert", directory / "server.pem", "--tls-key", directory / "server.key"


@pytest.fixture(scope="module")
def controller(shared_service, directory):
    controller = Controller(directory, shared_service, "0.0.0.0:0", *tls(directory))
    yield controller
    controller.stop()


@pytest.fixture(scope="module")
def tokens(controller):
    return {role: controller.token(role.lower(), role) for role in ("VIEWER", "USER", "EXECUTOR")}


def refused(answer, code, status, text):
    body = json.loads(answer.text)
    assert (answer.status, body["status"]) == (code, status) and text in body["message"], answer.text
    assert (answer.getheader("WWW-Authenticate") == "Bearer") == (code == 401)


def test_the_page_comes_over_tls_and_its_calls_need_a_token(controller, tokens):
    page = controller.request("GET", "/")
    assert page.status == 200 and "<title>Trainyard</title>" in page.text
    assert page.getheader("Content-Security-Policy").startswith("default-src 'self'")
    refused(controller.call("JobService/ListJobs"), 401, "UNAUTHENTICATED", "needs a token")
    answer = controller.call("JobService/ListJobs", token=tokens["VIEWER"])
    assert answer.status == 200 and "jobs" in json.loads(answer.text)
    plain = socket.create_connection(("127.0.0.1", controller.port), timeout=60 * PATIENCE)
    plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"Trainyard" not in plain.recv(1000), "it speaks no plain HTTP"


def test_tokens_are_judged_as_over_grpc(controller, tokens):
    listed = lambda token: controller.call("JobService/ListJobs", token=token)  # noqa: E731
    refused(listed("tyt_" + 70 * "0"), 401, "UNAUTHENTICATED", "is not known here")
    refused(listed("not a token"), 401, "UNAUTHENTICATED", "needs a token")
    refused(controller.request("POST", "/api/JobService/ListJobs", "{}", Authorization=f"Basic {tokens['USER']}"),
            401, "UNAUTHENTICATED", "needs a token")
    denied = controller.call("JobService/CancelJob", {"name": "jobs/1"}, token=tokens["VIEWER"])
    refused(denied, 403, "PERMISSION_DENIED", "needs the role USER, and the token 'viewer' has VIEWER")
    refused(controller.call("JobService/CancelJob", {"name": "jobs/999"}, token=tokens["USER"]), 404, "NOT_FOUND", "999")
    refused(listed(tokens["EXECUTOR"]), 403, "PERMISSION_DENIED", "")
    gone, late = controller.token("gone", "USER"), controller.token("late", "USER")
    assert listed(gone).status == listed(late).status == 200
    controller.cli("token", "revoke", "gone")
    controller.database.sql("UPDATE token SET create_time = now() - interval '1 hour', expire_time = now() - interval '1 s' "
                            "WHERE name = 'late'")
    wait_until(lambda: listed(gone).status == 401 and listed(late).status == 401, 10, "the tokens are read again")
    refused(listed(gone), 401, "UNAUTHENTICATED", "the token 'gone' was revoked")
    refused(listed(late), 401, "UNAUTHENTICATED", "the token 'late' has expired")


def test_another_site_and_methods_that_the_page_has_not_are_refused(controller, tokens):
    call = lambda **headers: controller.call("JobService/ListJobs", token=tokens["USER"], **headers)  # noqa: E731
    for origin in ("https://evil.example", "null", f"https://127.0.0.1:{controller.port + 1}", "https://"):
        answer = call(Origin=origin)
        assert answer.status == 403 and "from another site, or a proxy does not pass on the Host header" in answer.text, origin
    assert call(Origin=f"https://{controller.host}").status == 200
    assert call(Origin="https://page.example", Host="page.example").status == 200, "behind a proxy"
    refused(controller.call("TokenService/CreateToken", token=tokens["USER"]), 501, "UNIMPLEMENTED", "CreateToken")
    assert controller.request("GET", "/api/JobService/ListJobs", Authorization=f"Bearer {tokens['USER']}").status == 405
    assert controller.call("JobService/GetJob", {"name": 2 * 1024 * 1024 * "x"}, token=tokens["USER"]).status == 413


def test_a_browser_that_disconnects_in_the_middle_of_an_answer_harms_nothing(controller, tokens):
    """Jobs with long names: an answer of some MiB, of which it reads nothing."""
    controller.database.sql(
        "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, keep_best, "
        "end_time, reason) SELECT 'n' || i, 'default', 10, 0, 1, 'cpu', 0, 1, 1, 0, now(), repeat('x', 4000) "
        "FROM generate_series(1, 1000) i; INSERT INTO job_spec SELECT id, '' FROM job")
    body = json.dumps({"page_size": 1000})
    for _ in range(20):
        connection = controller.connection()
        connection.request("POST", "/api/JobService/ListJobs", body, {"Authorization": f"Bearer {tokens['USER']}"})
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
        connection.sock.close()
    answer = controller.call("JobService/ListJobs", {"page_size": 1000}, token=tokens["USER"])
    assert answer.status == 200 and len(answer.text) > 4_000_000
    assert len(json.loads(answer.text)["jobs"]) == 1000


def test_one_host_cannot_take_all_connections_and_slow_ones_are_closed(controller, tokens):
    """Sixteen of one address; each that says nothing is closed after 15 s."""
    slow = [socket.create_connection(("127.0.0.1", controller.port), timeout=60 * PATIENCE) for _ in range(16)]
    begun = time.monotonic()
    with pytest.raises(OSError):
        controller.request("GET", "/")
    assert time.monotonic() - begun < 14, "it is refused and does not wait"
    for connection in slow:
        while connection.recv(100):
            pass  # an alert of TLS
        connection.close()
    assert controller.request("GET", "/").status == 200


def test_on_loopback_it_is_plain_http_with_the_same_tokens(shared_service, directory):
    with tempfile.TemporaryDirectory(prefix="trainyard-web-") as own:
        controller = Controller(pathlib.Path(own), shared_service, "127.0.0.1:0")
        try:
            assert controller.scheme == "http" and controller.request("GET", "/").status == 200
            refused(controller.call("JobService/ListJobs"), 401, "UNAUTHENTICATED", "needs a token")
            assert controller.call("JobService/ListJobs", token=controller.token("me", "VIEWER")).status == 200
            for web, text in (("0.0.0.0:0", "needs TLS"), (controller.host, "in use by another program"), ("x", "is not host:port")):
                done = subprocess.run([BIN / "trainyard-controller", "--database", controller.database.conninfo, "--listen",
                                       f"unix:{own}/other.sock", "--checkpoints", f"{own}/checkpoints", "--web", web],
                                      env=controller.environment, capture_output=True, text=True, timeout=60 * PATIENCE)
                assert done.returncode == 1 and text in done.stderr, done.stderr
        finally:
            controller.stop()


@pytest.mark.skipif(not CHROMIUM or not NODE_MODULES, reason="no chromium, or no TRAINYARD_NODE_MODULES")
def test_the_page_asks_for_a_token_until_one_is_good_and_keeps_it_in_its_tab(controller, tokens):
    own = controller.token("tab", "VIEWER")
    process = subprocess.Popen(
        ["node", HERE / "controller_web.mjs", f"https://{controller.host}/", CHROMIUM, own],
        env=dict(os.environ, NODE_PATH=NODE_MODULES), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line == "shown\n", line
    controller.cli("token", "revoke", "tab")
    report = json.loads(process.communicate("\n", timeout=60 * PATIENCE)[0])
    assert report["asked"] == ["The page needs a token.", "the token that was sent is not known here", "the token 'tab' was revoked"]
    assert report["local"] == "" and report["foreign"] == [] and report["errors"] == []
