"""Forks with other data than their origin: refused unless the spec says what happens to the number of samples, which the
checkpoints then record; also after a kill. The fork's own checkpoints have its own data again."""

import contextlib
import json
import os
import pathlib
import random
import signal
import struct

import pytest

from test_epoch_count import comes_to

STEPS, BATCH, MORE = 20, 8, 300


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two token files: of the same tokens in another order."""
    folder, draw = tmp_path_factory.mktemp("changed"), random.Random(3)
    tokens = [draw.randrange(256) for _ in range(3000)]
    for name in ("old", "new"):
        (folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        draw.shuffle(tokens)
    return {name: f"file://{folder}/{name}.bin" for name in ("old", "new")}


@pytest.fixture(scope="module")
def origin(shared_service, tiny, files):
    spec = tiny(steps=STEPS, every=10)
    spec["data"] = {"tokens": {"train": [files["old"]], "tokenizer": "byte"}}
    job = shared_service.submit(spec)
    shared_service.wait_end(job)
    return job


def fork(service, origin, files, changed, *more, steps=STEPS + MORE, **options):
    sets = [f"train.steps={steps}", f"data.tokens.train=['{files['new']}']", "checkpoint.every=20", *more]
    sets += [f"train.changed_data={changed}"] if changed else []
    return service.cli("submit", "--fork", origin, *(word for s in sets for word in ("--set", s)), **options)


def samples(service, job):
    """What the newest checkpoint says that the job has consumed of its data."""
    newest = max(service.json("checkpoints", job)["checkpoints"], key=lambda c: int(c["step"]))
    manifest = json.loads((pathlib.Path(newest["directory"]) / "manifest.json").read_text())
    return int(newest["step"]), manifest["samples"]


def test_changed_data_are_refused_unless_the_spec_says_so(shared_service, origin, files):
    refused = fork(shared_service, origin, files, None, status=2).stderr
    assert f"data.tokens.train[0]: '{files['new']}', but job {origin} has '{files['old']}': a fork keeps the data" in refused
    refused = fork(shared_service, origin, files, "perhaps", status=2).stderr
    assert "train.changed_data: 'perhaps' is not one of: refuse, continue, restart" in refused


@pytest.mark.parametrize("changed, before", [("continue", STEPS * BATCH), ("restart", 0)])
def test_the_number_of_samples_goes_on_or_starts_again_also_after_a_kill(shared_service, origin, files, changed, before):
    whole = fork(shared_service, origin, files, changed).stdout.strip()
    digest = shared_service.wait_end(whole)["weights_sha256"]
    assert samples(shared_service, whole) == (STEPS + MORE, before + MORE * BATCH)
    told = [e["message"] for e in shared_service.json("events", whole)["events"] if e["kind"] == "data_changed"]
    assert len(told) == 1 and ("from 0" if changed == "restart" else "on") in told[0]
    for _ in range(5):
        job = fork(shared_service, origin, files, changed, "parallel.data=2").stdout.strip()
        with shared_service.watch(job) as watch, contextlib.suppress(ProcessLookupError):
            if comes_to(watch, STEPS + MORE // 3):
                os.kill(shared_service.worker_pids(job)[1][0], signal.SIGKILL)
        ended = shared_service.wait_end(job)
        if ended["attempt"] > 1:
            break
    else:
        raise AssertionError("five jobs were done before a rank of theirs was killed")
    assert int(ended["attempts"][1]["from_step"]) > STEPS, "from a checkpoint of its own"
    assert ended["weights_sha256"] == digest
    assert samples(shared_service, job) == (STEPS + MORE, before + MORE * BATCH)
    again = shared_service.cli("submit", "--fork", whole, "--set", f"train.steps={STEPS + MORE + 5}").stdout.strip()
    spec = shared_service.wait_end(again)["spec"]
    assert spec["train"]["changed_data"] == "refuse", "a fork has to say it again"
    assert samples(shared_service, again)[1] == before + (MORE + 5) * BATCH


def test_data_that_did_not_change_go_on_in_any_case(shared_service, origin, files):
    job = fork(shared_service, origin, {"new": files["old"]}, "restart", steps=STEPS + 5).stdout.strip()
    shared_service.wait_end(job)
    assert samples(shared_service, job) == (STEPS + 5, (STEPS + 5) * BATCH)
