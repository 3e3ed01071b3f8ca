"""The web page shows the GPUs of hosts: which are busy, idle, free, quarantined or not reachable."""

import pytest

from dashboard_page import Page, lacks
from service_fixture import wait_until
from test_devices import Host, cuda, driver, service_and_host  # noqa: F401

pytestmark = [pytest.mark.xdist_group("dashboard_gpus"),
              pytest.mark.skipif(lacks("playwright-core", "axe-core") is not None, reason=str(lacks("playwright-core", "axe-core")))]


def start_job(service, tiny, ranks, name):
    job = service.submit(cuda(tiny, data=ranks) | {"name": name})
    with service.watch(job) as watch:
        watch.until_step(3)
    return job


def test_tiles_of_gpus_say_what_a_gpu_does_and_look_different_by_it(service_and_host, driver, tiny, tmp_path):  # noqa: F811
    service, host = service_and_host
    host("idle", driver, "idle 0 0\n")
    jobs = [start_job(service, tiny, 2, "one-idle")]
    host("silent", driver, "unmeasured 0 3\nunmeasured 1 3\n")
    jobs.append(start_job(service, tiny, 2, "unmeasured"))
    wait_until(lambda: len(service.json("metrics", jobs[0], "device_utilization").get("series", [])) == 2, 30, "samples")
    lost = host("lost", driver)
    lost.process.kill()
    lost.process.wait()
    ill = host("ill", driver, "uncorrected 1 2\n")
    wait_until(lambda: ill.row()["devices"][1]["state"] == "QUARANTINED", 30, "the quarantine")
    wait_until(lambda: lost.row()["state"] == "LOST", 60, "the end of the host's lease")
    page = Page(service.environment())
    try:
        report = page.script("gpus", tmp_path, wanted={"idle": 1, "busy": 1, "silent": 2, "lost": 2, "out": 1, "free": 1})
    finally:
        page.stop()
    for job in jobs:
        service.cli("cancel", job)
    assert report["violations"] == [] and report["focused"]
    for tiles in report["tiles"].values():
        texts = {kind: {t["text"] for t in tiles if t["kind"] == kind} for kind in ("idle", "busy", "silent", "lost", "out", "free")}
        assert [t[:7] for t in texts["idle"]] == ["0% idle"] and [t[:8] for t in texts["busy"]] == ["76% busy"], texts
        assert all("one-idle" in t and "613\u00a0W" in t for kind in ("idle", "busy") for t in texts[kind]), texts
        assert all(t.startswith("In use unmeasured") for t in texts["silent"]), texts
        assert texts["lost"] == {f"GPU {n} not reachablehost lost" for n in (0, 1)}, texts
        assert texts["out"] == {"GPU 1 quarantined2 uncorrected memory errors since its driver was loaded"}, texts
        assert texts["free"] == {"GPU 0 free140 GiB"}, texts
        assert not any(t["clipped"] for t in tiles), tiles
        assert sum(t["links"] for t in tiles) == 4
    for looks in report["looks"].values():
        assert len(looks) == 6 == len(set(looks.values())), looks
