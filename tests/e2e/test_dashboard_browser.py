"""The web page in a real Chromium: what a user sees, by mouse and by keys, in both themes; scripts of dashboard/."""

import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile

import pytest

from dashboard_page import Filler, Page, lacks
from service_fixture import PATIENCE, Service, wait_until
from test_access import Controller

pytestmark = [pytest.mark.xdist_group("dashboard_browser"),
              pytest.mark.skipif(lacks("playwright-core", "axe-core") is not None, reason=str(lacks("playwright-core", "axe-core")))]

MARKUP = ('for i in 1 2 3; do echo "{\\"step\\": $i, \\"loss\\": $i.5, \\"<img/src=x>\\": 1}" > $TRAINYARD_METRICS; done; '
          'echo "<script>document.title = 1</script>"; exec python3 -c "raise ValueError(\'<b>bold</b>\')"')


@pytest.fixture(scope="module")
def page(shared_service):
    page = Page(shared_service.environment())
    yield page
    page.stop()


@pytest.fixture(scope="module")
def markup(shared_service):
    """A program whose log, metric and exception are markup."""
    job = shared_service.submit({"name": "markup", "program": {"command": ["sh", "-c", MARKUP]}, "retry": {"max_restarts": 0}})
    shared_service.wait_end(job, "FAILED")
    return job


@pytest.fixture(scope="module")
def jobs(shared_service, tiny):
    """Two jobs that have ended. The first one was paused, and one of its ranks was killed."""
    slow = tiny(steps=2000, seed=1, every=200, data=2, labels={"team": "a"}, checkpoint__keep_last=100)
    first = shared_service.submit(slow)
    with shared_service.watch(first) as watch:
        watch.until_step(300)
        shared_service.cli("pause", first)
        watch.until_state("PAUSED")
        shared_service.cli("resume", first)
        watch.until_step(900)
        os.kill(shared_service.worker_pids(first)[0][0], signal.SIGKILL)
    shared_service.wait_end(first)
    second = shared_service.submit(tiny(steps=60, seed=2, data=2, labels={"team": "b"}))
    shared_service.wait_end(second)
    return [first, second]


@pytest.fixture
def folder(tmp_path):
    kept = os.environ.get("TRAINYARD_SCREENSHOTS")
    if kept:
        pathlib.Path(kept).mkdir(parents=True, exist_ok=True)
    return kept or tmp_path


def test_every_page_is_accessible_in_both_themes_and_fits_a_narrow_window(page, jobs, markup, folder):
    report = page.script("pages", folder, jobs=jobs, markup=markup)
    assert report["violations"] == [] and report["wide"] == []
    assert set(report["titles"]) == {"markup · Trainyard", 0}, "markup was interpreted"


def stored_of(service, job, name):
    return {int(step): mean for s in service.json("metrics", job, name)["series"] if s.get("rank", 0) == 0
            for step, mean in zip(s["step"], s["mean"])}


def test_the_curves_of_a_job_are_read_zoomed_and_marked_by_mouse_and_by_keys(page, shared_service, jobs, folder):
    job = jobs[0]
    report = page.script("curves", folder, job=job)
    stored = stored_of(shared_service, job, "loss")
    for step, value in report["hovered"] + [key[1:] for key in report["keys"]]:
        near = [stored[s] for s in stored if abs(s - int(step)) < 3]  # an entry may be the mean of several points
        assert min(near) * 0.99 <= float(value) <= max(near) * 1.01, (step, value, near)
    steps = [int(key[1]) for key in report["keys"]]
    assert steps[0] < steps[1] < steps[2] < steps[4] < steps[3] == 2000

    checkpoints = page.json("CheckpointService/ListCheckpoints", {"parent": f"jobs/{job}", "page_size": 100})["checkpoints"]
    committed = sorted(int(c["step"]) for c in checkpoints if c["state"] == "COMMITTED")
    assert sorted(int(text.split()[3].replace(",", "")) for text in report["marks"]["checkpoint"]) == committed
    assert report["marks"]["pause"] == ["paused"] and len(report["marks"]["restart"]) == 1
    assert "killed" in report["marks"]["restart"][0]

    assert report["axes"]["Step"][-1] == "2000" and any(text.endswith(" s") for text in report["axes"]["Time"])
    assert report["axes"]["Tokens"][-1] == "400k"  # 2000 steps of 8 samples of 32 tokens are 512,000
    assert report["smoothed"] == [True, 2], "the curve before smoothing stays in view"
    assert 600 < int(report["zoomed"]["after_step"]) < int(report["zoomed"]["until_step"]) < 1400
    assert [row[0] for row in report["plan"]] == ["Time of a step", "Tokens per second", "Utilization (mfu)", "Memory of the largest rank"]
    assert all(row[2] != "–" for row in report["plan"])
    assert report["help"] > 20 and report["events"] > 10 and report["found"] == "search"

    forked = int(report["fork"].partition("@")[2])
    assert forked == max(step for step in committed if step <= int(report["hovered"][-1][0]))
    line, title = report["log"]["hovered"]
    assert "step 1800" in line or "step 1600" in line, (line, title)

    seconds = report["seconds"]
    whole = sum(a["ranks"] * a["wall_seconds"] for a in seconds["attempts"])
    assert sum(report["strip"].values()) == pytest.approx(whole, rel=0.001)
    assert len(seconds["attempts"]) == 3 and report["strip"]["repeated"] > 0


def test_jobs_are_compared_with_the_differences_between_their_specs(page, jobs, folder):
    report = page.script("compare", folder, jobs=jobs)
    assert report["lines"] == 2 and report["hidden"] == 1 and report["styles"] == 50
    head, *rows = report["table"]
    assert {"train.seed", "labels.team", "train.steps"} <= {title.strip(" ↑↓") for title in head}
    seed = [title.strip(" ↑↓") for title in head].index("train.seed")
    assert sorted(row[seed] for row in rows) == ["1", "2"] and [row[seed] for row in report["sorted"][1:]] == ["2", "1"]
    assert sorted(report["focused"]) == ["0.15", "1"]
    assert report["missing"] == 2 * [["jobs/999999 does not exist", 0]]


def test_the_form_reports_while_typing_shows_the_plan_and_submits_and_forks(page, shared_service, jobs, folder):
    stored = page.json("CheckpointService/ListCheckpoints", {"parent": f"jobs/{jobs[0]}", "page_size": 100})["checkpoints"]
    step = min(int(c["step"]) for c in stored if c["state"] == "COMMITTED")
    report = page.script("new_job", folder, job=jobs[0], step=step)
    assert "-4" in report["problem"] and report["invalid"] == "true" and report["refused"]
    assert any(family.startswith("parameters: ") for family in report["families"]) and report["spans"] > 3
    created, forked = shared_service.json("get", report["created"]), shared_service.json("get", report["forked"])
    assert (created["display_name"], created["state"], created["spec"]["train"]["steps"]) == ("from-the-form", "CANCELLED", "1000000")
    assert report["kept"] == 0, "Escape keeps the job"
    assert report["from"] == f"jobs/{jobs[0]}@{step}" and forked["forked_step"] == str(step)
    assert report["program"] == 0


def endless(tiny, **more):
    return tiny(steps=1_000_000, every=1000, train__learning_rate_schedule={"constant": {}}, **more)


def test_each_action_takes_one_confirmation(page, shared_service, tiny, jobs, markup, folder):
    running = shared_service.submit(endless(tiny))
    with shared_service.watch(running) as watch:
        watch.until_step(5)
    report = page.script("actions", folder, running=running, failed=markup, done=jobs[1], allowed=True)
    assert report["states"] == {"pause": "PAUSED", "resume": "RUNNING", "cancel": "CANCELLED"}
    assert report["sample"].startswith("The ") and len(report["sample"]) > 4
    assert report["drained"] == "a new disk"
    assert any(c.get("pinned") for c in page.json("CheckpointService/ListCheckpoints", {"parent": f"jobs/{jobs[1]}"})["checkpoints"])


@pytest.fixture
def controller():
    """It asks for tokens, and has jobs in each state that an action needs."""
    with tempfile.TemporaryDirectory(prefix="trainyard-page-") as directory:
        directory = pathlib.Path(directory)
        (directory / "up").mkdir()
        up = Service(directory / "up", executors=0).start()
        try:
            controller = Controller(directory, up)
            yield controller
            controller.stop()
        finally:
            up.stop()


def page_of(controller, secret):
    return Page(dict(controller.environment, TRAINYARD_CONTROLLER=controller.address, TRAINYARD_TOKEN=secret))


def test_a_role_that_may_not_act_and_a_token_that_is_revoked_give_sentences(controller, folder):
    user, viewer = controller.token("user", "USER"), controller.token("viewer", "VIEWER")
    spec = folder and pathlib.Path(folder) / "spec.json"
    spec.write_text(json.dumps({"name": "waits", "program": {"command": ["true"]}}))
    waits = [controller.cli("submit", spec, "--wait-for-hosts", token=user).stdout.strip() for _ in range(3)]
    controller.database.sql(f"""
        UPDATE job SET state = 11, end_time = now() WHERE id IN ({waits[1]}, {waits[2]});
        ALTER TABLE job DISABLE TRIGGER USER; UPDATE job SET state = 10 WHERE id IN ({waits[1]}, {waits[2]}); ALTER TABLE job ENABLE TRIGGER USER;
        INSERT INTO attempt (job, number, state, epoch, from_step, end_time) VALUES ({waits[2]}, 1, 4, 1, 0, now());
        INSERT INTO checkpoint (job, attempt, step, state, world_size, directory, shards, commit_time)
          VALUES ({waits[2]}, 1, 5, 2, 1, '/c', 1, now())""")
    page = page_of(controller, viewer)
    try:
        report = page.script("actions", folder, running=waits[0], failed=waits[1], done=waits[2], allowed=False)
        assert set(report["sentences"]) == {"pause", "cancel", "retry", "pin", "submit"}
        for name, sentence in report["sentences"].items():
            assert sentence.startswith("You may not do this: ") and "the token 'viewer' has VIEWER" in sentence, (name, sentence)
    finally:
        page.stop()


def test_saved_pages_open_from_disk_without_script_and_network(page, jobs, markup, folder):
    saved = page.script("saved", folder, jobs=jobs, markup=markup)["saved"]
    for name, one in saved.items():
        assert one["scripts"] == 0 and one["requests"] == 1 and one["lines"] > 0, (name, one)
    assert saved["job"]["marks"] > 5 and "validation_loss" in saved["job"]["text"]
    assert "<script>document.title = 1</script>" in saved["markup"]["text"] and "<img/src=x>" in saved["markup"]["text"]
    assert saved["markup"]["title"].startswith("markup (job ")
    assert "train.seed" in saved["compare"]["text"] and saved["compare"]["lines"] == 2


def outage(page, folder, act, **given):
    """act() runs between the first look and the second."""
    process = page.start_script("outage", folder, **given)
    said = process.stderr.readline()
    if said.strip() == "shown":
        act()
    out, err = process.communicate("on\n", timeout=300 * PATIENCE)
    assert process.returncode == 0, said + out + err
    report = json.loads(out)
    assert report["errors"] == [] and report["lines"] > 0, report
    return report


def test_the_page_goes_on_after_its_controller_was_killed_and_says_when_its_server_ended(service, tiny, folder):
    job = service.submit(endless(tiny))
    with service.watch(job) as watch:
        watch.until_step(5)
    page = Page(service.environment())
    report = outage(page, folder, lambda: os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL), job=job, returns=True)
    assert report["banner"] == ""
    [sentence] = outage(page, folder, page.stop, job=job, returns=False)["sentences"]
    assert sentence == "This page's server has ended: run `trainyard dashboard` again."


def test_a_token_that_is_revoked_gives_a_sentence(controller, folder):
    viewer, user = controller.token("other", "VIEWER"), controller.token("maker", "USER")
    spec = pathlib.Path(folder) / "spec.json"
    spec.write_text(json.dumps({"name": "waits", "program": {"command": ["true"]}}))
    job = controller.cli("submit", spec, "--wait-for-hosts", token=user).stdout.strip()
    controller.database.sql(f"""
        INSERT INTO metric_name (name) VALUES ('loss');
        INSERT INTO job_metric SELECT {job}, id FROM metric_name;
        INSERT INTO metric_chunk SELECT {job}, id, 0, 1, 0, 2, 1, 1, 2, 1, 2, 3, '{{1,2}}', NULL FROM metric_name""")
    page = page_of(controller, viewer)
    try:
        [sentence] = outage(page, folder, lambda: controller.cli("token", "revoke", "other", by_socket=True), job=job, returns=False)["sentences"]
        assert "the token 'other' was revoked" in sentence and "trainyard dashboard" in sentence
    finally:
        page.stop()


def test_much_data_costs_no_more_than_what_is_in_view(shared_service, page, tiny, jobs, folder):
    """Ten thousand jobs, fifty series of 4,800 points, one of 240,000, and a log of 20,000 lines. How long this takes is
    measured by `./dev bench dashboard`."""
    filler = Filler(shared_service)
    filler.jobs(jobs[1], 10_000, "copy")
    listed = page.json("JobService/ListJobs", {"page_size": 52})["jobs"]
    ids = [job["name"].split("/")[1] for job in listed]
    for job in ids[:50]:
        filler.points(job, 20)
    filler.points(ids[50], 1000)
    filler.log(ids[51], 20)
    report = page.script("large", folder, jobs=ids[:50], long=ids[50], log=ids[51], live=None, times=1, found="copy-77")
    assert report["rows"] == 50 and report["found"] == 50
    assert report["bytes"] < 10_000_000, "the service downsamples"
    assert report["tab"] < 150_000_000, report["tab"]
    assert 500 < report["long"][1] <= 2000
    assert report["log"][0] < 120 and report["log"][1].endswith(" text") and "line 20000" in report["log"][1]


def test_a_page_that_is_open_for_long_stays_small(shared_service, page, folder):
    """Hundreds of updates of a job that reports and prints without end."""
    script = ('import json, os, time\nout = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)\n'
              'for i in range(1, 1 << 40):\n    out.write(json.dumps({"step": i, "loss": 1 / i, "other": i % 7}) + "\\n")\n'
              '    print("step", i, 60 * "x", flush=True)\n    time.sleep(0.002)\n')
    job = shared_service.submit({"name": "chatty", "program": {"command": ["python3", "-c", script]}})
    with shared_service.watch(job) as watch:
        watch.until_state("RUNNING")
    try:
        report = page.script("large", folder, jobs=[job], long=job, log=job, live=job, times=1, found="", updates=300, faster=50)
        (before, nodes), (after, more) = report["before"], report["after"]
        assert after < 40_000_000 and after < 2 * before + 5_000_000, report
        assert more < 2 * nodes + 2000, report
        assert report["tab"] < 150_000_000, report
    finally:
        shared_service.cli("cancel", job)


@pytest.mark.skipif(lacks("lighthouse") is not None, reason=str(lacks("lighthouse")))
def test_lighthouse_finds_every_page_accessible(page, jobs, folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    scores = page.script("lighthouse", folder, port=port, pages=[
        ["overview", "#/"], ["job", f"#/jobs/{jobs[0]}"], ["compare", f"#/compare/{','.join(jobs)}"], ["hosts", "#/hosts"],
        ["new", f"#/new/{jobs[0]}"]])["scores"]
    assert all(score >= 0.95 for score, _ in scores.values()), scores
