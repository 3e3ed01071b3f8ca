"""Sweeps: many jobs of one spec, created by the service. They survive the client and kill -9 of the controller, of the
executor and of PostgreSQL with every trial exactly once."""

import contextlib
import json
import os
import random
import signal
import sys
import time

import pytest

from service_fixture import PATIENCE, Database, process_start_time, wait_until

ENDLESS = 1_000_000
RATE = "train.optimizer.adamw.lr"


def write(service, sweep, name="sweep.json"):
    path = service.directory / name
    path.write_text(json.dumps(sweep))
    return path


def program(command, parameters, **more):
    """A sweep of a program's job."""
    return {"job": {"program": {"command": command}, "retry": {"max_restarts": 0}}, "parameters": parameters, **more}


def create(service, sweep, *arguments, status=0):
    return service.cli("sweep", "create", write(service, sweep), "--wait-for-hosts", *arguments, status=status)


def trials(service, name):
    return sorted(service.json("sweep", "get", name)["trials"], key=lambda trial: trial["number"])


def sweep_of(service, name):
    """None while the service starts again."""
    done = service.cli("sweep", "get", name, "-o", "json", status=None)
    return json.loads(done.stdout)["sweep"] if done.returncode == 0 else None


def wait_state(service, name, state, timeout_s=120):
    def ended():
        sweep = sweep_of(service, name)
        assert not sweep or sweep["state"] in (state, "RUNNING", "CANCELLING"), sweep
        return sweep and sweep["state"] == state and sweep
    return wait_until(ended, timeout_s, f"sweep {name} is {state}")


def wait_count(service, name, field, count):
    wait_until(lambda: (sweep_of(service, name) or {field: -1})[field] >= count, 60, f"{count} trials are {field}")


def jobs_of(service, name):
    return service.json("list", "-l", f"sweep={name}", "--limit", "1000")["jobs"]


def test_a_grid_runs_every_combination_and_shows_the_best(shared_service, tiny):
    sweep = {"name": "grid", "job": tiny(steps=12, every=0), "max_parallel": 2, "parameters": {
        RATE: {"choices": ["0.03", "0.0005"]}, "train.seed": {"min": 1, "max": 2, "integer": True, "count": 2}}}
    done = create(shared_service, sweep, "--watch")
    assert done.stdout == "grid\n"
    assert "sweeps/grid SUCCEEDED: 4 of 4 trials created, 4 ended, 4 SUCCEEDED, 0 FAILED, 0 stopped early; best: trial " in done.stderr
    answer = shared_service.json("sweep", "get", "grid")
    assert answer["sweep"]["parameters"] == [RATE, "train.seed"]
    by_number = {trial["number"]: trial for trial in answer["trials"]}
    assert [by_number[n]["values"] for n in (1, 2, 3, 4)] == [["0.03", "1"], ["0.03", "2"], ["0.0005", "1"], ["0.0005", "2"]]
    metrics = [trial["metric"] for trial in answer["trials"]]
    assert metrics == sorted(metrics), "the best one first"
    assert answer["sweep"]["best"] == answer["trials"][0] and answer["trials"][0]["number"] in (1, 2)
    for trial in answer["trials"]:
        job = shared_service.json("get", trial["job"])
        assert trial["state"] == job["state"] == "SUCCEEDED" and int(trial["step"]) == 12
        assert job["user"] == answer["sweep"]["user"] != ""
        assert job["display_name"] == f"grid-{trial['number']}"
        assert job["spec"]["labels"] == {"sweep": "grid", "trial": str(trial["number"])}
        assert job["spec"]["train"]["optimizer"]["adamw"]["lr"] == float(trial["values"][0])
        assert trial["metric"] == shared_service.metric(trial["job"], "loss")[12]
    # A trial is the job that its values say: a job of the same spec has the same bits.
    alone = shared_service.wait_end(shared_service.submit(tiny(
        steps=12, every=0, seed=2, train__optimizer={"adamw": {"lr": 0.03}})))
    assert shared_service.json("get", by_number[2]["job"])["weights_sha256"] == alone["weights_sha256"]
    table = shared_service.cli("sweep", "get", "grid").stdout
    assert f"best     trial {answer['trials'][0]['number']}, jobs/" in table and "lr=0.03 seed=" in table
    assert [line.split()[0] for line in shared_service.cli("sweep", "list").stdout.splitlines()] == ["SWEEP", "grid"]
    assert shared_service.cli("sweep", "get", "grid", "-o", "name").stdout.split() == [t["job"] for t in answer["trials"]]
    assert "is SUCCEEDED: it cannot be cancelled" in shared_service.cli("sweep", "cancel", "grid", status=1).stderr
    assert shared_service.cli("sweep", "delete", "grid").stdout == "sweeps/grid is deleted\n"
    shared_service.cli("sweep", "get", "grid", status=4)
    assert len(jobs_of(shared_service, "grid")) == 4, "the jobs stay"


def test_a_dry_run_lists_the_trials_that_would_run_and_stores_nothing(shared_service, tiny):
    sweep = {"name": "dry", "job": tiny(), "search": {"random": {"trials": 1500, "seed": 3}}, "parameters": {
        RATE: {"min": 0.001, "max": 0.1, "scale": "log"}, "train.seed": {"min": 1, "max": 9, "integer": True}}}
    first = json.loads(create(shared_service, sweep, "--dry-run", "-o", "json").stdout)
    assert first == json.loads(create(shared_service, sweep, "--dry-run", "-o", "json").stdout)
    assert [trial["number"] for trial in first["trials"]] == list(range(1, 1501))
    assert len({tuple(trial["values"]) for trial in first["trials"]}) == 1500
    assert len(create(shared_service, sweep, "--dry-run").stdout.splitlines()) == 1501
    assert shared_service.cli("sweep", "get", "dry", status=4)
    create(shared_service, {**sweep, "max_parallel": 1}, "--set", "search.random.trials=2", "--watch")
    assert [trial["values"] for trial in trials(shared_service, "dry")] == [t["values"] for t in first["trials"][:2]]


@pytest.mark.sanitized
def test_a_program_gets_its_values_as_arguments_and_variables(shared_service):
    script = shared_service.files / "score.sh"
    script.write_text('echo "{\\"step\\": 1, \\"score\\": $1$LR}" > "$TRAINYARD_METRICS"\n')
    sweep = program(["sh", str(script), "0"], {"program.environment.LR": {"choices": [".5", ".25"]},
                                               "program.command": {"choices": [f"[sh, {script}, {n}]" for n in (1, 2)]}},
                    name="scores", metric="score", goal="maximize", max_parallel=4)
    assert "best: trial 3, score 2.5" in create(shared_service, sweep, "--watch").stderr
    assert [trial["metric"] for trial in trials(shared_service, "scores")] == [1.5, 1.25, 2.5, 2.25]


@pytest.mark.sanitized
def test_failures_end_a_sweep_only_beyond_the_limit(shared_service):
    command = ["sh", "-c", "exit $STATUS"]
    sweep = program(command, {"program.environment.STATUS": {"choices": ["3", "0", "4", "00"]}}, name="some", max_failures=2)
    assert "4 ended, 2 SUCCEEDED, 2 FAILED" in create(shared_service, sweep, "--watch").stderr
    sweep = program(["sh", "-c", "test $N = 4 && exec sleep 600; exit $N"], {"program.environment.N": {"choices": list("412356")}},
                    name="many", max_failures=1, max_parallel=2)
    assert "2 trials FAILED, more than max_failures 1" in create(shared_service, sweep, "--watch", status=1).stderr
    found = trials(shared_service, "many")
    assert [trial["state"] for trial in found] == ["CANCELLED", "FAILED", "FAILED"], "no further trial was created"
    assert found[0]["reason"] == "its sweep is cancelled: 2 trials FAILED, more than max_failures 1"
    sweep = program(["false"], {"program.environment.N": {"choices": ["1", "2"]}}, name="none")
    assert "sweeps/none FAILED" in create(shared_service, sweep, "--watch", status=1).stderr
    assert shared_service.json("sweep", "get", "none")["sweep"]["reason"] == "none of the 2 trials SUCCEEDED"


def test_a_cancelled_sweep_cancels_its_jobs_and_creates_no_more(shared_service, tiny):
    sweep = {"name": "long", "job": tiny(steps=ENDLESS, every=0), "max_parallel": 3,
             "parameters": {"train.seed": {"choices": list("12345")}}}
    create(shared_service, sweep)
    wait_until(lambda: len(trials(shared_service, "long")) == 3, 60, "three jobs are created")
    assert "only a sweep that has ended" in shared_service.cli("sweep", "delete", "long", status=1).stderr
    assert shared_service.cli("sweep", "cancel", "long").stdout == "sweeps/long CANCELLING\n"
    ended = wait_state(shared_service, "long", "CANCELLED")
    assert (ended["created"], ended["ended"]) == (3, 3)
    for job in jobs_of(shared_service, "long"):
        assert (job["state"], job["reason"]) == ("CANCELLED", "its sweep was cancelled")
    assert shared_service.cli("sweep", "cancel", "long").stdout == "sweeps/long CANCELLED\n", "a repeated call"
    assert shared_service.cli("sweep", "watch", "long", status=3)


def test_a_trial_that_cannot_be_stored_does_not_hold_up_the_others(service):
    sql = Database(service, "unused").sql
    sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON sweep_trial FOR EACH ROW WHEN (NEW.number = 1) EXECUTE FUNCTION refuse()", "postgres")
    create(service, program(["true"], {"program.environment.N": {"choices": list("123")}}, name="held", max_parallel=1))
    wait_count(service, "held", "ended", 2)
    assert (sweep_of(service, "held")["state"], sweep_of(service, "held")["created"]) == ("RUNNING", 3)
    sql("DROP TRIGGER refuse ON sweep_trial", "postgres")
    assert wait_state(service, "held", "SUCCEEDED")["succeeded"] == 3


@pytest.mark.sanitized
def test_a_deleted_job_leaves_its_trial(shared_service):
    create(shared_service, program(["true"], {"program.environment.N": {"choices": ["1", "2"]}}, name="kept"), "--watch")
    job = trials(shared_service, "kept")[0]["job"]
    shared_service.cli("delete", job)
    wait_until(lambda: trials(shared_service, "kept")[0]["job"] == "", 60, "the job's rows are gone")
    assert [trial["state"] for trial in trials(shared_service, "kept")] == ["SUCCEEDED", "SUCCEEDED"]


@pytest.mark.parametrize("change, sentence", [
    ({"name": "x y"}, "name: 'x y' is not a name"),
    ({"parameters": {"train.stepss": {"choices": ["1"]}}}, "parameters: train.stepss: unknown field; did you mean steps?"),
    ({"parameters": {"train.steps": {"choices": ["9", "many"]}}}, "trial 2 (train.steps=many): parameters: train.steps: "),
    ({"parameters": {"train.steps": {"choices": ["9", "0"]}}}, "trial 2 (train.steps=0): train.steps: 0 is not from 1"),
    ({"parameters": {"train.steps": {"min": 9, "max": 3, "count": 2}}}, "parameters.train.steps.max: 3 is not above min 9"),
    ({"search": {"random": {"trials": 20000}}}, "search.random.trials: 20000 is not from 1 to 10000"),
    ({"job": "/nowhere/job.yaml"}, "/nowhere/job.yaml"),
    ({"serach": "grid"}, "serach: unknown field; did you mean search?"),
])
def test_a_wrong_sweep_is_refused_with_the_field(shared_service, tiny, change, sentence):
    sweep = {"name": "wrong", "job": tiny(), "parameters": {"train.steps": {"choices": ["1", "2"]}}, **change}
    refused = create(shared_service, sweep, status=2)
    assert sentence in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert sentence in create(shared_service, sweep, "--dry-run", status=2).stderr
    assert not jobs_of(shared_service, "wrong")


def test_a_repeated_request_makes_one_sweep_and_a_name_is_used_once(shared_service):
    uuid = "3b241101-e2bb-4255-8caf-4136c566a962"
    sweep = program(["true"], {"program.environment.N": {"choices": ["1"]}}, name="once")
    for _ in range(2):
        assert create(shared_service, sweep, "--request-id", uuid).stdout == "once\n"
    other = create(shared_service, sweep, "--request-id", uuid, "--set", "max_parallel=2", status=1)
    assert "made sweeps/once of another spec" in other.stderr
    assert "the sweep 'once' exists already" in create(shared_service, sweep, status=1).stderr
    assert len(jobs_of(shared_service, "once")) <= 1
    wait_state(shared_service, "once", "SUCCEEDED")


# Trains y = x^2 by gradient descent: a good rate converges, and a bad one goes on until it is stopped.
DESCENT = """import json, os, time
out, lr, x, step = open(os.environ["TRAINYARD_METRICS"], "w"), float(os.environ["LR"]), 1.0, 0
while x * x > 1e-9 or step < 40:
    x, step = x - lr * 2 * x, step + 1
    print(json.dumps({"step": step, "loss": x * x}), file=out, flush=True)
    if step >= 40:
        time.sleep(0.01)
"""


def judged(losses, eta):
    """(rank, number of results, whether it continues) of each result at a rung, by the rule of docs/sweep.md."""
    for n, loss in enumerate(losses, 1):
        rank = sum(other <= loss for other in losses[:n])
        yield rank, n, rank <= max(1, n // eta)


def test_asha_stops_exactly_the_trials_that_the_rule_stops(shared_service):
    """One trial at a time, so that the order of results is that of the trials. One that must be stopped never ends."""
    script, keep = shared_service.files / "judged.sh", shared_service.files / "keep"
    script.write_text('for step in 3 4 5 6; do echo "{\\"step\\": $step, \\"loss\\": $X}"; done > "$TRAINYARD_METRICS"\n'
                      f'grep -qx -- "$X" {keep} || exec sleep 600\n')
    sweep = program(["sh", str(script)], {"program.environment.X": {"min": -1, "max": 1}}, name="judged", max_parallel=1,
                    search={"asha": {"trials": 9, "seed": 4, "eta": 2, "min_steps": 5, "max_steps": 9}})
    drawn = [trial["values"][0] for trial in json.loads(create(shared_service, sweep, "--dry-run", "-o", "json").stdout)["trials"]]
    expected = list(judged([float(x) for x in drawn], eta=2))
    keep.write_text("".join(f"{x}\n" for x, (_, _, continues) in zip(drawn, expected) if continues))
    stopped = sum(not continues for _, _, continues in expected)
    assert 3 <= stopped <= 6, "the draw has both"
    assert f", {stopped} stopped early; best: trial " in create(shared_service, sweep, "--watch").stderr
    for trial, (rank, n, continues) in zip(trials(shared_service, "judged"), expected):
        reason = "" if continues else f"stopped at step 5: rank {rank} of {n} at this rung, the best half continues"
        assert (trial["state"], trial["reason"]) == ("SUCCEEDED" if continues else "CANCELLED", reason)
        assert int(trial["stop_step"]) == (0 if continues else 5)
        assert trial["metric"] == float(trial["values"][0])


def test_a_bad_learning_rate_is_stopped_early_although_the_controller_is_killed(service):
    script = service.files / "descent.py"
    script.write_text(DESCENT)
    sweep = program([sys.executable, str(script)], {"program.environment.LR": {"choices": ["0.4", "0.0001"]}}, name="rates",
                    max_parallel=2, search={"asha": {"trials": 8, "seed": 0, "eta": 2, "min_steps": 10, "max_steps": 1000}})
    for seed in range(100):  # with a good first trial: the first result at a rung is never stopped
        sweep["search"]["asha"]["seed"] = seed
        drawn = [t["values"][0] for t in json.loads(create(service, sweep, "--dry-run", "-o", "json").stdout)["trials"]]
        if drawn[0] == "0.4" and drawn.count("0.0001") >= 3:
            break
    create(service, sweep, "--set", "max_parallel=1")
    for _ in range(2):
        wait_count(service, "rates", "stopped", service.json("sweep", "get", "rates")["sweep"]["stopped"] + 1)
        kill(service, "controller")
    ended = wait_state(service, "rates", "SUCCEEDED")
    assert ended["best"]["values"] == ["0.4"]
    found = trials(service, "rates")
    assert [trial["values"][0] for trial in found] == drawn
    for trial in found:
        if trial["values"] == ["0.0001"]:
            assert trial["state"] == "CANCELLED" and trial["reason"].startswith("stopped at step 10: rank ")
    assert ended["stopped"] == sum(int(trial["stop_step"]) > 0 for trial in found) >= 3
    assert len(jobs_of(service, "rates")) == 8


def running_pid(service, victim):
    """None while it starts again."""
    with contextlib.suppress(AssertionError):
        return service.postmaster_pid() if victim == "postgres" else service.pid_of(f"trainyard-{victim}")


def kill(service, victim):
    pid = wait_until(lambda: running_pid(service, victim), 60, f"{victim} runs")
    start = process_start_time(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_start_time(pid) != start or start is None, 10, "the process is gone")


def test_every_trial_runs_exactly_once_although_the_service_is_killed(service):
    """Each run of a trial makes a file, so that an attempt that ran twice shows. Its name has the trial: a run that is
    killed leaves the file, whether or not it wrote into it."""
    seed = int(os.environ.get("TRAINYARD_SEED", time.time_ns() % 2**32))
    print(f"TRAINYARD_SEED={seed}", file=sys.stderr)
    draw = random.Random(seed)
    script = service.files / "trial.sh"
    (service.files / "ran").mkdir()
    script.write_text('mktemp "$OUT/$N.XXXXXXXX"\necho "{\\"step\\": 1, \\"loss\\": $N}" > "$TRAINYARD_METRICS"\n')
    count = 24
    sweep = program(["sh", str(script)], {"program.environment.N": {"choices": [str(n) for n in range(1, count + 1)]}},
                    name="killed", max_parallel=3)
    sweep["job"]["program"]["environment"] = {"OUT": str(service.files / "ran")}
    create(service, sweep)
    for victim in ("controller", "postgres", "executor", "controller", "controller"):
        created = service.json("sweep", "get", "killed")["sweep"]["created"]
        wait_count(service, "killed", "created", min(created + draw.randint(1, 4), count))
        kill(service, victim)
    ended = wait_state(service, "killed", "SUCCEEDED", 240)
    assert (ended["created"], ended["ended"], ended["succeeded"], ended["failed"]) == (count, count, count, 0)
    found = trials(service, "killed")
    assert [trial["number"] for trial in found] == list(range(1, count + 1))
    assert [trial["metric"] for trial in found] == list(range(1, count + 1))
    jobs = jobs_of(service, "killed")
    assert sorted(int(job["spec"]["labels"]["trial"]) for job in jobs) == list(range(1, count + 1)), "one job for each"
    assert sorted(trial["job"] for trial in found) == sorted(job["name"] for job in jobs)
    ran = [int(path.stem) for path in (service.files / "ran").iterdir()]
    attempts = {int(job["spec"]["labels"]["trial"]): job["attempt"] for job in jobs}
    assert all(1 <= ran.count(n) <= attempts[n] for n in attempts), "no attempt of a trial ran twice"
    assert ended["best"]["number"] == 1
