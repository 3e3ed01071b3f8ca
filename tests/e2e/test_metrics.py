"""/metrics of a controller with executors, jobs and devices: what it counts, what ends with a job, and its limits."""

import json
import os
import re
import signal
import subprocess

import pytest

from monitored import Monitored
from service_fixture import ROOT, wait_until

TABLE = ROOT / "docs" / "monitoring.md"


@pytest.fixture(scope="module")
def monitored(shared_service, tmp_path_factory):
    c = Monitored(shared_service, tmp_path_factory.mktemp("monitored"), "metrics", ["--metrics-jobs", 3]).start()
    c.cpu = c.executor("cpu")
    yield c
    c.stop()


def families(text):
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def test_the_table_of_the_documentation_names_the_metrics_of_a_page_and_no_others(monitored):
    listed = dict(re.findall(r"^\| `(trainyard_\w+)` \| (\w+) \|", TABLE.read_text(), re.M))
    assert listed == families(monitored.get())


def test_a_running_job_has_series_which_end_with_the_job(monitored, tiny):
    job = monitored.submit(tiny(steps=1000000, name="series")).removeprefix("jobs/")
    wait_until(lambda: (monitored.value("trainyard_job_step", job_id=job) or 0) > 3, 60, "steps")
    assert monitored.value("trainyard_job_info", job_id=job, state="running", name="series") == 1
    assert monitored.value("trainyard_job_steps", job_id=job) == 1000000
    assert 0 < monitored.value("trainyard_job_loss", job_id=job) < 10
    assert monitored.value("trainyard_job_tokens_per_second", job_id=job) > 0
    found = monitored.metrics()
    of = frozenset({("job_id", job)})
    assert found["trainyard_job_tokens", of] == found["trainyard_job_step", of] * 8 * 32  # global_batch, context
    assert monitored.value("trainyard_job_queue_seconds_count") >= 1
    seconds = {dict(k[1])["cause"]: v for k, v in found.items() if k[0] == "trainyard_job_rank_seconds_total" and ("job_id", job) in k[1]}
    assert len(seconds) == 7 and seconds["compute"] > 0 and min(seconds.values()) >= 0
    monitored.cli("cancel", job)
    wait_until(lambda: not [k for k in monitored.metrics() if ("job_id", job) in k[1]], 30, "no series of the job")


def create_sweep(monitored, sweep):
    path = monitored.directory / "sweep.json"
    path.write_text(json.dumps(sweep))
    monitored.cli("sweep", "create", path, "--wait-for-hosts")


def test_a_sweep_has_series_of_its_trials_until_it_ends(monitored, tiny):
    create_sweep(monitored, {"name": "lengths", "job": tiny(every=0), "max_parallel": 1, "parameters": {
        "train.steps": {"choices": ["8", "1000000", "1000001"]}}})

    def by_state():
        return {dict(k[1])["state"]: v for k, v in monitored.metrics().items()
                if k[0] == "trainyard_sweep_trials" and ("sweep", "lengths") in k[1]}
    wait_until(lambda: by_state() == {"waiting": 1, "unfinished": 1, "succeeded": 1, "failed": 0, "cancelled": 0}, 60, "the second trial")
    best = json.loads(monitored.cli("sweep", "get", "lengths", "-o", "json").stdout)["sweep"]["best"]
    assert best["number"] == 1 and monitored.value("trainyard_sweep_best_metric", sweep="lengths") == pytest.approx(best["metric"], rel=1e-5)
    monitored.cli("sweep", "cancel", "lengths")
    wait_until(lambda: not [k for k in monitored.metrics() if ("sweep", "lengths") in k[1]], 30, "no series of the sweep")


def test_only_so_many_sweeps_have_series_and_the_others_are_counted(monitored):
    """Rows whose spec cannot be read stay as they are."""
    monitored.database.sql("INSERT INTO sweep (name, state, spec, request_id, request_digest, user_name, maximize, trials) "
                           "SELECT 'many-' || n, 1, '\\xff', 'many-' || n, '', '', false, 1 FROM generate_series(1, 102) n")
    try:
        before = monitored.value("trainyard_metrics_sweeps_left_out_total")
        found = monitored.metrics()
        assert len({dict(k[1])["sweep"] for k in found if k[0] == "trainyard_sweep_trials"}) == 100
        assert not [k for k in found if k[0] == "trainyard_sweep_best_metric"]
        assert found["trainyard_metrics_sweeps_left_out_total", frozenset()] == before + 2 >= 4
    finally:
        monitored.database.sql("DELETE FROM sweep WHERE name LIKE 'many-%'")


def restarts(monitored):
    return {dict(k[1])["cause"]: v for k, v in monitored.metrics().items() if k[0] == "trainyard_restarts_total"}


def test_a_restart_is_counted_by_its_cause(monitored, tiny):
    before = restarts(monitored)
    job = monitored.submit(tiny(steps=1000000))
    wait_until(lambda: monitored.value("trainyard_job_step", job_id=job.removeprefix("jobs/")), 60, "a step")
    placed = json.loads(monitored.cli("get", job, "-o", "json").stdout)["attempts"][-1]["placements"][0]
    os.kill(int(placed["pid"]), signal.SIGKILL)
    wait_until(lambda: monitored.value("trainyard_job_restarts", job_id=job.removeprefix("jobs/")) == 1, 30, "the restart")
    assert restarts(monitored) == {**before, "internal": before["internal"] + 1}
    monitored.cli("cancel", job)


def test_only_so_many_jobs_have_series_and_the_others_are_counted(monitored, tiny):
    jobs = [monitored.submit(tiny(steps=1000000, data=2)) for _ in range(6)]
    try:
        have = {dict(k[1])["job_id"] for k in monitored.metrics() if k[0] == "trainyard_job_info"}
        assert len(have) == 3 and jobs[0].removeprefix("jobs/") in have
        assert monitored.value("trainyard_metrics_jobs_left_out_total") > 0
    finally:
        for job in jobs:
            monitored.cli("cancel", job)


def test_a_page_without_series_of_jobs_does_not_read_their_attempts(shared_service, tmp_path):
    leader = Monitored(shared_service, tmp_path, "no_series", ["--metrics-jobs", 0]).start()
    standby = Monitored.beside(leader, tmp_path / "standby")
    standby.options = []
    standby.launch()
    wait_until(lambda: "http_listens" in standby.log(), 60, "the standby")
    standby.http = re.findall(r"http_listens address=(\S+)", standby.log())[-1]
    with subprocess.Popen([leader.database.program("psql"), "-XAtq", "-d", leader.database.conninfo], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locks:
        locks.stdin.write("BEGIN; LOCK TABLE attempt; SELECT 'locked';\n")
        locks.stdin.flush()
        assert locks.stdout.readline() == "locked\n"
        assert [c.value("trainyard_database_up") for c in (leader, standby)] == [1, 1]  # no query has waited in vain
        locks.stdin.close()
    leader.stop()
    standby.stop()


def test_an_executor_reports_its_spool_its_connections_and_its_devices(monitored, tmp_path):
    gpu = monitored.executor("gpu", driver=monitored.driver(tmp_path))
    wait_until(lambda: monitored.value("trainyard_executor_connects_total", executor=gpu) == 1, 30, "a heartbeat")
    assert monitored.value("trainyard_executor_spool_limit_bytes", executor=monitored.cpu) > 1 << 20
    assert monitored.value("trainyard_executor_records_dropped_total", executor=monitored.cpu, kind="log_line") == 0
    assert monitored.value("trainyard_executor_info", executor=monitored.cpu) == 1
    seen = wait_until(lambda: [d for d in ("0", "1") if monitored.value(
        "trainyard_device_utilization_ratio", executor=gpu, device=d) is not None], 30, "samples")
    assert seen == ["0", "1"] and monitored.value("trainyard_device_memory_used_bytes", executor=gpu, device="1") > 0
    assert monitored.value("trainyard_device_power_watts", executor=monitored.cpu) is None
