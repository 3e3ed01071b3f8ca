"""Trainings of the models that `speed` compares. Each is run once at a commit and kept in bench/gpu/steps.json, so that several parts
can look at it, and a run that goes on need not measure again."""

import json
import re
import shutil
import time

import host
import kept
import memory
import models

OWN_KERNELS = re.compile(r"^((?:attention|convolution)\S*) .* -$", re.MULTILINE)  # kernels/cuda/lib/tuning_cache.h: ENGINE_NONE


def state():
    return host.REPORTS / "steps.json"


def keep(key, found):
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    host.replace(state(), json.dumps({**kept.load(state()), key: {**found, "commit": host.commit(), "at": time.time()}}))


def record_of(checkpoint):
    """What rank 0 of a checkpoint computed with: a line for each choice. A CPU chooses nothing."""
    record = json.loads((checkpoint / "rank-0.json").read_text()).get("record", "")
    if not record and not host.DRY:
        raise host.Failed(f"{checkpoint} has no record of what was chosen")
    return record


def check_engines(name, record):
    """Fails if cuDNN did not compute what it is there for: the kernels of this project are much slower at it."""
    if host.DRY:
        return
    what = "convolution" if models.family(models.MODELS[name]) == "resnet" else "attention"
    if not re.search(rf"^{what} ", record, re.MULTILINE):
        raise host.Failed(f"{name}: the record names no engine of cuDNN's for {what}: cuDNN was not used\n{record}")
    missing = OWN_KERNELS.findall(record)
    if missing:
        raise host.Failed(f"{name}: cuDNN had no engine for {', '.join(missing)}: the kernels of this project computed\n{record}")


def train(name, numerics):
    """Each step's loss, seconds, and seconds that it waited for data; the arena's bytes, and those that the driver counts. Fails if
    the step could not be captured, or if cuDNN did not compute."""
    job, folder = models.step_spec(name, numerics), host.WORK / "measured"
    shutil.rmtree(folder, ignore_errors=True)
    job["checkpoint"] = {"every": models.STEPS}
    path = models.write(f"step-{name}-{numerics}", job)
    with memory.Peak() as peak:
        rows = [row for row in models.train(path, "--checkpoints", folder) if "loss" in row]
    record = record_of(folder / f"step-{models.STEPS}")
    shutil.rmtree(folder)
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    (host.REPORTS / f"choices-{name.replace(' ', '-')}-{numerics}.txt").write_text(record)
    check_engines(name, record)
    counted = rows[models.UNCOUNTED:-1]  # the last one writes the checkpoint
    return {"losses": [row["loss"] for row in rows], "norms": [row["grad_norm"] for row in rows],
            "times": [row["step_seconds"] for row in counted], "data": [row["data_wait_seconds"] for row in counted],
            "own": [rows[0]["arena_bytes"]], "driver": peak.bytes}


def ours(name, numerics, again=False):
    """As of this commit, measured now if it was not; again: measured now in any case, and not kept."""
    key = f"{name} {numerics}"
    row = kept.load(state()).get(key)
    if row and row["commit"] == host.commit() and not again:
        return row
    found = train(name, numerics)
    if not again:
        keep(key, found)
    return found
