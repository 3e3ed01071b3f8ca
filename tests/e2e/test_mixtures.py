"""Mixtures through the service: the same bits in every layout and after kills, shares that the metrics count, a validation
set for each source, sources in stores, and what a fork and a wrong spec get to read."""

import contextlib
import json
import os
import random
import signal
import struct

import pytest

from object_store import Store
from service_fixture import make_service
from test_epoch_count import comes_to

SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))
STEPS, BATCH, PHASE = 400, 8, 1203  # the phase begins in the middle of a step
SHARES = ({"code": 0.2, "text": 0.3, "web": 0.5}, {"code": 0.75, "text": 0.25, "web": 0})


@pytest.fixture(scope="module")
def four_slots():
    yield from make_service(executors=1, slots=4)


@pytest.fixture(scope="module")
def store():
    server = Store()
    yield server
    server.close()


def tokens(draw, n):
    return struct.pack(f"<{n}H", *(draw.randrange(256) for _ in range(n)))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory, text_file, store):
    """Token files with a large and a small source, a text, and validation of two of the three."""
    folder, draw = tmp_path_factory.mktemp("mixture"), random.Random(11)
    for name, n in (("web", 20000), ("web-held", 700), ("code", 900), ("code-held", 170)):
        (folder / f"{name}.bin").write_bytes(tokens(draw, n))

    def make(remote=False):
        web = (folder / "web.bin").read_bytes()
        if remote:
            store.put("/web.bin", web)
        return {"tokenizer": "byte", "phases": [{"from_sample": PHASE, "weights": SHARES[1]}], "sources": {
            "web": {"weight": SHARES[0]["web"], "tokens": {
                "train": [store.url + "/web.bin" if remote else f"file://{folder}/web.bin"],
                "validation": [f"file://{folder}/web-held.bin"]}},
            "code": {"weight": SHARES[0]["code"], "tokens": {
                "train": [f"file://{folder}/code.bin"], "validation": [f"file://{folder}/code-held.bin"]}},
            "text": {"weight": SHARES[0]["text"], "text": {"files": [f"file://{text_file}"], "validation_fraction": 0}}}}
    return make


def spec_of(tiny, mixture, remote=False, **layout):
    spec = tiny(steps=STEPS, every=20, retry__max_restarts=20, train__eval={"every": 100})
    spec.update(data={"mixture": mixture(remote)}, parallel=layout)
    return spec


def facts(service, job):
    """What must not depend on the layout: the weights, and every value of the metrics that a mixture has."""
    names = [f"{kind}/{source}" for kind in ("samples", "validation_loss") for source in SHARES[0]
             if (kind, source) != ("validation_loss", "text")]
    return service.json("get", job)["weights_sha256"], {name: service.metric(job, name) for name in names + ["validation_loss"]}


@pytest.fixture(scope="module")
def alone(four_slots, tiny, mixture):
    job = four_slots.submit(spec_of(tiny, mixture))
    four_slots.wait_end(job)
    return job, facts(four_slots, job)


def expected(step):
    """Exact shares of what the job has consumed, by phase."""
    n = step * BATCH
    return {s: SHARES[0][s] * min(n, PHASE) + SHARES[1][s] * max(0, n - PHASE) for s in SHARES[0]}


def test_the_metrics_count_exact_shares_in_each_phase(alone):
    _, (_, metrics) = alone
    for step in range(1, STEPS + 1):
        counted = {s: metrics[f"samples/{s}"][step] for s in SHARES[0]}
        assert sum(counted.values()) == step * BATCH
        for source, want in expected(step).items():
            assert abs(counted[source] - want) < (1 if step * BATCH <= PHASE else 2), (step, source)


def test_the_validation_loss_is_the_weighted_mean_of_the_sources(alone):
    _, (_, metrics) = alone
    for step in (100, 200, 300, 400):
        web, code = (metrics[f"validation_loss/{s}"][step] for s in ("web", "code"))
        weight = SHARES[0]["web"] / (SHARES[0]["web"] + SHARES[0]["code"])
        assert abs(metrics["validation_loss"][step] - (weight * web + (1 - weight) * code)) < 1e-9


@pytest.mark.parametrize("layout, remote", [({"data": 2}, True), ({"data": 4}, False), ({"data": 2, "pipeline": 2}, False)],
                         ids=str)
def test_layouts_kills_and_stores_change_no_bit(four_slots, tiny, mixture, alone, store, layout, remote):
    draw = random.Random(f"{SEED}/{layout}")
    print(f"TRAINYARD_SEED={SEED}: {layout}")
    spec = spec_of(tiny, mixture, remote, **layout)
    if remote:
        spec["stores"] = {"https": {"endpoint": store.url}}
    for _ in range(5):
        job = four_slots.submit(spec)
        with four_slots.watch(job) as watch, contextlib.suppress(ProcessLookupError):
            if comes_to(watch, draw.randrange(20, STEPS // 2)):
                os.kill(draw.choice(sorted(four_slots.worker_pids(job).values()))[0], signal.SIGKILL)
        if four_slots.wait_end(job)["attempt"] > 1:
            break
    else:
        raise AssertionError("five jobs were done before a rank of theirs was killed")
    assert facts(four_slots, job) == alone[1]


def refusal(service, spec):
    return service.cli("submit", "-", input=json.dumps(spec), status=2).stderr


def test_a_fork_continues_the_mixture_with_another_batch_and_keeps_its_weights(four_slots, alone):
    job, (_, metrics) = alone
    step = STEPS  # the final checkpoint
    fork = four_slots.cli("submit", "--fork", job, "--set", f"train.steps={step + 10}", "--set", "train.global_batch=16"
                          ).stdout.strip()
    four_slots.wait_end(fork)
    counted = {s: four_slots.metric(fork, f"samples/{s}")[step + 10] for s in SHARES[0]}
    assert sum(counted.values()) == step * BATCH + 160
    assert counted["web"] == metrics["samples/web"][step], "its weight is 0 in this phase"
    refused = four_slots.cli("submit", "--fork", job, "--set", f"train.steps={step + 10}", "--set",
                             "data.mixture.sources.web.weight=0.6", status=2).stderr
    assert f"data.mixture.sources.web.weight: 0.6, but job {job} has 0.5: a fork keeps the data" in refused


def test_a_host_names_the_field_of_a_source_and_plans_the_memory_of_all(four_slots, tiny, mixture, text_file, tmp_path):
    spec = spec_of(tiny, mixture)
    spec["data"]["mixture"]["sources"]["code"]["tokens"]["train"] = ["file:///usr/nowhere.bin"]
    assert "data.mixture.sources.code.tokens.train[0]: " in refusal(four_slots, spec)
    spec = spec_of(tiny, mixture)
    spec["data"]["mixture"]["sources"]["code"]["weight"] = 0.000001
    (tmp_path / "wide.bin").write_bytes(struct.pack("<900H", *range(60000, 60900)))
    spec["data"]["mixture"]["sources"]["code"]["tokens"]["train"] = [f"file://{tmp_path}/wide.bin"]
    spec["data"]["mixture"]["sources"]["web"]["weight"] = 0.699999
    assert "data.mixture.sources.code.tokens.train[0]: " in refusal(four_slots, spec), "a source of few samples is read, too"
    spec = spec_of(tiny, mixture)
    del spec["data"]["mixture"]["tokenizer"]
    assert "data.mixture.tokenizer: must be given, since the source text is text" in refusal(four_slots, spec)
    plan = json.loads(four_slots.cli("plan", "-", "-o", "json", input=json.dumps(spec_of(tiny, mixture))).stdout)
    host = {family["name"]: int(family["bytes"]) for family in plan["memory"][0]["host"]}
    assert host["data"] > text_file.stat().st_size
