"""One epoch visits every window exactly once, counted in what training has changed.

Every token of the data occurs once, and the embedding is not tied to the head. With SGD without momentum and decay, the
embedding's row of a token has other bits if and only if a step that counts has read that token. An epoch of N samples
that has changed the rows of all N windows has read each window once. A step whose results were lost with a killed rank
changes nothing, so the count is right whatever was read ahead or read twice."""

import contextlib
import os
import pathlib
import random
import signal
import struct
import sys
import threading

import pytest

from service_fixture import ROOT, make_service

sys.path.append(str(ROOT / "tests/engine"))
from weights_sha256 import pieces_of  # noqa: E402

SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))
CONTEXT, WINDOWS, WIDTH, VALIDATION_WINDOWS = 16, 640, 16, 21
TOKENS = WINDOWS * CONTEXT + 1
FIRST_CHARACTER = 0x4E00  # the characters from here are all assigned, and sorted as the tokens are
HALF, WHOLE = WINDOWS // 2, WINDOWS


@pytest.fixture(scope="module")
def four_slots():
    yield from make_service(executors=1, slots=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """{kind: `data` of a spec}: every token once, in order; validation has a part of the same tokens."""
    folder = tmp_path_factory.mktemp("epoch")
    validation = range(VALIDATION_WINDOWS * CONTEXT + 1)
    for name, tokens in (("train.bin", range(TOKENS)), ("validation.bin", validation)):
        (folder / name).write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    for name, tokens in (("train.txt", range(TOKENS)), ("validation.txt", validation)):
        (folder / name).write_text("".join(chr(FIRST_CHARACTER + t) for t in tokens))
    return {"tokens": {"tokens": {"train": [f"file://{folder}/train.bin"],
                                  "validation": [f"file://{folder}/validation.bin"]}},
            "text": {"text": {"files": [f"file://{folder}/train.txt"],
                              "validation": [f"file://{folder}/validation.txt"]}}}


def spec_of(data, samples, batch, origin=None, layout=None):
    """Checkpoints are close, so that a rank that is killed anywhere repeats a few steps only."""
    return {
        "name": "epoch", "data": data,
        "model": {"llama": {"layers": 2, "heads": 2, "width": WIDTH, "hidden": 32, "context": CONTEXT,
                            "vocabulary": TOKENS}},
        "train": {"steps": samples // batch, "global_batch": batch, "micro_batch": 1, "lanes": 4, "seed": 5,
                  "optimizer": {"sgd": {"lr": 1, "momentum": 0, "weight_decay": 0}},
                  **({"init_from": origin} if origin else {})},
        "parallel": layout or {}, "checkpoint": {"every": 8, "keep_last": 2}, "retry": {"max_restarts": 20},
    }


def checkpoint(service, job):
    """The newest one."""
    return max(service.json("checkpoints", job)["checkpoints"], key=lambda c: int(c["step"]))


def rows(service, job):
    """The rows of the embedding in the job's final checkpoint."""
    pieces = [(first, piece) for file in sorted(pathlib.Path(checkpoint(service, job)["directory"]).glob("*.safetensors"))
              for name, _, _, first, piece in pieces_of(file) if name == "model.embed_tokens.weight"]
    table = b"".join(piece for _, piece in sorted(pieces))
    assert len(table) == TOKENS * WIDTH * 4
    return [table[t * WIDTH * 4:(t + 1) * WIDTH * 4] for t in range(TOKENS)]


def changed(before, after):
    return {token for token in range(TOKENS) if before[token] != after[token]}


def windows(tokens):
    """The numbers of the first epoch's windows that these tokens are; a window that was read in part is a fault."""
    numbers = {token // CONTEXT for token in tokens}
    assert len(tokens) == CONTEXT * len(numbers)
    return numbers


def runs(watch, attempt):
    """Whether this attempt comes to run: the job may be done with the one before."""
    def is_known(update):
        event = update.get("event", {})
        return event.get("state") == "SUCCEEDED" or event.get("state") == "RUNNING" and event["attempt"] == attempt
    return watch.until(is_known, 60, f"attempt {attempt} running")["event"]["state"] == "RUNNING"


def comes_to(watch, step):
    """Whether the job is seen at this step before it is done."""
    def is_known(update):
        return int(update.get("progress", {}).get("step", 0)) >= step or is_done(update)
    return not is_done(watch.until(is_known, 60, f"step {step}"))


def is_done(update):
    return update.get("event", {}).get("state") == "SUCCEEDED"


@contextlib.contextmanager
def trains_slowly(pid):
    """This rank, and with it the others, trains for a tenth of the time: a watch learns of its steps before all are done."""
    over = threading.Event()

    def slow():
        with contextlib.suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                over.wait(0.018)
                os.kill(pid, signal.SIGCONT)
                over.wait(0.002)
    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_with_kills(service, submit, draw, kills, first, steps):
    """Submits a job, and kills drawn ranks of it with kill -9 at drawn steps behind `first`. A job that is done before
    its last kill is followed by another."""
    for _ in range(20):
        job = submit()
        with service.watch(job) as watch, contextlib.suppress(ProcessLookupError):
            for attempt, at in enumerate(sorted(draw.sample(range(first + 1, first + steps // 2), kills)), 1):
                if not runs(watch, attempt):
                    break
                pids = [pid for pid, _ in sorted(service.worker_pids(job).values())]
                with trains_slowly(pids[0]):
                    if not comes_to(watch, at):
                        break
                    os.kill(draw.choice(pids), signal.SIGKILL)
        if service.wait_end(job)["attempt"] == kills + 1:
            return job
    raise AssertionError(f"twenty jobs were done before {kills} of their ranks were killed")


@pytest.fixture(scope="module")
def initial(four_slots, data):
    """{kind: the checkpoint that the jobs take their first weights from}, so that these are known."""
    made = {}
    for kind in data:
        job = four_slots.submit(spec_of(data[kind], 4, 4))
        four_slots.wait_end(job)
        made[kind] = job, checkpoint(four_slots, job)["name"]
    return made


@pytest.mark.parametrize("layout, kind", [({}, "tokens"), ({"data": 2}, "text"),
                                          ({"data": 2, "pipeline": 2}, "tokens")], ids=str)
def test_an_epoch_with_kills_and_a_fork_reads_every_window_once(four_slots, data, initial, layout, kind):
    """Half of an epoch in batches of 4, the rest in batches of 8 by a fork, and all of the next epoch by another fork."""
    draw = random.Random(f"{SEED}/{layout}/{kind}")
    print(f"TRAINYARD_SEED={SEED}: {kind}, {layout}")
    origin, name = initial[kind]
    begin = rows(four_slots, origin)

    spec = spec_of(data[kind], HALF, 4, name, layout)
    half = run_with_kills(four_slots, lambda: four_slots.submit(spec), draw, 2, 0, HALF // 4)
    middle = rows(four_slots, half)

    def fork(of, steps):
        return four_slots.cli("submit", "--fork", of, "--set", f"train.steps={steps}", "--set", "train.global_batch=8"
                              ).stdout.strip()

    steps = HALF // 4 + HALF // 8
    whole = run_with_kills(four_slots, lambda: fork(half, steps), draw, 1, HALF // 4, HALF // 8)
    end = rows(four_slots, whole)

    first, second = windows(changed(begin, middle)), windows(changed(middle, end))
    assert len(first) == HALF, "each sample of the first half was another window"
    assert first.isdisjoint(second) and first | second == set(range(WINDOWS)), "and the fork read all others"

    again = fork(whole, steps + WHOLE // 8)
    four_slots.wait_end(again)
    read = changed(end, rows(four_slots, again))
    offset = min(read)
    assert offset < CONTEXT, "the next epoch cuts the text at another place"
    assert read == set(range(offset, TOKENS - 1)), "a window that was left out would leave a gap"


@pytest.mark.parametrize("kind", ["tokens", "text"])
def test_the_validation_loss_depends_on_neither_seed_nor_batch(four_slots, data, initial, kind):
    """The weights are the same bits: a rate as small changes none. The set is no multiple of a batch."""
    origin, name = initial[kind]
    digest = four_slots.json("get", origin)["weights_sha256"]
    losses = set()
    for seed, batch, layout in ((1, 4, {}), (2, 8, {"data": 2}), (1, 8, {"data": 4}), (2, 4, {"data": 2, "pipeline": 2})):
        spec = spec_of(data[kind], batch, batch, name, layout)
        spec["train"].update(seed=seed, optimizer={"sgd": {"lr": 1e-30, "momentum": 0, "weight_decay": 0}},
                             micro_batch=batch // 4)
        job = four_slots.submit(spec)
        assert four_slots.wait_end(job)["weights_sha256"] == digest
        losses.add(four_slots.metric(job, "validation_loss")[1])
    assert len(losses) == 1, losses
