"""GPT-2 124M at its full size: that it runs, how fast, and that its numbers are right. Small models say nothing of an index beyond
2^31, of attention over 1,024 tokens, or of a captured step."""

import gzip
import json
import math
import shutil
import statistics

import host
import measured
import models

NAME = "GPT-2 124M"
MICRO_STEPS = min(6, models.STEPS)  # that are compared where a comparison trains anew
LOSS_TOLERANCE = 1e-3  # relative: sums in another order
PEER_TOLERANCE = {"fp32": (1e-4, 1e-3), "bf16": (2e-3, 2e-2)}  # of the loss, of the gradient's norm; relative
PROFILED = (3, models.STEPS - 1)  # steps that are walked call by call, and timed by kernel
TRACE_BYTES_MAX = 12 << 20


def first_loss():
    """Of GPT-2's initial weights: the logits' variance, width x 0.02^2, raises the loss of equal guesses by half of itself."""
    sizes = models.MODELS[NAME]["gpt"]
    return math.log(sizes["vocabulary"]) + sizes["width"] * 0.02 ** 2 / 2


def apart(a, b):
    """The largest relative difference of two series."""
    if len(a) != len(b) or not all(map(math.isfinite, [*a, *b])):
        raise host.Failed(f"{a}, then {b}")
    return max(abs(x - y) / abs(x) for x, y in zip(a, b))


def agree(what, a, b, tolerance):
    worst = apart(a, b)
    if worst > tolerance:
        raise host.Failed(f"{what} are {worst:.1e} apart, and may be {tolerance:.0e}: {a}, then {b}")
    return worst


def step(numerics):
    def part():
        found = measured.ours(NAME, numerics)
        wanted = first_loss()
        if not abs(found["losses"][0] - wanted) < 0.1 or not all(map(math.isfinite, found["losses"])):
            raise host.Failed(f"the first loss should be near {wanted:.2f}: {found['losses']}")
        ms = statistics.median(found["times"]) * 1e3
        rate = models.samples(models.MODELS[NAME]) / ms * 1e3
        return (f"{ms:.1f} ms a step, {rate:,.0f} tokens/s; first loss {found['losses'][0]:.4f}, expected {wanted:.2f}; "
                f"{found['driver'] / 2 ** 30:.1f} GiB by the driver")
    return part


def trained(name, change, *options, **more):
    """Losses and gradient norms of a few steps of a changed job."""
    job = models.step_spec(NAME, "reproducible")
    job["train"]["steps"] = MICRO_STEPS
    change(job)
    rows = [row for row in models.train(models.write(name, job), *options, **more) if "loss" in row]
    return [row["loss"] for row in rows], [row["grad_norm"] for row in rows]


def in_micro_batches():
    def change(job):
        job["train"]["micro_batch"] = max(1, job["train"]["global_batch"] // 8)
    whole = measured.ours(NAME, "reproducible")
    losses, norms = trained("spec-micro", change)
    return (f"{MICRO_STEPS} steps in 8 micro-batches: losses at most "
            f"{agree('losses', whole['losses'][:MICRO_STEPS], losses, LOSS_TOLERANCE):.1e} apart, gradient norms "
            f"{agree('gradient norms', whole['norms'][:MICRO_STEPS], norms, 10 * LOSS_TOLERANCE):.1e}")


def profile_of(numerics):
    """A profiled step is walked call by call: the others are captured."""
    folder = host.WORK / f"profile-{numerics}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = models.write(f"profile-{numerics}", models.step_spec(NAME, numerics)).resolve()
    rows = models.train(path, "--profile", f"{PROFILED[0]}..{PROFILED[1]}", cwd=folder)
    table, trace = folder / "profile/rank-0.txt", folder / "profile/rank-0.json"
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(table, host.REPORTS / f"profile-{numerics}.txt")
    packed = gzip.compress(trace.read_bytes())
    if len(packed) < TRACE_BYTES_MAX:
        (host.REPORTS / f"trace-{numerics}.json.gz").write_bytes(packed)
    return [row["loss"] for row in rows if "loss" in row], table.read_text()


def profiles():
    tables = {numerics: profile_of(numerics)[1] for numerics in ("fast", "reproducible")}
    shown = "\n\n".join(f"{numerics}:\n```\n{chr(10).join(table.splitlines()[:40])}\n```" for numerics, table in tables.items())
    return f"steps {PROFILED[0]} to {PROFILED[1]}, in bench/gpu/profile-*.txt and trace-*.json.gz\n{shown}"


def captured_as_walked():
    whole = measured.ours(NAME, "reproducible")["losses"]
    walked, _ = profile_of("reproducible")
    if whole != walked:
        raise host.Failed(f"losses captured {whole}, walked {walked}")
    return f"{len(walked)} steps, captured and call by call: the same losses to the bit"


def attention_by_both():
    def change(job):
        job["train"] |= {"global_batch": 8, "micro_batch": 8}
    cudnn, own = trained("spec-attention", change), trained("spec-attention", change, without="cudnn")
    return (f"{MICRO_STEPS} steps of 8 x 1,024 tokens: losses at most {agree('losses', cudnn[0], own[0], LOSS_TOLERANCE):.1e} "
            f"apart, gradient norms {agree('gradient norms', cudnn[1], own[1], 10 * LOSS_TOLERANCE):.1e}")


def as_pytorch(precision):
    """Weights that PyTorch made, and one window of tokens, so that every sample of both is the same."""
    def part():
        found = json.loads(host.peer("first", NAME, precision, host.WORK / "peer-weights")())

        def change(job):
            job["train"] |= {"steps": 1, "global_batch": found["batch"], "micro_batch": found["batch"], "precision": precision,
                             "init_from": f"file://{host.WORK}/peer-weights"}
            job["data"] = {"tokens": {"train": [f"file://{host.WORK}/peer-weights/tokens.bin"]}}
        [loss], [norm] = trained(f"spec-peer-{precision}", change)
        most_loss, most_norm = PEER_TOLERANCE[precision]
        return (f"the same weights and tokens: loss {loss:.5f}, {agree('losses', [found['loss']], [loss], most_loss):.1e} apart; "
                f"gradient norm {norm:.4f}, {agree('gradient norms', [found['grad_norm']], [norm], most_norm):.1e} apart")
    return part


PARTS = [
    *((f"{NAME}, {numerics}", host.takes(60, 150, step(numerics))) for numerics in ("fast", "reproducible")),
    (f"{NAME} in micro-batches", host.takes(30, 90, in_micro_batches)),
    (f"profiles of {NAME}", host.takes(60, 120, profiles)),
    (f"{NAME}, captured as call by call", host.takes(40, 120, captured_as_walked)),
    (f"{NAME}, attention by cuDNN as by our kernels", host.takes(40, 120, attention_by_both)),
    *((f"{NAME} in {precision} as PyTorch, from the same weights", host.takes(60, 150, as_pytorch(precision)))
      for precision in ("bf16", "fp32")),
]
