"""Programs are killed again and again while they train: one of their processes, a rank's trainyard-program, the agent,
the controller, or the database, each by kill -9 (the database also by an immediate stop), at random steps.

A program ends with the metrics of a run that nobody touched: every step once, with the same value. So each attempt has
continued from a checkpoint, and no point was lost. TRAINYARD_KILLS says how often each program is killed."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from service_fixture import PATIENCE, descendants, process_start_time, wait_until

KILLS = int(os.environ.get("TRAINYARD_KILLS", "5"))
SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))
TARGETS = ("process", "rank", "agent", "controller", "database")
PROGRAMS = pathlib.Path(__file__).parents[1] / "e2e" / "programs"
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
STEPS = 60 + 25 * KILLS


def shell(folder):
    return [PROGRAMS / "resume_lcg.sh"], {}


def c_program(folder):
    path = folder / "resume_regression"
    subprocess.run(["cc", "-O1", "-o", path, PROGRAMS / "resume_regression.c"], check=True)
    return [path], {}


def mpi(folder):
    if not shutil.which("mpirun") or \
            subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("python3-mpi4py or openmpi-bin is not installed")
    return ["mpirun", "-n", "2", "/usr/bin/python3", PROGRAMS / "resume_mpi.py"], {"launcher": "host",
                                                                                   "environment": MPI_AS_ROOT}


def python(name, *modules, **more):
    def command(folder):
        for module in modules:
            pytest.importorskip(module, reason=f"{sys.executable} has no {module}")
        return [sys.executable, PROGRAMS / f"{name}.py"], more
    return command


def torchrun(folder):
    command, _ = python("resume_ddp", "torch")(folder)
    path = pathlib.Path(sys.executable).parent / "torchrun"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return [path, command[1]], {"launcher": "host"}


# Name: the command and the rest of program, the metric, its first step.
KINDS = {
    "shell": (shell, "loss", 1),
    "c": (c_program, "loss", 1),
    "mpi4py": (mpi, "loss", 1),
    "torchrun": (torchrun, "loss", 1),
    "lightning": (python("resume_lightning", "torch", "lightning", "tensorboard", checkpoints={"format": "lightning"}),
                  "loss", 0),
    "hugging_face": (python("resume_trainer", "torch", "transformers", "accelerate", "tensorboard",
                            checkpoints={"format": "hugging_face"}), "train/loss", 1),
    "jax": (python("resume_jax", "jax"), "loss", 1),
}


def ask(service, *arguments):
    """Also while the controller or its database starts again."""
    end = time.monotonic() + 60 * PATIENCE
    while True:
        done = service.cli(*arguments, "-o", "json", status=None)
        if done.returncode == 0:
            return json.loads(done.stdout) if done.stdout.strip() else {}
        assert time.monotonic() < end, done.stderr
        time.sleep(0.1)


def newest_checkpoint(service, job):
    return max((int(row["step"]) for row in ask(service, "checkpoints", job).get("checkpoints", [])
                if row["state"] == "COMMITTED"), default=0)


def victim_of(service, job, target, draw):
    """Its pid, the signal, and what will be gone; None while the attempt has no such process yet."""
    if target == "agent":
        return service.pid_of("trainyard-executor"), signal.SIGKILL
    if target == "controller":
        return service.pid_of("trainyard-controller"), signal.SIGKILL
    if target == "database":
        return service.postmaster_pid(), draw.choice([signal.SIGKILL, signal.SIGQUIT])
    ranks = [int(p["pid"]) for p in ask(service, "get", job)["attempts"][-1].get("placements", []) if int(p.get("pid", 0))]
    below = [pid for rank in ranks for pid, line in descendants(rank).items() if not line.startswith("sleep ")]
    found = ranks if target == "rank" else below
    return (draw.choice(found), signal.SIGKILL) if found else None


def kill(service, job, target, draw):
    """What was known at the kill. None: the job had ended."""
    while True:
        now = ask(service, "get", job)
        if now["state"] in ("SUCCEEDED", "FAILED"):
            return None
        facts = {"target": target, "attempt": int(now["attempt"]), "step": int(now.get("step", 0)),
                 "newest": newest_checkpoint(service, job)}
        try:
            service.note_processes()
            pid, number = victim_of(service, job, target, draw)
            start = process_start_time(pid)
            if start is None:
                continue
            os.kill(pid, number)
        except (ProcessLookupError, AssertionError, TypeError):
            time.sleep(0.02)  # it starts again just now
            continue
        wait_until(lambda: process_start_time(pid) != start, 30, f"the end of the {target}")
        return facts


def wait_step(service, job, step):
    """False: the job has ended before."""
    def reached():
        now = ask(service, "get", job)
        ended = now["state"] in ("SUCCEEDED", "FAILED", "CANCELLED")
        return "ended" if ended else now["state"] == "RUNNING" and int(now.get("step", 0)) >= step and "reached"
    return wait_until(reached, 120, f"step {step}") == "reached"


def spec_of(kind, folder, service):
    make, metric, first = KINDS[kind]
    command, more = make(folder)
    environment = {"HOME": str(folder), **more.get("environment", {})}
    return {"name": kind, "parallel": {"data": 2}, "retry": {"max_restarts": 1000},
            "program": {"command": [*map(str, command), str(STEPS)], **more, "environment": environment}}, metric, first


def points(service, job, name):
    """{step: value}; every step is stored once."""
    (series,) = [s for s in ask(service, "metrics", job, name)["series"] if int(s.get("rank", 0)) == 0]
    steps = [int(step) for step in series["step"]]
    assert len(steps) == len(set(steps)) == int(series["points"])
    return dict(zip(steps, series["mean"]))


def kill_at_random_steps(service, job, targets, draw):
    """Uses up `targets`."""
    facts, reached = [], 0
    while targets:
        reached = max(reached, int(ask(service, "get", job).get("step", 0)))
        if not wait_step(service, job, reached + draw.randint(2, 15)):
            break
        fact = kill(service, job, targets[0], draw)
        if fact is None:
            break
        targets.pop(0)
        reached = fact["step"]
        facts.append(fact)
    return facts


def judge(service, job, expected, metric, facts, said):
    ended = service.wait_end(job, timeout_s=600)
    shown = points(service, job, metric)
    lost = sorted(set(expected) - set(shown))
    other = [step for step in sorted(expected) if step in shown and shown[step] != expected[step]]
    assert not lost and not other and len(shown) == len(expected), f"{said}: lost {lost}, with other values {other}, {facts}"
    begins = {int(a["number"]): int(a.get("from_step", 0)) for a in ended["attempts"]}
    for fact in facts:
        later = {number: step for number, step in begins.items() if number > fact["attempt"]}
        assert all(step >= fact["newest"] for step in later.values()), f"{said}: {fact}, attempts began at {begins}"
        if fact["target"] in ("process", "rank", "agent"):
            assert later, f"{said}: {fact} was followed by no attempt"
    left = {pid: start for pid, start in service.ever_seen.items() if start is not None}

    def orphans():
        below = descendants(service.up.pid)
        return [p for p, s in left.items() if p not in below and process_start_time(p) == s] + \
            [p for p, line in below.items() if "resume_" in line]
    wait_until(lambda: not orphans(), 30, f"{said}: the end of every process of the program")
    return begins


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_program_continues_and_ends_with_the_metrics_of_a_run_that_nobody_touched(service, tmp_path, kind):
    print(f"TRAINYARD_SEED={SEED} TRAINYARD_KILLS={KILLS}")
    draw = random.Random(f"{SEED}/{kind}")
    spec, metric, first = spec_of(kind, tmp_path, service)
    job = service.submit(spec)
    service.wait_end(job, timeout_s=600)
    expected = points(service, job, metric)
    assert sorted(expected) == list(range(first, first + STEPS))
    targets = [TARGETS[i % len(TARGETS)] for i in range(KILLS)]
    draw.shuffle(targets)
    started, kills, steps = time.monotonic(), 0, []
    for _ in range(5):
        job = service.submit(spec)
        facts = kill_at_random_steps(service, job, targets, draw)
        begins = judge(service, job, expected, metric, facts, f"{kind}, seed {SEED}")
        kills += len(facts)
        steps += [step for number, step in sorted(begins.items()) if number > 1]
        if not targets:
            break
    assert kills == KILLS, f"{kind}: only {kills} kills"
    print(f"{kind}: {kills} kills, {len(steps)} attempts continued from steps {' '.join(map(str, steps))}; "
          f"{time.monotonic() - started:.0f} s")
