"""GPUs without a GPU: the real agent, controller and PostgreSQL; only the driver's library and what would train are
stand-ins. Devices are shown, each rank has one of its own, samples arrive, and an ill device gets no more work."""

import os
import pathlib
import signal
import subprocess

import pytest

from yard import BIN, Service, wait_until

HERE = pathlib.Path(__file__).resolve().parent / "devices"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A folder with libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", folder / "libnvidia-ml.so.1",
                    HERE / "nvml.c"], check=True)
    return folder


class Host:
    """An executor of its own, with or without a driver."""

    def __init__(self, service, name, driver, folder):
        self.script = folder / f"{name}.script"
        self.script.write_text("")
        self.directory = folder / name
        self.name, self.service, self.driver, self.process = name, service, driver, None

    def start(self):
        environment = dict(self.service.environment(), FAKE_NVML=str(self.script), FAKE_NVML_HOST=self.name)
        if self.driver:
            environment["LD_LIBRARY_PATH"] = str(self.driver)
        self.process = subprocess.Popen(
            [BIN / "trainyard-executor", "--controller", self.service.address, "--directory", self.directory,
             "--slots", "2", "--worker", HERE / "worker.py"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.id = self.process.stdout.readline().split()[1]
        return self

    def row(self):
        rows = self.service.json("executors")["executors"]
        return next(x for x in rows if x["name"] == f"executors/{self.id}")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)
            self.process.stdout.close()


@pytest.fixture
def yard(tmp_path):
    service = Service(tmp_path / "yard", executors=0)
    service.directory.mkdir()
    service.start()
    hosts = []

    def host(name, driver):
        hosts.append(Host(service, name, driver, tmp_path).start())
        return hosts[-1]
    yield service, host
    for h in hosts:
        h.stop()
    service.stop()


def cuda(tiny, data=1):
    return tiny(steps=10000, data=data, resources__accelerator="cuda", retry__max_restarts=0)


def until_attempt(watch, number):
    def runs(update):
        event = update.get("event", {})
        return event.get("state") == "RUNNING" and int(event.get("attempt", 0)) >= number
    watch.until(runs, 30, f"attempt {number} runs")


def test_a_host_shows_its_gpus_and_how_they_are_joined(yard, driver):
    service, host = yard
    row = host("a", driver).row()
    assert [d["uuid"] for d in row["devices"]] == ["GPU-a-0", "GPU-a-1"]
    assert [d["links"] for d in row["devices"]] == [["X", "NV4"], ["NV4", "X"]]
    assert {d["state"] for d in row["devices"]} == {"HEALTHY"}
    assert row["devices"][1]["pci_bus_id"] == "00000000:19:00.0"
    assert row["devices"][0]["memory_bytes"] == "150754820096"
    assert "cuda 0 NVIDIA H200, cuda 1 NVIDIA H200" in service.cli("executors").stdout


def test_a_missing_driver_is_one_sentence(yard):
    service, host = yard
    row = host("b", None).row()
    if "devices" in row and row["devices"]:
        pytest.skip("this machine has a driver")
    assert row["reason"].startswith("no NVIDIA driver: libnvidia-ml.so.1: cannot open shared object file")


def test_each_rank_sees_its_own_device_and_its_samples_are_metrics_of_it(yard, driver, tiny):
    service, host = yard
    host("c", driver)
    job = service.submit(cuda(tiny, data=2))
    with service.watch(job) as watch:
        watch.until_step(3)
    seen = wait_until(lambda: [line for line in service.cli("logs", job).stdout.splitlines() if "sees GPU-" in line]
                      if service.cli("logs", job).stdout.count("sees GPU-") == 2 else None, 20, "both ranks' lines")
    assert sorted(line.rsplit(" ", 1)[1] for line in seen) == ["GPU-c-0", "GPU-c-1"]

    def points():
        series = service.json("metrics", job, "device_utilization").get("series", [])
        return series if len(series) == 2 else None
    series = wait_until(points, 20, "samples of both ranks")
    assert sorted(s["mean"][0] for s in series) == [0.75, 0.76]
    for name, value in [("device_memory_bytes", 1 << 30), ("device_power_watts", 612.5),
                        ("device_temperature_celsius", 64), ("device_ecc_uncorrected", 0),
                        ("device_throttle_reasons", 4)]:
        assert service.json("metrics", job, name)["series"][0]["mean"][0] == value
    service.cli("cancel", job)


def test_an_ill_device_is_quarantined_and_its_job_goes_elsewhere_or_waits_and_says_why(yard, driver, tiny):
    service, host = yard
    first = host("d", driver)
    job = service.submit(cuda(tiny))
    with service.watch(job) as watch:
        watch.until_step(3)
        first.script.write_text("uncorrected 0 2\n")
        until_attempt(watch, 2)
    states = {d["uuid"]: (d["state"], d.get("reason", "")) for d in first.row()["devices"]}
    assert states == {"GPU-d-0": ("QUARANTINED", "2 uncorrected memory errors since its driver was loaded"),
                      "GPU-d-1": ("HEALTHY", "")}
    assert "(quarantined: 2 uncorrected memory errors since its driver was loaded)" in service.cli("executors").stdout
    now = service.json("get", job)
    assert int(now.get("restarts", 0)) == 0
    assert "lost its GPU 0, which is quarantined" in str(now["attempts"][0])
    first.script.write_text("uncorrected 0 2\nxid 1 79\n")
    with service.watch(job) as watch:
        watch.until_event("waiting", 30)
    said = service.json("get", job)["reason"]
    assert said == "needs 1 cuda slots, more than the 0 of all attached executors; 2 more are quarantined", said
    second = host("e", driver)
    with service.watch(job) as watch:
        until_attempt(watch, 3)
    assert service.json("get", job)["attempts"][-1]["placements"][0]["executor"].endswith(second.id)
    service.cli("cancel", job)


def test_a_quarantine_outlives_the_agent_until_its_line_is_taken_out(yard, driver):
    service, host = yard
    h = host("f", driver)
    h.script.write_text("xid 1 48\n")
    wait_until(lambda: h.row()["devices"][1]["state"] == "QUARANTINED", 20, "the quarantine")
    h.stop()
    h.script.write_text("")
    h.start()
    assert h.row()["devices"][1]["reason"] == "Xid 48"
    h.stop()
    (h.directory / "quarantine").write_text("")
    h.start()
    assert h.row()["devices"][1]["state"] == "HEALTHY"


def test_a_programs_own_xid_is_no_reason(yard, driver):
    service, host = yard
    h = host("g", driver)
    h.script.write_text("xid 0 31\nxid 1 79\n")
    wait_until(lambda: h.row()["devices"][1]["state"] == "QUARANTINED", 20, "the quarantine")
    assert h.row()["devices"][0]["state"] == "HEALTHY"
