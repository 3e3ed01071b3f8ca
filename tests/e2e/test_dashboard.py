"""`trainyard dashboard`: who may call the page's server, and what its calls answer."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from dashboard_page import Page
from service_fixture import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("dashboard")
HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def page(shared_service):
    page = Page(shared_service.environment())
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


def test_no_file_sets_markup_or_loads_from_elsewhere():
    for f in (HERE.parents[1] / "web/page").iterdir():
        text = f.read_text().replace("http://www.w3.org/2000/svg", "")
        for word in ("innerHTML =", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://", "//cdn"):
            assert word not in text, (f, word)


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


def of_lines(page, name, requests):
    return page.call(name, "\n".join(json.dumps(r) for r in requests), Content_Type="application/x-ndjson")


def test_several_requests_on_lines_are_answered_in_their_order(page, shared_service, finished):
    other = shared_service.submit({"name": "other", "program": {"command": ["true"]}})
    answer = of_lines(page, "JobService/GetJob", [{"name": f"jobs/{job}"} for job in (other, finished, other)])
    assert answer.status == 200
    assert [job["name"] for job in json.loads(answer.text)] == [f"jobs/{job}" for job in (other, finished, other)]
    tails = json.loads(of_lines(page, "LogService/TailLogs", 2 * [{"job": f"jobs/{finished}"}]).text)
    assert tails[0] == tails[1] == page.json("LogService/TailLogs", {"job": f"jobs/{finished}"})
    assert of_lines(page, "JobService/GetJob", []).text == "[]"


def test_the_failure_of_one_of_several_requests_is_the_answer_to_all(page, finished):
    answer = of_lines(page, "JobService/GetJob", [{"name": f"jobs/{finished}"}, {"name": "jobs/999999"}, {"nam": "x"}])
    body = json.loads(answer.text)
    assert answer.status == 404 and body["status"] == "NOT_FOUND" and "999999" in body["message"]


def test_a_call_takes_no_more_than_64_requests(page, finished):
    assert len(json.loads(of_lines(page, "JobService/GetJob", 64 * [{"name": f"jobs/{finished}"}]).text)) == 64
    answer = of_lines(page, "JobService/GetJob", 65 * [{"name": f"jobs/{finished}"}])
    assert answer.status == 400 and "more than 64 requests" in answer.text


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
    page = Page(service.environment())
    job = service.submit({"name": "waits", "program": {"command": ["sleep", "600"]}})
    os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
    wait_until(lambda: page.call("JobService/ListJobs").status == 200, 60, "the next controller")
    assert [j["name"] for j in page.json("JobService/ListJobs")["jobs"]] == [f"jobs/{job}"]
    page.stop()


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
    for name in ("spec_form.js", "spec_view.js", "text.js"):
        shutil.copy(root / "web" / "page" / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "typed.js").write_text(TYPED)
    done = subprocess.run(["node", tmp_path / "typed.js", root / "share" / "spec.schema.json", "{min: 1, max: 4}", "3",
                           "{min: 1, max", "{min: one}", ""], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["{min: 2, max: 8}", {"min": 1, "max": 4}, 3, "{min: 1, max", {"min": "one"}, None]


# Prints the heights in lines of inputs for lists of 0, 3 and 100 words.
LISTED = """
import {SpecForm} from "./spec_form.js";
globalThis.document = {createElement: () => ({append() {}, addEventListener() {}, setAttribute(name, value) { this[name] = value; }})};
const form = new SpecForm({}, {}, () => {});
console.log(JSON.stringify([0, 3, 100].map((n) => form.input("files", {type: "array"}, {files: Array(n).fill("a")}, {}).rows)));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this machine")
def test_the_form_shows_the_whole_of_a_short_list(tmp_path):
    for name in ("spec_form.js", "spec_view.js", "text.js"):
        shutil.copy(HERE.parents[1] / "web" / "page" / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "listed.js").write_text(LISTED)
    done = subprocess.run(["node", tmp_path / "listed.js"], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2, 3, 8]


# A series of 2,000 points in 1,000 entries, then 61 points after it. Prints the entries, and the points of all.
FOLLOWED = """
import {JobSeries} from "./series.js";
globalThis.sessionStorage = globalThis.localStorage = {getItem: () => ""};
const column = (n, f) => Array.from({length: n}, (_, i) => f(i)), answers = [];
globalThis.fetch = async () => ({ok: true, text: async () => JSON.stringify([{series: [answers.shift()]}])});
const series = (points, step, mean) => ({name: "loss", rank: 0, points: String(points), last_value: mean[mean.length - 1], step: step.map(String), mean, min: mean, max: mean, time_us: step.map((s) => String(s * 1e6))});
answers.push(series(2000, column(1000, (i) => 2 * i + 2), column(1000, () => 5)));
answers.push(series(61, column(61, (i) => 2001 + i), column(61, (i) => i % 2)));
const all = new JobSeries("jobs/1", 1000), job = {attempt: 1, create_time: "2026-01-01T00:00:00Z"};
await all.update(job);
await all.update(job);
const {points, step, mean, min, max, time} = all.all.get("loss 0");
console.log(JSON.stringify([points, step.slice(1000), mean.slice(1000), min.slice(1000), max.slice(1000), time.slice(1000)]));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this machine")
def test_new_points_of_a_series_are_averaged_like_those_before(tmp_path):
    for name in ("series.js", "service.js", "token.js", "text.js", "columns.js"):
        shutil.copy(HERE.parents[1] / "web" / "page" / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "followed.js").write_text(FOLLOWED)
    done = subprocess.run(["node", tmp_path / "followed.js"], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
    points, step, mean, low, high, time = json.loads(done.stdout)
    assert points == 2061 and step == time == [*range(2002, 2062, 2), 2061]
    assert mean == [*(30 * [0.5]), 0] and low == 31 * [0] and high == [*(30 * [1]), 0]
