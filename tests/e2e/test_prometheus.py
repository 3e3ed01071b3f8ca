"""/metrics as Prometheus reads it: promtool's lint, a real Prometheus that scrapes a controller, the alert rules, and every
query of the Grafana dashboard."""

import json
import pathlib
import re
import select
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from service_fixture import BIN, PATIENCE, ROOT, Database, wait_until

MONITORING = ROOT / "deploy" / "monitoring"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

pytestmark = [pytest.mark.xdist_group("prometheus"),
              pytest.mark.skipif(not PROMETHEUS or not PROMTOOL, reason="no prometheus on this machine")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def controller(shared_service, tmp_path_factory):
    """The address of /metrics of a controller of its own, which has answered some calls."""
    directory = tmp_path_factory.mktemp("monitored")
    database, port = Database(shared_service, "monitored"), free_port()
    process = subprocess.Popen(
        [BIN / "trainyard-controller", "--database", database.conninfo, "--checkpoints", directory / "checkpoints",
         "--listen", f"unix:{directory}/controller.sock", "--http", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, stderr=open(directory / "log", "ab"), text=True, env=shared_service.environment())
    ready, _, _ = select.select([process.stdout], [], [], 60 * PATIENCE)
    assert ready and process.stdout.readline().startswith("ready "), (directory / "log").read_text()
    for arguments, status in ((["list"], 0), (["get", "1"], 4)):
        done = subprocess.run([BIN / "trainyard", *arguments], timeout=60 * PATIENCE, capture_output=True,
                              env={**shared_service.environment(), "TRAINYARD_CONTROLLER": f"unix:{directory}/controller.sock"})
        assert done.returncode == status
    yield f"127.0.0.1:{port}"
    process.terminate()
    assert process.wait(60 * PATIENCE) == 0


@pytest.fixture(scope="module")
def prometheus(controller, tmp_path_factory):
    """A Prometheus that scrapes the controller each second: a function that evaluates a query."""
    directory, port = tmp_path_factory.mktemp("prometheus"), free_port()
    (directory / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(MONITORING / "alerts.yaml")],
        "scrape_configs": [{"job_name": "trainyard", "static_configs": [{"targets": [controller]}]}]}))
    process = subprocess.Popen([PROMETHEUS, f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=open(directory / "log", "ab"))

    def get(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10 * PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            if e.code == 503:  # it still starts
                return None
            raise AssertionError(f"{path}: {e.read().decode()}") from e
        except OSError:
            return None

    def query(text):
        return get("/api/v1/query?" + urllib.parse.urlencode({"query": text}))["result"]

    query.get = get
    wait_until(lambda: get("/api/v1/query?query=trainyard_leader") and query("trainyard_leader"), 60, "the first scrape")
    yield query
    process.terminate()
    process.wait(60 * PATIENCE)


def test_promtool_finds_nothing_to_criticise(controller):
    with urllib.request.urlopen(f"http://{controller}/metrics", timeout=30 * PATIENCE) as answer:
        text = answer.read()
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, timeout=60 * PATIENCE)
    assert done.returncode == 0 and not done.stdout and not done.stderr, (done.stdout + done.stderr).decode()


def test_a_real_prometheus_reads_what_the_controller_counts(prometheus):
    value = lambda text: float(prometheus(text)[0]["value"][1])  # noqa: E731
    assert value("trainyard_leader") == 1 and value("trainyard_database_up") == 1
    assert value('trainyard_rpc_calls_total{method="ListJobs",status="OK"}') == 1
    assert value('trainyard_rpc_calls_total{method="GetJob",status="NOT_FOUND"}') == 1
    assert value('trainyard_rpc_seconds_count{method="ListJobs"}') == 1
    assert 0 < value('histogram_quantile(0.5, trainyard_rpc_seconds_bucket{method="ListJobs"})') <= 20


def test_the_alert_rules_are_valid_and_evaluated(prometheus):
    done = subprocess.run([PROMTOOL, "check", "rules", MONITORING / "alerts.yaml"], capture_output=True, text=True,
                          timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = wait_until(lambda: [r for g in prometheus.get("/api/v1/rules")["groups"] for r in g["rules"] if r["health"] != "unknown"],
                       60, "the evaluation of the rules")
    assert len(rules) == len(re.findall(r"- alert:", (MONITORING / "alerts.yaml").read_text())) > 4
    assert all(r["health"] == "ok" for r in rules), rules
    assert not [r["name"] for r in rules if r["state"] == "firing"]


def used_metrics(text):
    return set(re.findall(r"\btrainyard_[a-z_]+", text))


def test_every_query_of_the_dashboard_and_the_alerts_names_metrics_that_exist(prometheus, controller):
    board = json.loads((MONITORING / "grafana.json").read_text())
    queries = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
    assert len(queries) > 10
    for query in queries:
        prometheus(query.replace("$__rate_interval", "1m"))
    with urllib.request.urlopen(f"http://{controller}/metrics", timeout=30 * PATIENCE) as answer:
        exist = set(re.findall(r"^(trainyard_[a-z_]+)", answer.read().decode(), re.M))
    missing = used_metrics(" ".join(queries) + (MONITORING / "alerts.yaml").read_text()) - exist
    assert not missing, missing
