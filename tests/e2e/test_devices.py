"""GPUs without a GPU: the real agent, controller and PostgreSQL; only the driver's library and what would train are
stand-ins. Devices are shown, each rank has one of its own, samples arrive, and an ill device gets no more work."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import service_fixture as yard_module
from service_fixture import BIN, Service, wait_until

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

    def __init__(self, service, name, driver, folder, options=()):
        self.script = folder / f"{name}.script"
        self.script.write_text("")
        self.directory = folder / name
        self.name = f"{name}-{os.getpid()}"  # a GPU is offered once on a machine: other tests run beside these
        self.service, self.driver, self.options, self.process = service, driver, options, None

    def gpu(self, number):
        return f"GPU-{self.name}-{number}"

    def start(self, **more):
        environment = dict(self.service.environment(), FAKE_NVML=str(self.script), FAKE_NVML_HOST=self.name, **more)
        if self.driver:
            environment["LD_LIBRARY_PATH"] = str(self.driver)
        self.process = subprocess.Popen(
            [BIN / "trainyard-executor", "--controller", self.service.address, "--directory", self.directory,
             "--slots", "2", "--checkpoint-root", self.service.directory / "checkpoints", "--worker", HERE / "worker.py", *self.options],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.id = self.process.stdout.readline().split()[1]
        self.row()  # who is ready is listed
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
def service_and_host(tmp_path):
    service = Service(tmp_path / "service", executors=0)
    service.directory.mkdir()
    service.start()
    hosts = []

    def host(name, driver, script="", options=()):
        hosts.append(Host(service, name, driver, tmp_path, options))
        hosts[-1].script.write_text(script)
        return hosts[-1].start()
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


def test_a_host_shows_its_gpus_and_how_they_are_joined(service_and_host, driver):
    service, host = service_and_host
    h = host("a", driver)
    row = h.row()
    assert [d["uuid"] for d in row["devices"]] == [h.gpu(0), h.gpu(1)]
    assert [d["links"] for d in row["devices"]] == [["X", "NV4"], ["NV4", "X"]]
    assert {d["state"] for d in row["devices"]} == {"HEALTHY"}
    assert row["devices"][1]["pci_bus_id"] == "00000000:19:00.0"
    assert row["devices"][0]["memory_bytes"] == "150754820096"
    assert "cuda 0 NVIDIA H200, cuda 1 NVIDIA H200" in service.cli("executors").stdout


def test_a_missing_driver_is_one_sentence(service_and_host):
    service, host = service_and_host
    row = host("b", None).row()
    if "devices" in row and row["devices"]:
        pytest.skip("this machine has a driver")
    assert row["reason"].startswith("no NVIDIA driver: libnvidia-ml.so.1: cannot open shared object file")


def lines_of(service, job, word):
    return [line.rsplit(" ", 1)[1] for line in service.cli("logs", job).stdout.splitlines() if f" {word} " in line]


def test_only_workers_on_gpus_get_the_library_path(service_and_host, driver, tiny):
    service, host = service_and_host
    host("l", driver, options=["--library-path", "/opt/a/lib:/opt/b/lib"])
    for accelerator, path in [("cuda", "/opt/a/lib:/opt/b/lib"), ("cpu", "nothing")]:
        job = service.submit({**cuda(tiny), "resources": {"accelerator": accelerator}})
        assert wait_until(lambda: lines_of(service, job, "searches"), 20, "the rank's line") == [path]


def test_the_library_path_may_come_from_the_environment_where_an_empty_one_is_none(service_and_host, driver, tiny):
    service, host = service_and_host
    h = host("s", driver)
    for given, path in [("/opt/c/lib", "/opt/c/lib"), ("", "nothing")]:
        h.stop()
        h.start(TRAINYARD_LIBRARY_PATH=given)
        job = service.submit(cuda(tiny))
        assert wait_until(lambda: lines_of(service, job, "searches"), 20, "the rank's line") == [path]
        service.cli("cancel", job)


def test_gpus_whose_libraries_a_worker_misses_are_not_offered_and_the_sentence_names_one(service_and_host, driver, tmp_path):
    service, host = service_and_host
    (tmp_path / "says").write_text("3 there is no libcublasLt.so.13")
    row = host("m", driver, options=["--library-path", str(tmp_path)]).row()
    assert not row.get("devices")
    assert row["reason"] == "2 GPUs, which workers cannot use: there is no libcublasLt.so.13"
    assert row["reason"] in service.cli("executors").stdout


def test_what_jobs_on_gpus_do_without_stands_beside_them(service_and_host, driver, tmp_path):
    service, host = service_and_host
    (tmp_path / "says").write_text("0 slower attention and convolutions: cuDNN cannot be loaded")
    row = host("n", driver, options=["--library-path", str(tmp_path)]).row()
    assert [d["state"] for d in row["devices"]] == ["HEALTHY", "HEALTHY"]
    assert row["reason"] == "slower attention and convolutions: cuDNN cannot be loaded"
    assert f"cuda 1 NVIDIA H200; {row['reason']}\n" in service.cli("executors").stdout


def test_a_gang_goes_where_its_ranks_can_talk(service_and_host, driver, tiny, tmp_path):
    service, host = service_and_host
    (tmp_path / "says").write_text("4 no jobs of several ranks: NCCL cannot be loaded")
    lone = host("o", driver, options=["--library-path", str(tmp_path)])
    assert "no jobs of several ranks: NCCL cannot be loaded" in service.cli("executors").stdout
    gang, single = service.submit(cuda(tiny, data=2)), service.submit(cuda(tiny))
    why = "needs 2 cuda slots, more than the 0 of all attached executors; 2 more take jobs of one rank only"
    wait_until(lambda: service.json("get", gang).get("reason") == why, 20, "why the gang waits")
    with service.watch(single) as watch:
        watch.until_step(3)
    other = host("p", driver)
    with service.watch(gang) as watch:
        watch.until_step(3)
    where = [{p["executor"] for p in service.json("get", job)["attempts"][-1]["placements"]} for job in (gang, single)]
    assert where == [{f"executors/{other.id}"}, {f"executors/{lone.id}"}]
    service.cli("cancel", gang)
    service.cli("cancel", single)


def test_a_gpu_is_offered_by_one_executor_at_a_time_however_that_ended(service_and_host, driver, tmp_path):
    service, host = service_and_host
    first = host("q", driver)
    second = Host(service, "q", driver, tmp_path, ())
    second.directory = tmp_path / "q2"
    try:
        second.start()
        assert {(d["state"], d["reason"]) for d in second.row()["devices"]} == {
            ("QUARANTINED", "another executor of this host has it")}
        assert {d["state"] for d in first.row()["devices"]} == {"HEALTHY"}
        first.process.kill()
        first.process.wait()
        second.stop()
        second.start()
        wait_until(lambda: {d["state"] for d in second.row()["devices"]} == {"HEALTHY"}, 20, "the second's turn")
    finally:
        second.stop()


def test_executors_of_one_up_share_the_gpus(tmp_path, driver, monkeypatch):
    for program in ("trainyard", "trainyard-controller", "trainyard-executor"):
        shutil.copy(BIN / program, tmp_path)
    shutil.copy(HERE / "worker.py", tmp_path / "trainyard-worker")
    monkeypatch.setattr(yard_module, "BIN", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("FAKE_NVML_HOST", f"r-{os.getpid()}")
    service = Service(tmp_path / "service", executors=2)
    service.directory.mkdir()
    service.start()
    try:
        devices = [d for x in service.json("executors")["executors"] for d in x.get("devices", [])]
        assert sorted((d.get("index", 0), d["uuid"], d["state"]) for d in devices) == [
            (n, f"GPU-r-{os.getpid()}-{n}", "HEALTHY") for n in (0, 1)]
        assert [len(x["devices"]) for x in service.json("executors")["executors"]] == [1, 1]
    finally:
        service.stop()


def test_a_worker_away_from_its_plugin_names_it(tmp_path):
    worker = tmp_path / "trainyard-worker"
    worker.write_bytes((BIN / "trainyard-worker").read_bytes())
    worker.chmod(0o755)
    done = subprocess.run([worker, "--check-cuda"], capture_output=True, text=True)
    assert done.returncode == 3 and done.stdout.count("\n") == 1
    assert done.stdout.startswith("device 'cuda' needs a library that cannot be loaded: libtrainyard_cuda.so: ")


def check_cuda(folder, driver_version=None, hollow=()):
    """What the real worker says with its real plugin, where a driver has this version, and these libraries are empty."""
    if not (BIN.parent / "lib" / "libtrainyard_cuda.so").exists():
        pytest.skip("this build has no CUDA plugin")
    make = ["cc", "-shared", "-fPIC", "-o"]
    if driver_version:
        source = HERE.parents[1] / "kernels" / "cuda" / "libcuda.c"
        subprocess.run([*make, folder / "libcuda.so.1", f"-DDRIVER_VERSION={driver_version}", source], check=True)
    for library in hollow:
        subprocess.run([*make, folder / library, "-xc", "/dev/null"], check=True)
    done = subprocess.run([BIN / "trainyard-worker", "--check-cuda"], capture_output=True, text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(folder), CUDA_VISIBLE_DEVICES=""))
    assert done.stderr == "" and done.stdout.count("\n") <= 1
    if "made without cuBLASLt" in done.stdout:
        pytest.skip("this build's CUDA kernels were made without cuBLASLt")
    return done.returncode, done.stdout.strip()


def test_a_worker_says_that_no_job_can_run_without_a_driver_for_its_cuda(tmp_path):
    status, said = check_cuda(tmp_path, 12040)
    assert (status, said.split(", and this build")[0]) == (3, "the driver is too old: it runs CUDA 12.4")
    (tmp_path / "libcuda.so.1").write_text("no library, nor is any behind it looked at")
    assert check_cuda(tmp_path) == (3, "the driver has no libcuda.so.1 here")


def test_a_worker_says_what_jobs_do_without_and_what_follows(tmp_path):
    status, said = check_cuda(tmp_path, 13000, ["libcudnn.so.9", "libcupti.so.13"])
    slower, unnamed = said.split("; ")[-2:]
    assert slower.startswith("slower attention and convolutions: "), said
    assert unnamed.startswith("no names of kernels in profiles: "), said
    assert status == (4 if said.startswith("no jobs of several ranks: ") else 0)  # a build may have no NCCL
    status, lone = check_cuda(tmp_path, 13000, ["libnccl.so.2"])
    assert status == 4 and lone.startswith("no jobs of several ranks: "), lone
    assert lone.endswith(f"; {slower}; {unnamed}")


def test_a_part_that_is_none_is_refused(tmp_path):
    for part in ("", "1", "/2", "1/", "0/2", "3/2", "1/65", "x/2", "1/2/3", "10000000001/2"):
        done = subprocess.run([BIN / "trainyard-executor", "--controller", "unix:/none", "--directory", tmp_path / "x", "--checkpoint-root", tmp_path,
                               "--gpu-part", part], capture_output=True, text=True, timeout=300)
        assert done.returncode == 2
        assert f"--gpu-part: '{part}' is not K/N, with K from 1 to N and N at most 64" in done.stderr


def test_a_library_path_that_is_no_list_of_absolute_paths_is_refused(tmp_path):
    for path in ("lib", "/a:lib", "/a:", ":/a", "/a::/b"):
        done = subprocess.run([BIN / "trainyard-executor", "--controller", "unix:/none", "--directory", tmp_path / "x", "--checkpoint-root", tmp_path,
                               "--library-path", path], capture_output=True, text=True, timeout=300)
        assert done.returncode == 2
        assert f"'{path}' is not a list of absolute paths" in done.stderr


def test_each_rank_sees_its_own_device_and_its_samples_are_metrics_of_it(service_and_host, driver, tiny):
    service, host = service_and_host
    h = host("c", driver)
    job = service.submit(cuda(tiny, data=2))
    with service.watch(job) as watch:
        watch.until_step(3)
    seen = wait_until(lambda: [line for line in service.cli("logs", job).stdout.splitlines() if "sees GPU-" in line]
                      if service.cli("logs", job).stdout.count("sees GPU-") == 2 else None, 20, "both ranks' lines")
    assert sorted(line.rsplit(" ", 1)[1] for line in seen) == [h.gpu(0), h.gpu(1)]

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


def test_an_ill_device_is_quarantined_and_its_job_goes_elsewhere_or_waits_and_says_why(service_and_host, driver, tiny):
    service, host = service_and_host
    first = host("d", driver)
    job = service.submit(cuda(tiny))
    with service.watch(job) as watch:
        watch.until_step(3)
        first.script.write_text("uncorrected 0 2\n")
        until_attempt(watch, 2)
    states = {d["uuid"]: (d["state"], d.get("reason", "")) for d in first.row()["devices"]}
    assert states == {first.gpu(0): ("QUARANTINED", "2 uncorrected memory errors since its driver was loaded"),
                      first.gpu(1): ("HEALTHY", "")}
    assert "(quarantined: 2 uncorrected memory errors since its driver was loaded)" in service.cli("executors").stdout
    now = service.json("get", job)
    assert int(now.get("restarts", 0)) == 0
    assert "lost its GPU 0, which is quarantined" in str(now["attempts"][0])
    first.script.write_text("uncorrected 0 2\nxid 1 79\n")
    with service.watch(job) as watch:
        watch.until_event("waiting", 30)
    said = service.json("get", job)["reason"]
    assert said == "needs 1 cuda slot, more than the 0 of all attached executors; 2 more are quarantined", said
    second = host("e", driver)
    with service.watch(job) as watch:
        until_attempt(watch, 3)
    assert service.json("get", job)["attempts"][-1]["placements"][0]["executor"].endswith(second.id)
    service.cli("cancel", job)


def test_a_quarantine_outlives_the_agent_until_its_line_is_taken_out(service_and_host, driver):
    service, host = service_and_host
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
    wait_until(lambda: h.row()["devices"][1]["state"] == "HEALTHY", 20, "the quarantine's end")


def test_a_quarantine_outlives_the_absence_of_its_gpu(service_and_host, driver):
    service, host = service_and_host
    h = host("h", driver)
    h.script.write_text("xid 0 79\n")
    wait_until(lambda: h.row()["devices"][0]["state"] == "QUARANTINED", 20, "the first quarantine")
    h.stop()
    h.script.write_text("gone 0 0\n")
    h.start()
    wait_until(lambda: [(d["uuid"], d["state"]) for d in h.row()["devices"]] == [(h.gpu(1), "HEALTHY")], 20,
               "a host without the first")
    h.script.write_text("gone 0 0\nuncorrected 1 1\n")
    wait_until(lambda: h.row()["devices"][0]["state"] == "QUARANTINED", 20, "the second quarantine")
    h.stop()
    h.script.write_text("")
    h.start()
    both = {h.gpu(0): "Xid 79", h.gpu(1): "1 uncorrected memory error since its driver was loaded"}
    wait_until(lambda: {d["uuid"]: d.get("reason") for d in h.row()["devices"]} == both, 20, "both quarantines")


def test_a_gpu_that_the_driver_does_not_describe_is_shown_with_the_reason_and_gets_no_rank(service_and_host, driver, tiny):
    service, host = service_and_host
    h = host("i", driver, "undescribed 0 999\n")
    assert [(d["uuid"], d["state"], d.get("reason", "")) for d in h.row()["devices"]] == [
        (h.gpu(0), "QUARANTINED", "the driver does not describe it (NVML code 999)"), (h.gpu(1), "HEALTHY", "")]
    wide, narrow = service.submit(cuda(tiny, data=2)), service.submit(cuda(tiny))
    why = "needs 2 cuda slots, more than the 1 of all attached executors; 1 more is quarantined"
    wait_until(lambda: service.json("get", wide).get("reason") == why, 20, "why the wide job waits")
    service.cli("cancel", wide)
    with service.watch(narrow) as watch:
        watch.until_step(3)
    wait_until(lambda: f"sees {h.gpu(1)}" in service.cli("logs", narrow).stdout, 20, "which device the rank sees")
    service.cli("cancel", narrow)


def test_a_gpus_death_that_is_told_after_its_workers_is_what_the_worker_died_of(service_and_host, driver, tiny):
    service, host = service_and_host
    h = host("j", driver)
    job = service.submit(cuda(tiny))
    with service.watch(job) as watch:
        watch.until_step(3)
        pid = int(service.json("get", job)["attempts"][0]["placements"][0]["pid"])
        h.script.write_text(f"grave 0 {pid}\n")
        os.kill(pid, signal.SIGKILL)
        until_attempt(watch, 2)
    now = service.json("get", job)
    assert "lost its GPU 0, which is quarantined: Xid 79" in str(now["attempts"][0])
    assert int(now.get("restarts", 0)) == 0
    service.cli("cancel", job)


def test_a_workers_own_death_is_its_own_once_its_gpu_has_been_looked_at(service_and_host, driver, tiny):
    service, host = service_and_host
    host("k", driver)
    job = service.submit(cuda(tiny))
    with service.watch(job) as watch:
        watch.until_step(3)
        pid = int(service.json("get", job)["attempts"][0]["placements"][0]["pid"])
        os.kill(pid, signal.SIGKILL)
        watch.until(lambda update: update.get("event", {}).get("state") == "FAILED", 5, "the job's end")
    assert "killed by signal 9" in service.json("get", job)["reason"]


def test_a_programs_own_xid_is_no_reason(service_and_host, driver):
    service, host = service_and_host
    h = host("g", driver)
    h.script.write_text("xid 0 31\nxid 1 79\n")
    wait_until(lambda: h.row()["devices"][1]["state"] == "QUARANTINED", 20, "the quarantine")
    assert h.row()["devices"][0]["state"] == "HEALTHY"
