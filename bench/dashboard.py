"""The web page in Chromium with much data: ten thousand jobs, fifty series of 100,000 points side by side, one of a
million points. Needs what the browser tests need (tests/README.md: TRAINYARD_NODE_MODULES)."""

import pathlib
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))

from dashboard_page import Filler, Page, lacks
from report import report
from service_fixture import Service

JOBS, SERIES, CHUNK = 10_000, 50, 240    # a chunk of the database has 240 points
TIMES = 9
JOB = {"name": "filled", "program": {"command": ["sh", "-c", 'echo \'{"step": 1, "loss": 2}\' > $TRAINYARD_METRICS']}}


def measure(service, folder):
    job = service.submit(JOB)
    service.wait_end(job)
    filler = Filler(service)
    filler.jobs(job, JOBS, "copy")
    page = Page(service.environment())
    try:
        listed = page.json("JobService/ListJobs", {"page_size": SERIES + 2})["jobs"]
        ids = [job["name"].split("/")[1] for job in listed]
        for job in ids[:SERIES]:
            filler.points(job, 100_000 // CHUNK + 1)
        filler.points(ids[SERIES], 1_000_000 // CHUNK + 1)
        filler.log(ids[SERIES + 1], 50)
        return page.script("large", folder, jobs=ids[:SERIES], long=ids[SERIES], log=ids[SERIES + 1], live=None,
                           times=TIMES, found="copy-77")
    finally:
        page.stop()


def row(figure, values, goal=None):
    return {"figure": figure, "p50": statistics.median(values), "least": min(values), "most": max(values), "goal": goal}


def main():
    missing = lacks("playwright-core")
    if missing:
        sys.exit(f"bench dashboard: {missing}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    (folder / "service").mkdir()
    service = Service(folder / "service").start()
    try:
        found = measure(service, folder)
    finally:
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report("dashboard", [
        row(f"first paint with {JOBS:,} jobs, ms", [paint for paint, _ in found["paint"]], "<= 300"),
        row("first job drawn, ms", [drawn for _, drawn in found["paint"]]),
        row(f"{SERIES} series of 100,000 points side by side, ms", found["overlay"], "<= 1000"),
        row("memory of the tab that shows them, MB", [found["tab"] / 1e6], "<= 150"),
        row("of it JavaScript's heap, MB", [found["heap"] / 1e6]),
        row("a series of a million points, ms", [found["long"][0]])])


main()
