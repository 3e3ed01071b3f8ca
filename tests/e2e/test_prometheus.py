"""/metrics as Prometheus reads it: promtool's lint, a real Prometheus that scrapes a controller, the alert rules, and every
query of the Grafana dashboard."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from monitored import Monitored
from service_fixture import PATIENCE, ROOT, wait_until

MONITORING = ROOT / "deploy" / "monitoring"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

pytestmark = [pytest.mark.xdist_group("prometheus"),
              pytest.mark.skipif(not PROMETHEUS or not PROMTOOL, reason="no prometheus on this machine")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def monitored(shared_service, tmp_path_factory, tiny):
    """A controller that has answered some calls, with a job that runs and two devices."""
    folder = tmp_path_factory.mktemp("monitored")
    (folder / "notify.yaml").write_text("targets: [{name: nothing, command: {argv: [/bin/true]}}]")
    c = Monitored(shared_service, folder, "monitored", ["--notify", folder / "notify.yaml"]).start()
    c.cli("list")
    c.cli("get", "1", status=4)
    c.executor("cpu")
    c.submit(tiny(steps=1000000, checkpoint__every=100000))
    c.executor("gpu", driver=c.driver(tmp_path_factory.mktemp("driver")))
    wait_until(lambda: c.value("trainyard_device_power_watts", device="1") and c.value("trainyard_job_tokens"), 60, "samples")
    yield c
    c.stop()


@pytest.fixture(scope="module")
def prometheus(monitored, tmp_path_factory):
    """A Prometheus that scrapes the controller each second: a function that evaluates a query."""
    directory, port = tmp_path_factory.mktemp("prometheus"), free_port()
    (directory / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(MONITORING / "alerts.yaml")],
        "scrape_configs": [{"job_name": "trainyard", "static_configs": [{"targets": [monitored.http]}]}]}))
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


def test_promtool_finds_nothing_to_criticise(monitored):
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=monitored.get(), text=True, capture_output=True, timeout=60 * PATIENCE)
    assert done.returncode == 0 and not done.stdout and not done.stderr, done.stdout + done.stderr


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


def test_every_alert_fires_for_its_fault_and_for_no_other(prometheus):
    done = subprocess.run([PROMTOOL, "test", "rules", MONITORING / "alerts_test.yaml"], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    tested = (MONITORING / "alerts_test.yaml").read_text()
    for name in re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yaml").read_text()):
        assert f"alertname: {name}," in tested and f'alertname="{name}"' in tested, name


def test_every_query_of_the_dashboard_returns_data(prometheus):
    board = json.loads((MONITORING / "grafana.json").read_text())
    queries = [t["expr"].replace("$__rate_interval", "20s") for p in board["panels"] for t in p["targets"]]
    assert len(queries) > 30

    def empty():
        return [q for q in queries if not prometheus(q)]
    # No call has failed within the last seconds.
    wait_until(lambda: all('status!="OK"' in q for q in empty()), 40, f"data for {empty()}")


def test_the_alerts_name_metrics_that_exist(monitored):
    used = set(re.findall(r"\btrainyard_[a-z_]+", (MONITORING / "alerts.yaml").read_text()))
    exist = set(re.findall(r"^(trainyard_[a-z_]+)", monitored.get(), re.M))
    assert len(used) > 10 and not used - exist, used - exist
