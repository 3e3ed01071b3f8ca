"""`trainyard dashboard`: who may call the page's server, what its calls answer, and what a browser shows."""

import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, wait_until

CHROMIUM = shutil.which("chromium")
# A folder with playwright-core and axe-core, as `npm install playwright-core axe-core` makes it.
NODE_MODULES = os.environ.get("TRAINYARD_NODE_MODULES")
pytestmark = pytest.mark.xdist_group("dashboard")
HERE = pathlib.Path(__file__).parent


class Page:
    """The server of the page, and calls that the page makes."""

    def __init__(self, service):
        self.process = subprocess.Popen([BIN / "trainyard", "dashboard", "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=service.environment())
        ready, _, _ = select.select([self.process.stdout], [], [], 30 * PATIENCE)
        self.url = self.process.stdout.readline().strip() if ready else ""
        assert self.url.startswith("http://127.0.0.1:"), self.url
        self.port = int(self.url.split(":")[2].split("/")[0])
        self.key = self.url.partition("#key=")[2]

    def request(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * PATIENCE)
        headers = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def call(self, name, request=None, **headers):
        body = request if isinstance(request, str) else json.dumps(request or {})
        return self.request("POST", f"/api/{name}", body, **{"X_Trainyard_Key": self.key, **headers})

    def json(self, name, request=None):
        answer = self.call(name, request)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=40 * PATIENCE)
        assert self.process.returncode == 0, err


@pytest.fixture(scope="module")
def page(shared_service):
    page = Page(shared_service)
    yield page
    page.stop()


@pytest.fixture(scope="module")
def finished(shared_service):
    """A program whose log, metric and exception are markup."""
    script = ('for i in 1 2 3; do echo "{\\"step\\": $i, \\"loss\\": $i.5, \\"<img/src=x>\\": 1}" > $TRAINYARD_METRICS; done; '
              'echo "<script>document.title = 1</script>"; exec python3 -c "raise ValueError(\'<b>bold</b>\')"')
    job = shared_service.submit({"name": "markup", "program": {"command": ["sh", "-c", script]}, "retry": {"max_restarts": 0}})
    shared_service.wait_end(job, "FAILED")
    return job


def test_a_call_without_the_key_is_refused(page):
    for key in (None, "", 32 * "0", page.key[:-1], page.key + "0", page.key.upper() + " "):
        answer = page.call("JobService/ListJobs", X_Trainyard_Key=key)
        assert answer.status == 403 and "trainyard dashboard" in answer.text, (key, answer.text)
    assert page.call("JobService/ListJobs", X_Trainyard_Key=None, Cookie=f"X-Trainyard-Key={page.key}").status == 403
    assert page.request("POST", f"/api/JobService/ListJobs?key={page.key}", "{}").status == 403


def test_a_request_under_another_name_or_from_another_site_is_refused(page):
    for host in ("evil.example", f"evil.example:{page.port}", "127.0.0.1", f"127.0.0.1:{page.port + 1}"):
        assert page.call("JobService/ListJobs", Host=host).status == 421, host
    for origin in ("http://evil.example", f"http://127.0.0.1:{page.port + 1}", "null", f"https://127.0.0.1:{page.port}"):
        assert page.call("JobService/ListJobs", Origin=origin).status == 403, origin
    assert page.call("JobService/ListJobs", Host=f"localhost:{page.port}", Origin=f"http://localhost:{page.port}").status == 200


def test_files_may_load_nothing_from_elsewhere_and_are_sent_once(page):
    answer = page.request("GET", "/")
    assert answer.status == 200 and "<title>Trainyard</title>" in answer.text
    assert answer.getheader("Content-Security-Policy").startswith("default-src 'self'")
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    again = page.request("GET", "/", If_None_Match=answer.getheader("ETag"))
    assert again.status == 304 and again.text == ""
    assert page.request("GET", "/../../etc/passwd").status == 404
    assert page.request("GET", "/api/JobService/ListJobs", X_Trainyard_Key=page.key).status == 405
    assert page.request("PUT", "/main.js", "x").status == 405


def test_the_whole_page_is_smaller_than_150_kb():
    files = [f for f in (HERE.parents[1] / "web/page").rglob("*") if f.is_file() and f.name != "LICENSE"]
    assert len(files) > 8 and sum(f.stat().st_size for f in files) < 150_000


def test_calls_answer_what_the_client_prints(page, shared_service, finished):
    ours, printed = page.json("JobService/GetJob", {"name": f"jobs/{finished}"}), shared_service.json("get", finished)
    assert ours == printed and "ValueError: <b>bold</b>" in ours["reason"]
    series = page.json("MetricService/QueryMetrics", {"job": f"jobs/{finished}", "names": ["loss"]})["series"]
    assert [(s["step"], s["mean"]) for s in series] == [(["1", "2", "3"], [1.5, 2.5, 3.5])]


def test_a_stream_is_answered_in_pieces_that_follow_each_other(page, shared_service):
    text = 60 * "x"
    job = shared_service.submit({"name": "talks", "program": {"command": ["sh", "-c", f"yes {text} | head -n 400; sleep 1; yes {text} | head -n 400"]}})
    shared_service.wait_end(job)
    lines, cursor = [], ""
    while True:
        answer = page.json("LogService/TailLogs", {"job": f"jobs/{job}", "cursor": cursor})
        for message in answer["messages"]:
            lines += [line["text"] for line in message["lines"] if line["stream"] == "stdout"]
            cursor = message["cursor"] or cursor
        if not answer["more"]:
            break
    assert lines == 800 * [text]


@pytest.mark.parametrize("name, request_, code, status, text", [
    ("JobService/GetJob", {"name": "jobs/999999"}, 404, "NOT_FOUND", "999999"),
    ("JobService/GetJob", {"nam": "x"}, 400, "INVALID_ARGUMENT", "unknown field"),
    ("JobService/GetJob", "{", 400, "INVALID_ARGUMENT", "line"),
    ("JobService/CreateJob", {"spec": {"train": {"steps": -1}}}, 400, "INVALID_ARGUMENT", "steps"),
    ("JobService/Nothing", {}, 501, "UNIMPLEMENTED", "Nothing"),
    ("TokenService/CreateToken", {}, 501, "UNIMPLEMENTED", "CreateToken"),
    ("DispatchService/Attach", {}, 501, "UNIMPLEMENTED", "Attach"),
])
def test_an_error_is_a_status_and_a_sentence(page, name, request_, code, status, text):
    answer = page.call(name, request_)
    body = json.loads(answer.text)
    assert answer.status == code and body["status"] == status and text in body["message"], answer.text


def test_a_request_that_is_too_large_is_refused(page):
    answer = page.call("JobService/GetJob", json.dumps({"name": 2 * 1024 * 1024 * "x"}))
    assert answer.status == 413
    assert page.json("JobService/ListJobs", {"page_size": 1})


def test_a_port_in_use_is_reported(page, shared_service):
    done = shared_service.cli("dashboard", "--port", page.port, status=1)
    assert f"port {page.port} is in use by another program" in done.stderr
    assert "is not a port" in shared_service.cli("dashboard", "--port", "70000", status=2).stderr


def test_the_page_goes_on_after_its_controller_was_killed(service):
    page = Page(service)
    job = service.submit({"name": "waits", "program": {"command": ["sleep", "600"]}})
    os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
    wait_until(lambda: page.call("JobService/ListJobs").status == 200, 60, "the next controller")
    assert [j["name"] for j in page.json("JobService/ListJobs")["jobs"]] == [f"jobs/{job}"]
    page.stop()


def browser(*arguments):
    return subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                           "--disable-background-networking", "--disable-component-update", "--disable-sync", *arguments],
                          capture_output=True, text=True, timeout=120 * PATIENCE)


@pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine")
def test_a_browser_shows_jobs_and_never_interprets_markup(page, finished, tmp_path):
    def shown():
        done = browser(f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=10000", "--dump-dom", page.url)
        return done.stdout if "<tbody><tr" in done.stdout else None
    dom = wait_until(shown, 120, "the list of jobs in the browser")
    assert "&lt;b&gt;bold&lt;/b&gt;" in dom and "<b>bold</b>" not in dom
    assert "FAILED" in dom and f'href="#/jobs/{finished}"' in dom


@pytest.mark.skipif(not CHROMIUM or not NODE_MODULES, reason="no chromium, or TRAINYARD_NODE_MODULES names no folder")
def test_every_page_works_in_a_browser_with_both_themes_and_is_accessible(page, shared_service, finished, tiny, tmp_path):
    jobs = [shared_service.submit(tiny(steps=30, seed=seed)) for seed in (1, 2)]
    for job in jobs:
        shared_service.wait_end(job)
    folder = os.environ.get("TRAINYARD_SCREENSHOTS", str(tmp_path))
    done = subprocess.run(["node", HERE / "dashboard.mjs", page.url, CHROMIUM, folder, finished, *jobs], capture_output=True,
                          text=True, timeout=300 * PATIENCE, env={**os.environ, "NODE_PATH": NODE_MODULES})
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["foreign"] == [] and report["errors"] == [] and report["violations"] == [], report
    created = shared_service.json("get", report["created"])
    assert (created["display_name"], created["state"], created["spec"]["train"]["steps"]) == ("from-the-form", "CANCELLED", "1000000")
    # What the chart shows under the cursor is the point that the service stores.
    stored = {p["step"]: p["mean"] for s in shared_service.json("metrics", jobs[0], "loss")["series"] for p in
              [{"step": int(step), "mean": mean} for step, mean in zip(s["step"], s["mean"])]}
    assert report["hovered"] and all(abs(stored[int(step)] - value) < 1e-3 for step, value in report["hovered"]), report["hovered"]


# The form of a message with elements that only keep what they are given. Prints what each input shows, and the values
# after a text was typed.
TYPED = """
import {readFileSync} from "fs";
import {SpecForm} from "./spec_form.js";
const inputs = {};
globalThis.document = {createElement: () => {
  const e = {append() {}, handlers: {}, addEventListener(event, f) { this.handlers[event] = f; }, replaceChildren() {},
    setAttribute(name, value) { this[name] = value; if (name === "data-path") inputs[value] = this; }};
  return e;
}};
const value = {data: {min: 2, max: 8}}, schema = JSON.parse(readFileSync(process.argv[2]));
const form = new SpecForm(schema, value, () => {});
form.fields(schema.$defs.ParallelSpec, value, "");
const input = inputs["data"], seen = [input.value];
for (const text of process.argv.slice(3)) {
  input.handlers.input({target: {value: text}});
  seen.push(value.data === undefined ? null : value.data);
}
console.log(JSON.stringify(seen));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this machine")
def test_the_form_shows_and_reads_a_range_of_ranks(tmp_path):
    root = HERE.parents[1]
    for name in ("spec_form.js", "text.js"):
        shutil.copy(root / "web" / "page" / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "typed.js").write_text(TYPED)
    done = subprocess.run(["node", tmp_path / "typed.js", root / "share" / "spec.schema.json", "{min: 1, max: 4}", "3",
                           "{min: 1, max", "{min: one}", ""], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["{min: 2, max: 8}", {"min": 1, "max": 4}, 3, "{min: 1, max", {"min": "one"}, None]
