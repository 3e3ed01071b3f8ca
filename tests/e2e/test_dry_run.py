"""`submit --dry-run`: the check of the service, the plan and what would happen; and nothing is stored."""

import json

import pytest

from service_fixture import wait_until

PROGRAM = {"name": "dry", "program": {"command": ["true"]}}


@pytest.fixture
def dry(shared_service, tmp_path):
    def run(spec, *arguments, **more):
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(spec))
        return shared_service.cli("submit", path, "--dry-run", *arguments, **more)
    return run


def newest(service):
    return [job["name"] for job in service.json("list", "--limit", "1")["jobs"]]


def test_a_model_gets_its_plan_its_start_and_its_spec_and_no_job(shared_service, tiny, dry):
    before = newest(shared_service)
    shown = dry(tiny(steps=3, data=2), "--name", "renamed", "--set", "labels.team=a").stdout
    assert "is valid: 2 ranks, " in shown and "micro_batch " in shown and "the job needs 2 cpu slots: " in shown
    assert "\nspec:\n  name: renamed\n" in shown and "    team: a\n" in shown and "  queue: default\n" in shown
    assert newest(shared_service) == before


def test_a_pipeline_that_waits_is_reported(tiny, dry):
    assert "the pipeline's stages wait " in dry(tiny(steps=3, parallel__pipeline=2)).stdout
    assert "stages wait" not in dry(tiny(steps=3, data=2)).stdout


def test_what_would_happen_follows_from_the_slots(shared_service, dry):
    slots = next(s["slots"] for s in shared_service.json("status")["slots"] if s["kind"] == "cpu")
    wide = {**PROGRAM, "parallel": {"data": slots + 1}}
    error = dry(wide, status=2).stderr
    assert f"parallel: needs {slots + 1} cpu slots" in error
    assert f"it would wait for executors, since all together have {slots}\n" in dry(wide, "--wait-for-hosts").stdout
    all_slots = shared_service.submit({"name": "all", "program": {"command": ["sleep", "600"]}, "parallel": {"data": slots}})
    with shared_service.watch(all_slots) as watch:
        watch.until_state("RUNNING")
        forecast = f"the job needs 1 cpu slot: it would wait, since 0 of {slots} are free\n"
        wait_until(lambda: forecast in dry(PROGRAM).stdout, 30, "the counts of a later tick of the scheduler")
    shared_service.cli("cancel", all_slots)


def test_problems_are_those_of_submit(shared_service, tiny, dry, tmp_path):
    spec = tiny(steps=3)
    spec["data"]["text"]["files"] = ["file:///nonexistent/corpus.txt"]
    done = dry(spec, status=2)
    assert "data.text.files[0]: " in done.stderr and done.stdout == ""
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(spec))
    submitted = shared_service.cli("submit", path, status=2)
    assert submitted.stderr.replace("wrong.json", "spec.json") == done.stderr


def test_other_formats_and_wrong_usage(shared_service, dry):
    assert json.loads(dry(PROGRAM, "-o", "json").stdout)["resolved"]["name"] == "dry"
    assert dry(PROGRAM, "-o", "yaml").stdout.startswith("name: dry\n")
    assert dry(PROGRAM, "--watch", status=2).stderr == "trainyard: --watch: with --dry-run there is no job\n"
