"""Metrics of programs that were written for an experiment tracker, without a change: TensorBoard's event files,
and requests of MLflow's and W&B's clients."""

import base64
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

import event_files
from service_fixture import wait_until

TESTS = str(pathlib.Path(event_files.__file__).parent)
WRITES = f"import os, sys\nsys.path.insert(0, {TESTS!r})\nfrom event_files import *\n"


def program(script, *arguments, ranks=1, environment=None, **more):
    """A job that runs a script of Python."""
    return {"name": "tracking", "program": {"command": ["/usr/bin/python3", "-c", script, *map(str, arguments)],
                                            "environment": environment or {}, **more}, "parallel": {"data": ranks}}


def events(service, job, kind):
    return [event["message"] for event in service.json("events", job)["events"] if event["kind"] == kind]


def points(service, job, name, rank=0):
    """{step: value} of a metric; empty if there is none of this name."""
    found = [s for s in service.json("metrics", job).get("series", [])
             if s["name"] == name and int(s.get("rank", 0)) == rank]
    if not found:
        return {}
    steps = list(map(int, found[0]["step"]))
    assert int(found[0]["points"]) == len(steps) == len(set(steps)), f"{name}: a point is stored twice"
    return dict(zip(steps, found[0]["mean"]))


# ---- TensorBoard's event files ----

@pytest.mark.sanitized
def test_event_files_below_the_working_directory_become_metrics_of_each_rank(shared_service):
    job = shared_service.submit(program(WRITES + """
os.makedirs("runs/now")
with open("runs/now/events.out.tfevents.1", "wb") as f:
    f.write(version())
    for step in range(300):
        f.write(scalar("loss", step, step / 2) + scalar("rank", step, int(os.environ["RANK"])) + image("sample", step))
""", ranks=2))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: step / 2 for step in range(300)}
    for rank in (0, 1):
        assert points(shared_service, job, "rank", rank) == {step: float(rank) for step in range(300)}
    assert [message.split(" are ")[0] for message in events(shared_service, job, "tensorboard_ignored")] == \
        ["300 values in event files"] * 2


def test_points_are_seen_while_the_program_runs_and_a_record_may_arrive_in_two_pieces(shared_service):
    job = shared_service.submit(program(WRITES + """
import time
with open(os.environ["TRAINYARD_TENSORBOARD"] + "/tfevents", "wb", 0) as f:
    whole = scalar("loss", 1, 0.5) + scalar("loss", 2, 0.25)
    f.write(whole[:60]); print("half", flush=True)
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    f.write(whole[60:])
""", shared_service.files / "go"))
    wait_until(lambda: points(shared_service, job, "loss"), 60, "the first point")
    assert points(shared_service, job, "loss") == {1: 0.5}
    (shared_service.files / "go").touch()
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {1: 0.5, 2: 0.25}


def test_a_folder_of_the_spec_is_read_once_and_without_the_files_of_earlier_runs(shared_service):
    folder = shared_service.files / "event files"
    (folder / "run-1").mkdir(parents=True)
    (folder / "run-1/events.out.tfevents.0").write_bytes(event_files.scalar("old", 1, 1.0))
    job = shared_service.submit(program(WRITES + """
attempt = int(os.environ["TRAINYARD_ATTEMPT"])
if os.environ["RANK"] == "0":
    with open(f"{sys.argv[1]}/run-1/events.out.tfevents.{attempt}", "wb") as f:
        for step in range(attempt * 5 - 5, attempt * 5 + 3):
            f.write(scalar("loss", step, attempt))
    if attempt == 1:
        os.kill(os.getpid(), 9)
elif attempt == 1:
    import time
    time.sleep(600)
""", folder, ranks=2, tensorboard=str(folder)))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {**{s: 1.0 for s in range(5)}, **{s: 2.0 for s in range(5, 13)}}
    assert not points(shared_service, job, "loss", 1) and not points(shared_service, job, "old")


def test_points_of_event_files_are_stored_before_the_checkpoint_of_their_step(service):
    """The rank is killed at the moment at which the checkpoint is known: its event files are gone with it."""
    job = service.submit(program(WRITES + """
import time
first = 1 + int((os.environ["TRAINYARD_RESUME"] or "-0").rsplit("-", 1)[1])
with open(os.environ["TRAINYARD_TENSORBOARD"] + "/tfevents", "wb", 0) as f:
    for step in range(first, first + 50): f.write(scalar("loss", step, step / 2))
    if first == 1:
        time.sleep(2.5)    # the file is known, and is looked at each second
        for step in range(51, 101): f.write(scalar("loss", step, step / 2))
        path = os.environ["TRAINYARD_CHECKPOINTS"] + "/step-100"
        open(path + ".tmp", "w").close(); os.rename(path + ".tmp", path)
        time.sleep(600)
"""))
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
        os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    assert service.wait_end(job)["attempt"] == 2
    assert points(service, job, "loss") == {step: step / 2 for step in range(1, 151)}


def test_a_corrupt_event_file_is_reported_once_and_the_job_succeeds(shared_service):
    job = shared_service.submit(program(WRITES + """
good = scalar("loss", 1, 0.5)
open("tfevents.1", "wb").write(good + good[:-1] + b"x" + good)
open("tfevents.2", "wb").write(scalar("accuracy", 1, 1.0))
"""))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {1: 0.5} and points(shared_service, job, "accuracy") == {1: 1.0}
    [message] = events(shared_service, job, "tensorboard_file")
    assert message.endswith("tfevents.1' is not read any further: a record is corrupt")


def test_a_million_names_are_refused_by_two_events_and_harm_no_other_job(shared_service):
    job = shared_service.submit(program(
        'import os\nwith open(os.environ["TRAINYARD_METRICS"], "w") as f:\n'
        '  for i in range(1000000): f.write(\'{"step": 1, "m%d": 1}\\n\' % i)\n'))
    after = shared_service.submit(program(
        'import os; open(os.environ["TRAINYARD_METRICS"], "w").write(\'{"step": 1, "loss": 2}\\n\')'))
    shared_service.wait_end(after)
    assert points(shared_service, after, "loss") == {1: 2.0}
    shared_service.wait_end(job)
    refused = events(shared_service, job, "metric_refused")
    assert len(refused) == 2 and refused[1] == "999040 points of further metrics were not stored", refused
    assert points(shared_service, job, "m959") == {1: 1.0} and not points(shared_service, job, "m960")


@pytest.mark.parametrize("path", ["relative", "./x"])
def test_the_folder_of_event_files_is_an_absolute_path(shared_service, path):
    spec = shared_service.directory / "refused.json"
    spec.write_text(json.dumps(program("pass", tensorboard=path)))
    assert f"program.tensorboard: '{path}' is not an absolute path" in shared_service.cli("validate", spec, status=2).stderr


# ---- MLflow's and W&B's clients: their requests, as they were recorded ----

CALLS = """
import base64, json, os, sys, urllib.error, urllib.request
def call(base, path, body=None, method=None, token=None, tries=5):    # the clients try again, too
    request = urllib.request.Request(base + path, None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", token)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        if tries == 0:
            raise
        return call(base, path, body, method, token, tries - 1)
def mlflow(path, body=None, method=None):
    return call(os.environ["MLFLOW_TRACKING_URI"], path, body, method, "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"])
def wandb(path, body=None, method=None):
    key = base64.b64encode(b"api:" + os.environ["WANDB_API_KEY"].encode()).decode()
    return call(os.environ["WANDB_BASE_URL"], path, body, method, "Basic " + key)
def metric(key, value, step, time=1700000000000):
    return {"key": key, "value": value, "timestamp": time, "step": step}
"""


@pytest.mark.sanitized
def test_requests_of_mlflows_client_become_metrics_once_and_parameters_events(shared_service):
    job = shared_service.submit(program(CALLS + """
e = mlflow("/api/2.0/mlflow/experiments/get-by-name?experiment_name=mine")["experiment"]
run = mlflow("/api/2.0/mlflow/runs/create", {"experiment_id": e["experiment_id"], "start_time": 1, "run_name": "x"})["run"]
id = run["info"]["run_id"]
assert e["name"] == "mine" and run["info"]["experiment_id"] == e["experiment_id"], (e, run)
mlflow("/api/2.0/mlflow/runs/log-parameter", {"run_uuid": id, "run_id": id, "key": "lr", "value": "0.1"})
mlflow("/api/2.0/mlflow/runs/set-tag", {"run_uuid": id, "run_id": id, "key": "team", "value": "a b"})
mlflow("/api/2.0/mlflow/runs/set-tag", {"run_uuid": id, "run_id": id, "key": "mlflow.note", "value": "own"})
for step in range(100):
    batch = {"run_id": id, "metrics": [metric("loss", step / 2, step), metric("rank", int(os.environ["RANK"]), step)]}
    mlflow("/api/2.0/mlflow/runs/log-batch", batch)
    mlflow("/api/2.0/mlflow/runs/log-batch", batch)    # the client repeats it if it gets no answer
for i in range(5):
    mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": id, **metric("unnumbered", i, 0, i)})
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": id, **metric("nan", "NaN", 3)})
second = mlflow("/api/2.0/mlflow/runs/create", {"experiment_id": "1"})["run"]["info"]["run_id"]
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": second, **metric("loss", 7.5, 1)})
assert mlflow("/api/2.0/mlflow/runs/get?run_id=" + id)["run"]["info"]["run_id"] == id
assert mlflow("/api/2.0/mlflow-artifacts/artifacts/1/artifacts/x.png", {"a": 1}, "PUT") == {}
assert mlflow("/api/2.0/mlflow/runs/update", {"run_id": id, "status": "FINISHED", "end_time": 2})["run_info"]["run_id"] == id
""", ranks=2))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: step / 2 for step in range(100)}
    for rank in (0, 1):
        assert points(shared_service, job, "rank", rank) == {step: float(rank) for step in range(100)}
    assert points(shared_service, job, "unnumbered") == {i: float(i) for i in range(5)}
    assert points(shared_service, job, "run-2/loss") == {1: 7.5}
    assert events(shared_service, job, "parameters") == ["lr=0.1"] * 2
    assert events(shared_service, job, "tags") == ["team=a b"] * 2
    ignored = events(shared_service, job, "tracking_ignored")
    assert len(ignored) == 2 and all("/artifacts/x.png" in message for message in ignored), ignored


@pytest.mark.sanitized
def test_requests_of_wandbs_client_become_metrics_once(shared_service):
    job = shared_service.submit(program(CALLS + """
assert wandb("/graphql", {"query": "query Viewer { viewer { id entity } }"})["data"]["viewer"]["entity"] == "trainyard"
answer = wandb("/graphql", {"query": "mutation UpsertBucket($name: String) { upsertBucket(input: {name: $name}) { x } }",
    "variables": {"name": "abc", "project": "p", "config": json.dumps({"lr": {"value": 0.1}, "_wandb": {"value": {}}})}})
bucket = answer["data"]["upsertBucket"]["bucket"]
assert bucket["name"] == "abc" and bucket["project"]["entity"]["name"] == "trainyard", answer
def history(offset, lines, run="abc"):
    body = {"files": {"wandb-history.jsonl": {"offset": offset, "content": [json.dumps(line) for line in lines]},
                      "wandb-events.jsonl": {"offset": 0, "content": ['{"system.cpu": 5, "_timestamp": 1}']},
                      "output.log": {"offset": 0, "content": ["x"]}}}
    return wandb(f"/files/trainyard/p/{run}/file_stream", body)
lines = [{"loss": step / 2, "_step": step, "_timestamp": 1.5, "_runtime": 2, "a": {"b": step}, "note": "x",
          "image": {"_type": "image-file", "size": 3}, "bad": "NaN", "_wandb": {"x": 1}} for step in range(100)]
assert history(0, lines[:60]) == {} and history(0, lines[:60]) == {} and history(50, lines[50:]) == {}
wandb("/graphql", {"query": "mutation { upsertBucket() }", "variables": {"name": "other"}})
history(0, [{"loss": 1.25, "_step": 3}], "other")
files = wandb("/graphql", {"query": "mutation { createRunFiles(input: {}) { x } }",
                           "variables": {"run": "abc", "files": ["a.txt"]}})["data"]["createRunFiles"]["files"]
call(files[0]["uploadUrl"], "", {"a": 1}, "PUT")
"""))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: step / 2 for step in range(100)}
    assert points(shared_service, job, "a.b") == {step: float(step) for step in range(100)}
    assert points(shared_service, job, "run-2/loss") == {3: 1.25}
    assert not points(shared_service, job, "system.cpu") and not points(shared_service, job, "_runtime")
    assert events(shared_service, job, "parameters") == ["lr=0.1"]
    assert events(shared_service, job, "tracking_ignored") == [
        "200 values that the program logged to W&B are no numbers (media, tables, texts) and are no metrics; "
        "their files are kept"]


def test_a_tracker_of_the_users_own_is_left_alone(shared_service):
    show = "import os; print([v for v in sorted(os.environ) if v.startswith(('MLFLOW_', 'WANDB_'))], flush=True)"

    def names(environment):
        job = shared_service.submit(program(show, environment=environment))
        shared_service.wait_end(job)
        return shared_service.json("logs", job)["lines"][0]["text"]

    assert names({}) == str(["MLFLOW_ASYNC_LOGGING_THREADPOOL_SIZE", "MLFLOW_ENABLE_ASYNC_LOGGING",
                             "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI", "WANDB_API_KEY", "WANDB_BASE_URL",
                             "WANDB_CACHE_DIR", "WANDB_DATA_DIR",
                             "WANDB_MODE"])
    assert names({"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "WANDB_API_KEY": "mine"}) == str(
        ["MLFLOW_TRACKING_URI", "WANDB_API_KEY"])
    assert "MLFLOW_TRACKING_URI" not in names({"MLFLOW_TRACKING_USERNAME": "me"})
    assert "WANDB_BASE_URL" not in names({"WANDB_MODE": "offline"})


@pytest.mark.parametrize("given, wanted", [
    ({}, "127.0.0.1 127.0.0.1"),
    ({"no_proxy": "a.example"}, "a.example,127.0.0.1 None"),
    ({"NO_PROXY": "a.example"}, "None a.example,127.0.0.1"),
])
def test_a_proxy_of_the_user_does_not_stand_between_the_client_and_its_rank(shared_service, given, wanted):
    job = shared_service.submit(program(CALLS + """
assert mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "r", **metric("loss", 2, 1)}) == {}
print(os.environ.get("no_proxy"), os.environ.get("NO_PROXY"))
""", environment={"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", **given}))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {1: 2.0}
    assert shared_service.json("logs", job)["lines"][0]["text"] == wanted


def test_ten_thousand_points_a_second_do_not_stall_the_program(shared_service):
    job = shared_service.submit(program(CALLS + """
import time
begun = time.monotonic()
for batch in range(50):
    assert mlflow("/api/2.0/mlflow/runs/log-batch", {"run_id": "r", "metrics": [
        metric(f"m{i % 10}", i, batch * 100 + i // 10) for i in range(1000)]}) == {}
print(50000 / (time.monotonic() - begun))
"""))
    shared_service.wait_end(job)
    assert float(shared_service.json("logs", job)["lines"][0]["text"]) > 10000
    assert sorted(points(shared_service, job, "m9")) == list(range(5000))


def test_the_last_requests_of_a_program_that_does_not_wait_for_the_answers_are_stored(shared_service):
    job = shared_service.submit(program(CALLS + """
import socket
port = int(os.environ["MLFLOW_TRACKING_URI"].rsplit(":", 1)[1])
open_ones = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
for i, s in enumerate(open_ones):
    body = json.dumps({"run_id": "r", **metric("loss", i, i + 1)}).encode()
    s.sendall(b"POST /api/2.0/mlflow/runs/log-metric HTTP/1.1\\r\\nHost: a\\r\\nAuthorization: Bearer "
              + os.environ["MLFLOW_TRACKING_TOKEN"].encode()
              + b"\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
os._exit(0)
"""))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {i + 1: float(i) for i in range(150)}


def test_each_point_of_a_client_is_stored_once_though_the_controller_is_killed(service):
    job = service.submit(program(CALLS + """
import time
for step in range(400):
    assert mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "r", **metric("loss", step, step)}) == {}
    assert wandb("/files/a/b/run/file_stream", {"files": {"wandb-history.jsonl": {"offset": step, "content": [
        json.dumps({"accuracy": step, "_step": step})]}}}) == {}
    time.sleep(0.005)
"""))
    with service.watch(job) as watch:
        watch.until_step(20)
    os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
    assert service.wait_end(job)["attempt"] == 1
    for name in ("loss", "accuracy"):
        assert points(service, job, name) == {step: float(step) for step in range(400)}


# ---- attacks on a rank's server ----

def start_endless(service, **more):
    """A job that writes its variables to a file and logs a metric a moment; returns the job and its variables."""
    path = service.files / "variables.json"
    path.unlink(missing_ok=True)
    job = service.submit(program(CALLS + """
import time
with open(sys.argv[1] + ".new", "w") as f: json.dump(dict(os.environ), f)
os.rename(sys.argv[1] + ".new", sys.argv[1])
step = 0
while not os.path.exists(sys.argv[1] + ".end"):
    step += 1
    assert mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "r", **metric("loss", step, step)}) == {}
    time.sleep(0.01)
""", path, **more))
    wait_until(path.exists, 60, "the program's variables")
    return job, json.loads(path.read_text())


def end_endless(service, job):
    (service.files / "variables.json.end").touch()
    service.wait_end(job)
    (service.files / "variables.json.end").unlink()
    seen = points(service, job, "loss")
    assert sorted(seen) == list(range(1, max(seen) + 1))


def request(variables, headers=b"", body=b"", path="/api/2.0/mlflow/runs/log-metric", method="POST"):
    """The answer's first line."""
    port = int(variables["MLFLOW_TRACKING_URI"].rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n".encode() + headers + b"\r\n" + body)
        return s.recv(200).split(b"\r\n")[0]


def test_a_request_without_the_ranks_token_is_refused(shared_service):
    job, variables = start_endless(shared_service)
    body = b'{"run_id": "r", "key": "stolen", "value": 1, "step": 1}'
    token = variables["MLFLOW_TRACKING_TOKEN"].encode()
    wrong = token[:-1] + (b"0" if token[-1:] != b"0" else b"1")
    for headers in (b"", b"Authorization: Bearer \r\n", b"Authorization: Bearer " + wrong + b"\r\n",
                    b"Authorization: Basic " + base64.b64encode(b"api:" + wrong) + b"\r\n"):
        assert request(variables, headers, body) == b"HTTP/1.1 401 Unauthorized"
    for path in ("/" + wrong.decode() + "/files/0", "/" + token.decode()):
        assert request(variables, path=path, method="PUT") == b"HTTP/1.1 401 Unauthorized"
    assert request(variables, b"Authorization: Bearer " + token + b"\r\n", b"[]") == b"HTTP/1.1 400 Bad Request"
    end_endless(shared_service, job)
    assert not points(shared_service, job, "stolen")


def test_connections_that_never_send_a_request_do_not_keep_the_program_from_logging(shared_service):
    job, variables = start_endless(shared_service)
    port = int(variables["MLFLOW_TRACKING_URI"].rsplit(":", 1)[1])
    slow = []
    for i in range(500):
        slow.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        slow[-1].sendall(b"POST / HTTP/1.1\r\nX: ")
    before = max(points(shared_service, job, "loss"), default=0)
    wait_until(lambda: max(points(shared_service, job, "loss"), default=0) > before + 50, 60, "more points")
    for s in slow:  # a byte now and then does not help them
        try:
            s.settimeout(60)
            while s.recv(100):
                pass
        except OSError:
            pass
        s.close()
    end_endless(shared_service, job)


def test_a_body_of_a_gigabyte_is_refused_and_the_program_goes_on(shared_service):
    job, variables = start_endless(shared_service)
    port = int(variables["MLFLOW_TRACKING_URI"].rsplit(":", 1)[1])
    token = variables["MLFLOW_TRACKING_TOKEN"].encode()
    with socket.create_connection(("127.0.0.1", port), timeout=120) as s:
        s.sendall(b"POST /api/2.0/mlflow/runs/log-batch HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n"
                  b"Authorization: Bearer " + token + b"\r\n\r\n")
        piece = b"x" * (1 << 20)
        for _ in range(1024):
            s.sendall(piece)
        assert s.recv(200).startswith(b"HTTP/1.1 413 ")
    pid = next(iter(shared_service.worker_pids(job).values()))[0]
    high = [line for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM")][0]
    assert int(high.split()[1]) < 100 << 10, high
    end_endless(shared_service, job)
    assert events(shared_service, job, "metric_refused") == ["a request of an MLflow client is longer than 16 MiB"]


# ---- files that a program logs ----

def files(service, job):
    """{path: (bytes, SHA-256)} of a job's artifacts."""
    listed = service.json("artifacts", job).get("artifacts", [])
    return {row["path"]: (int(row.get("bytes", 0)), row["sha256"]) for row in listed}


def digest(data):
    return len(data), hashlib.sha256(data).hexdigest()


PUT = CALLS + """
FILES = "/api/2.0/mlflow-artifacts/artifacts"
def put(path, body, run="run-1"):
    request = urllib.request.Request(os.environ["MLFLOW_TRACKING_URI"] + FILES + f"/1/{run}/artifacts/{path}", body,
        {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}, method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {}
"""


def test_files_of_mlflows_client_are_kept_listed_downloaded_and_deleted_with_the_job(service, tmp_path):
    job = service.submit(program(PUT + """
put("a.txt", b"one"); put("a.txt", b"two"); put("model/weights.bin", bytes(3 << 20)); put("empty", b"")
put("b.txt", b"second", "run-2")
put("weights.bin", b"w", "models/m-7")
assert mlflow(FILES + "?path=1/run-1/artifacts")["files"]
listed = {row["path"]: row for row in mlflow(FILES + "?path=1/run-1/artifacts/model")["files"]}
assert listed == {"weights.bin": {"path": "weights.bin", "is_dir": False, "file_size": 3 << 20}}, listed
with urllib.request.urlopen(urllib.request.Request(os.environ["MLFLOW_TRACKING_URI"]
        + FILES + "/1/run-1/artifacts/a.txt",
        headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})) as answer:
    assert answer.read() == b"two"
""", ranks=2))
    service.wait_end(job)
    wanted = {"a.txt": digest(b"two"), "model/weights.bin": digest(bytes(3 << 20)), "empty": digest(b""),
              "run-2/b.txt": digest(b"second"), "models/m-7/weights.bin": digest(b"w")}
    wanted.update({f"rank-1/{path}": value for path, value in wanted.items()})
    assert files(service, job) == wanted
    service.cli("artifacts", job, "--all", tmp_path / "all")
    assert {str(f.relative_to(tmp_path / "all")): digest(f.read_bytes())
            for f in (tmp_path / "all").rglob("*") if f.is_file()} == wanted
    service.cli("artifacts", job, "--get", "model/weights.bin", "--to", tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == bytes(3 << 20)
    service.cli("artifacts", job, "--get", "none", status=4)
    folder, = service.directory.rglob("artifacts")
    (folder / "attempt-1/a.txt").write_bytes(b"changed")
    failed = service.cli("artifacts", job, "--get", "a.txt", "--to", tmp_path / "x", status=1)
    assert "SHA-256" in failed.stderr and not (tmp_path / "x").exists()
    service.cli("delete", job)
    wait_until(lambda: not folder.parent.exists(), 60, "the files are deleted with the job")


def test_a_model_is_found_again_by_the_client_that_created_it(shared_service):
    job = shared_service.submit(program(PUT + """
created = mlflow("/api/2.0/mlflow/logged-models", {"experiment_id": "1", "name": "net"})["model"]["info"]
for method in ("GET", "PATCH"):
    found = mlflow("/api/2.0/mlflow/logged-models/" + created["model_id"], None if method == "GET" else {}, method)
    assert found["model"]["info"]["artifact_uri"] == created["artifact_uri"] == "mlflow-artifacts:/1/models/m-1/artifacts"
put("MLmodel", b"m", "models/m-1")
"""))
    shared_service.wait_end(job)
    assert files(shared_service, job) == {"models/m-1/MLmodel": digest(b"m")}


def test_a_file_that_is_refused_is_named_by_an_event_and_its_call_succeeds(shared_service):
    job = shared_service.submit(program(PUT + """
for path in ("../../../out", "a/../b", ".total", "a//b", "x" * 500, "a/.new-0-1", "%2e%2e/up"):
    put(path, b"x")
put("huge", open("/dev/zero", "rb").read((256 << 20) + 1))
put("large", bytes(256 << 20))
"""))
    shared_service.wait_end(job)
    assert files(shared_service, job) == {"large": digest(bytes(256 << 20))}
    refused = events(shared_service, job, "artifact_refused")
    assert len(refused) == 8 and sum("larger than 256 MiB" in event for event in refused) == 1, refused


def test_a_job_keeps_at_most_a_gibibyte_of_files_of_all_ranks_and_attempts(shared_service):
    job = shared_service.submit({"retry": {"max_restarts": 1}} | program(PUT + """
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "run-1"} | metric("loss", 1, 1))
for i in range(2):
    put(f"{os.environ['TRAINYARD_ATTEMPT']}-{i}", bytes(200 << 20))
    put("same", bytes(100 << 20))
    put("small", b"x")
sys.exit(os.environ["TRAINYARD_ATTEMPT"] == "1")
""", ranks=2))
    assert shared_service.wait_end(job)["attempt"] == 2
    kept = files(shared_service, job)
    assert sum(size for size, _ in kept.values()) <= 1 << 30
    assert kept["rank-1/same"][0] == 100 << 20 and kept["small"][0] == 1
    assert any("more than 1 GiB" in event for event in events(shared_service, job, "artifact_refused"))


def test_a_later_attempt_replaces_files_of_the_earlier_one_and_keeps_the_others(shared_service, tmp_path):
    job = shared_service.submit({"retry": {"max_restarts": 1}} | program(PUT + """
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "run-1"} | metric("loss", 1, 1))
attempt = os.environ["TRAINYARD_ATTEMPT"]
put("deep/same", b"of attempt " + attempt.encode()); put("only-" + attempt, b"")
sys.exit(attempt == "1")
"""))
    assert shared_service.wait_end(job)["attempt"] == 2
    rows = {row["path"]: row["attempt"] for row in shared_service.json("artifacts", job)["artifacts"]}
    assert rows == {"deep/same": 2, "only-1": 1, "only-2": 2}
    shared_service.cli("artifacts", job, "--all", tmp_path / "all")
    assert (tmp_path / "all/deep/same").read_bytes() == b"of attempt 2"
    assert {f.name for f in (tmp_path / "all").iterdir()} == {"deep", "only-1", "only-2"}


def test_a_file_system_that_stalls_delays_the_upload_and_neither_metrics_nor_the_rank(service):
    """Another process holds the lock of the count of all files: without a thread the rank would wait for it."""
    job = service.submit(program(PUT + """
import threading, time
put("first", b"x"); print("stored", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
upload = threading.Thread(target=put, args=("second", bytes(3 << 20)))
upload.start()
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "run-1"} | metric("loss", 1, 1))
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "run-1"} | metric("loss", 2, 2))
upload.join()
""", service.files / "locked", service.files / "seen"))
    wait_until(lambda: files(service, job), 60, "the first file")
    total, = service.directory.rglob("artifacts/.total")
    with open(total, "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        (service.files / "locked").touch()
        wait_until(lambda: list(total.parent.rglob(".new-*")), 60, "the upload of the second file")
        wait_until(lambda: points(service, job, "loss"), 60, "the first point")
        (service.files / "seen").touch()
        wait_until(lambda: points(service, job, "loss") == {1: 1.0, 2: 2.0}, 60, "the second point")
        assert list(files(service, job)) == ["first"]
    service.wait_end(job)
    assert files(service, job) == {"first": digest(b"x"), "second": digest(bytes(3 << 20))}
    assert not events(service, job, "artifact_refused")


def test_a_program_ends_although_the_file_system_stalls_and_an_event_names_the_file(service):
    job = service.submit(program(PUT + """
import threading, time
put("first", b"x")
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
threading.Thread(target=put, args=("second", b"yy"), daemon=True).start()
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
os._exit(0)
""", service.files / "locked", service.files / "go"))
    wait_until(lambda: files(service, job), 60, "the first file")
    total, = service.directory.rglob("artifacts/.total")
    with open(total, "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        (service.files / "locked").touch()
        wait_until(lambda: [new for new in total.parent.rglob(".new-*") if new.stat().st_size == 2], 60, "the bytes")
        (service.files / "go").touch()
        service.wait_end(job)
    assert files(service, job) == {"first": digest(b"x")}
    refused, = events(service, job, "artifact_refused")
    assert refused.startswith("the file 'second' is not kept: the program has ended")


def test_an_upload_that_is_cut_off_leaves_no_file(shared_service):
    job = shared_service.submit(program(CALLS + """
import socket
port = int(os.environ["MLFLOW_TRACKING_URI"].rsplit(":")[-1])
with socket.create_connection(("127.0.0.1", port)) as s:
    s.sendall(("PUT /api/2.0/mlflow-artifacts/artifacts/1/run-1/artifacts/half HTTP/1.1\\r\\nHost: a\\r\\nAuthorization: "
               "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"] + "\\r\\nContent-Length: 1000\\r\\n\\r\\n" + "x" * 500).encode())
mlflow("/api/2.0/mlflow/runs/log-metric", {"run_id": "run-1"} | metric("loss", 1, 1))
"""))
    shared_service.wait_end(job)
    assert files(shared_service, job) == {} and points(shared_service, job, "loss") == {1: 1.0}
    assert not [f for f in shared_service.directory.rglob(".new-*")]


# ---- the clients themselves, of as many releases as are installed ----

def pythons(module):
    """Interpreters that have the module: this one, and those of TRAINYARD_TRACKER_PYTHONS (paths with ':' between)."""
    paths = [sys.executable, *filter(None, os.environ.get("TRAINYARD_TRACKER_PYTHONS", "").split(":"))]
    has = [path for path in paths if subprocess.run([path, "-c", f"import {module}"], capture_output=True).returncode == 0]
    return has or [pytest.param(None, marks=pytest.mark.skip(reason=f"no Python here has {module}"))]


def client_program(python, script, **more):
    return {"name": "client", "program": {"command": [python, "-c", script]}, "parallel": {"data": 2}, **more}


MLFLOW = """
import mlflow, os, time
mlflow.set_experiment("mine")
with mlflow.start_run(run_name="first"):
    mlflow.log_param("lr", 0.1)
    mlflow.log_params({"layers": 2, "name": "x y"})
    mlflow.set_tag("team", "blue")
    for step in range(200):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
        mlflow.log_metrics({"accuracy": step / 200, "rank": int(os.environ["RANK"])}, step=step)
    for i in range(5):
        mlflow.log_metric("unnumbered", i)
    mlflow.log_text("text", "a.txt")
    mlflow.log_dict({"a": 1}, "a.json")
    mlflow.set_tags({"a": 1})
    assert mlflow.active_run().info.run_id
    with open("file.bin", "wb") as f:
        f.write(bytes(1000))
    mlflow.log_artifact("file.bin", artifact_path="deep/er")
    class Model(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return model_input
    mlflow.pyfunc.log_model("model", python_model=Model(), pip_requirements=[])
    mlflow.log_table({"a": [1]}, "table.json")
    assert open(mlflow.artifacts.download_artifacts(run_id=mlflow.active_run().info.run_id, artifact_path="a.txt")).read() == "text"
with mlflow.start_run():
    mlflow.log_metric("loss", 5.0, step=1)
"""


@pytest.mark.parametrize("python", pythons("mlflow"))
def test_a_program_with_mlflow_runs_unchanged_and_its_metrics_are_stored_once(shared_service, python):
    job = shared_service.submit(client_program(python, MLFLOW))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: 1 / (step + 1) for step in range(200)}
    assert points(shared_service, job, "accuracy") == {step: step / 200 for step in range(200)}
    assert points(shared_service, job, "rank", 1) == {step: 1.0 for step in range(200)}
    assert points(shared_service, job, "unnumbered") == {i: float(i) for i in range(5)}
    assert points(shared_service, job, "run-2/loss") == {1: 5.0}
    assert "lr=0.1, layers=2, name=x y" in ", ".join(events(shared_service, job, "parameters"))
    assert "team=blue" in ", ".join(events(shared_service, job, "tags"))
    kept = files(shared_service, job)
    assert kept["a.txt"] == kept["rank-1/a.txt"] == digest(b"text") and kept["deep/er/file.bin"] == digest(bytes(1000))
    assert "table.json" in kept and any(path.endswith("/MLmodel") for path in kept)
    assert "a.json" in kept and not events(shared_service, job, "artifact_refused")


WANDB = """
import os, wandb
run = wandb.init(project="p", config={"lr": 0.1, "model": {"layers": 2}}, name="mine", tags=["a"])
for step in range(200):
    wandb.log({"loss": 1 / (step + 1), "eval": {"accuracy": step / 200}, "rank": int(os.environ["RANK"])})
run.config.update({"more": 2})
run.summary["best"] = 1
wandb.log({"table": wandb.Table(columns=["a"], data=[[1]]), "page": wandb.Html("<b>")})
with open("notes.txt", "w") as f:
    f.write("notes")
run.save("notes.txt")
artifact = wandb.Artifact("x", "dataset")
artifact.add_file("/etc/hostname")
wandb.log_artifact(artifact)
run.alert("title", "text")
wandb.finish()
wandb.init(project="p")
wandb.log({"loss": 5.0})
wandb.finish()
"""


@pytest.mark.parametrize("python", pythons("wandb"))
def test_a_program_with_wandb_runs_unchanged_and_its_metrics_are_stored_once(shared_service, python):
    job = shared_service.submit(client_program(python, WANDB))
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: 1 / (step + 1) for step in range(200)}
    assert points(shared_service, job, "eval.accuracy") == {step: step / 200 for step in range(200)}
    assert points(shared_service, job, "rank", 1) == {step: 1.0 for step in range(200)}
    assert points(shared_service, job, "run-2/loss") == {0: 5.0}
    parameters = ", ".join(events(shared_service, job, "parameters"))
    assert all(text in parameters for text in ("lr=0.1", 'model={"layers":2}', "more=2")), parameters
    kept = files(shared_service, job)
    assert kept["notes.txt"] == kept["rank-1/notes.txt"] == digest(b"notes")
    assert any(path.startswith("media/table/") for path in kept) and any(path.startswith("media/html/") for path in kept)
    assert not [path for path in kept if "output.log" in path or "wandb-summary" in path]
    assert "the W&B artifact 'x' is accepted, but not kept" in events(shared_service, job, "tracking_ignored")


TENSORBOARD = """
import os
from tensorboard.summary import Writer
writer = Writer("logs/run")
for step in range(200):
    writer.add_scalar("loss", 1 / (step + 1), step=step)
    writer.add_scalar("rank", int(os.environ["RANK"]), step=step)
writer.close()
"""


WANDB_AGAIN = """
import os, sys, wandb
id, resume, name, first, n = sys.argv[1:]
run = wandb.init(project="p", id=id, resume=resume or None)
for i in range(int(n)):
    wandb.log({name: int(first) + i})
assert run.step == int(first) + int(n) if resume else True, run.step
wandb.finish()
"""


@pytest.mark.parametrize("python", pythons("wandb"))
def test_a_wandb_run_that_is_continued_in_the_same_attempt_loses_no_point(shared_service, python):
    job = shared_service.submit({"name": "again", "program": {"command": [
        "sh", "-ec", '"$1" -c "$0" x allow loss 0 20; "$1" -c "$0" x allow loss 20 10; "$1" -c "$0" x must loss 30 5; '
                     '"$1" -c "$0" y "" train 0 2; "$1" -c "$0" y "" eval 5 3', WANDB_AGAIN, python]}})
    shared_service.wait_end(job)
    assert points(shared_service, job, "loss") == {step: float(step) for step in range(35)}
    assert points(shared_service, job, "run-2/train") == {0: 0.0, 1: 1.0}
    assert points(shared_service, job, "run-2/eval") == {0: 5.0, 1: 6.0, 2: 7.0}


@pytest.mark.parametrize("python", pythons("tensorboard"))
def test_event_files_of_tensorboards_own_writer_are_read(shared_service, python):
    job = shared_service.submit(client_program(python, TENSORBOARD))
    shared_service.wait_end(job)
    seen = points(shared_service, job, "loss")
    assert sorted(seen) == list(range(200)) and all(abs(seen[s] * (s + 1) - 1) < 1e-6 for s in seen)
    assert points(shared_service, job, "rank", 1) == {step: 1.0 for step in range(200)}


TRAINER = """
import torch
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, x=None, labels=None):
        y = self.linear(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}
data = [{"x": torch.ones(4) * i, "labels": torch.tensor(float(i))} for i in range(64)]
Trainer(Model(), TrainingArguments(output_dir="out", max_steps=20, logging_steps=1, per_device_train_batch_size=4,
    report_to=["wandb", "mlflow", "tensorboard"], use_cpu=True, save_strategy="no"), train_dataset=data).train()
"""


@pytest.mark.parametrize("python", pythons("transformers, torch, wandb, mlflow, tensorboard"))
def test_hugging_faces_trainer_reports_to_all_trackers_and_each_metric_is_stored_once(shared_service, python):
    job = shared_service.submit({**client_program(python, TRAINER), "parallel": {"data": 1}})
    shared_service.wait_end(job)
    steps = list(range(1, 21))
    losses = points(shared_service, job, "loss")  # of MLflow; the others call it train/loss
    assert sorted(losses) == steps
    others = points(shared_service, job, "train/loss")
    assert sorted(others) == steps and all(abs(others[s] / losses[s] - 1) < 1e-6 for s in steps)
    ignored = events(shared_service, job, "metric_ignored")
    assert sum("'train/loss'" in message for message in ignored) == 1, ignored


LIGHTNING = """
import torch, lightning
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        loss = ((self.linear(batch) - 1) ** 2).mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)
data = torch.utils.data.DataLoader(torch.rand(80, 4), batch_size=4)
lightning.Trainer(max_epochs=1, accelerator="cpu", logger=LOGGER, log_every_n_steps=1,
                  enable_progress_bar=False, enable_checkpointing=False).fit(Model(), data)
"""


@pytest.mark.parametrize("python", pythons("lightning, wandb, mlflow, tensorboard"))
@pytest.mark.parametrize("logger", ["MLFlowLogger()", 'WandbLogger(project="p")', 'TensorBoardLogger(".")'])
def test_each_logger_of_lightning_works_unchanged(shared_service, python, logger):
    job = shared_service.submit({**client_program(python, LIGHTNING.replace("LOGGER", logger)), "parallel": {"data": 1}})
    shared_service.wait_end(job)
    assert sorted(points(shared_service, job, "train_loss")) == list(range(20))


MLFLOW_TIMES = """
import mlflow, time
with mlflow.start_run():
    mlflow.log_metric("warm", 0, step=0)
    times = []
    for step in range(300):
        time.sleep(0.002)    # the step of a training loop, in which the client's own thread can send
        begun = time.perf_counter()
        mlflow.log_metrics({"a": step, "b": step}, step=step)
        times.append(time.perf_counter() - begun)
print(sorted(times)[150] * 1000)
"""


@pytest.mark.waits
@pytest.mark.parametrize("python", pythons("mlflow"))
def test_a_call_of_mlflows_client_costs_less_than_a_millisecond(service, python):
    if subprocess.run([python, "-c", "import mlflow, sys; sys.exit(tuple(map(int, mlflow.__version__.split('.')[:2])) < (2, 14))"
                       ]).returncode:
        pytest.skip("this release of MLflow cannot send in the background by a variable")
    job = service.submit({**client_program(python, MLFLOW_TIMES), "parallel": {"data": 1}})
    service.wait_end(job)
    [p50] = [float(line["text"]) for line in service.json("logs", job)["lines"] if line["text"][:1].isdigit()]
    assert p50 < 1, f"{p50} ms"
    assert points(service, job, "a") == {step: float(step) for step in range(300)}
