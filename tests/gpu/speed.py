"""How fast it is, beside PyTorch on the same device."""

import json
import math
import re
import statistics

import host
import measured
import memory
import models

GOALS = {"fast": 1.15, "reproducible": 1.0}  # times PyTorch's step
SECOND_ROUND_S = 60  # that it may take
MODEL_S = 150  # that a model may: PyTorch compiles for a minute
FLOORS = """A call's time is that of the fastest of three runs of twenty calls, by the device's clock, on normally distributed numbers.
Floor: floating-point operations at the rate of the large product, or bytes at the copy's, both measured in this run.
Products: 2 x rows x in x out. Causal attention: 2 x rows x time x width, backward 2.5 times that: what it computes.
Bytes: norms with their residual read two arrays and write two of 2 x rows x width, either way; the loss reads and writes
2 x rows x vocabulary; AdamW reads 16 and writes 14 a parameter: master, moments, gradient and the weight in bf16.
"""


def shares(out):
    """`floor NAME SHARE` of what gpu_speed prints."""
    return [line.split()[1:] for line in out.splitlines() if line.startswith("floor ")]


def milliseconds(out):
    """By kernel, of gpu_speed's table."""
    return {name: float(ms) for name, ms in re.findall(r"^(\S.*?) +([\d.]+) ms ", out, re.MULTILINE)}


def beside(what, own):
    """A row a kernel that PyTorch has too; that it cannot run is told in their place."""
    try:
        peer = json.loads(host.peer(what)())["rows"]
    except (host.Skip, host.Failed) as x:
        return [f"| {what} | | | no figure of PyTorch's: {str(x).splitlines()[0]} |"]
    return [f"| {name} | {own[name]:.3f} | {seconds * 1e3:.3f} | {seconds * 1e3 / own[name]:.2f} |"
            for name, seconds in peer.items() if name in own]


def our_kernels():
    out = host.run([host.build() / "tests/gpu_speed", host.DEVICE, *(["64"] if host.DRY else [])], 200)
    said = ", ".join(f"{name} {share}" for name, share in shares(out))
    own = milliseconds(out)
    table = "\n".join(["| forward alone but where it says so | ours, ms | PyTorch, ms | times PyTorch |", "|---|---|---|---|",
                       *beside("products", own), *beside("attention", own)])
    return f"of what the device's ceilings allow: {said}\n{table}\n\n{FLOORS}\n```\n{out.split('trainyard products')[0].strip()}\n```"


def pytorch(what):
    def part():
        return json.loads(host.peer(what)())["said"]
    return part


def theirs(name):
    with memory.Peak() as peak:
        found = json.loads(host.peer("step", name)())
    return {"times": found["times"], "own": [found["allocated"], found["reserved"]], "driver": peak.bytes, "said": found["said"]}


def median(found):
    return statistics.median(found["times"])


def row(name, who, found, peer):
    gib = [f"{bytes_ / 2**30:.1f}" for bytes_ in (*found["own"], found["driver"])]
    cells = [who, f"{min(found['times']) * 1e3:.1f}", f"{median(found) * 1e3:.1f}",
             f"{models.samples(models.MODELS[name]) / median(found):,.0f}", " / ".join(gib[:-1]), gib[-1]]
    ratios = [f"{min(peer['times']) / min(found['times']):.2f}", f"{median(peer) / median(found):.2f}"] if peer else ["", ""]
    return f"| {' | '.join(cells + ratios)} |"


HEAD = ["| | best, ms a step | median, ms | tokens or images/s | arena, GiB (PyTorch: allocated / reserved at most) | by the driver, GiB "
        "| times PyTorch, best | median |", "|---|---|---|---|---|---|---|---|"]


def verdict(ratios, room):
    """What is behind its goal."""
    behind = [f"{n} {ratios[n]:.2f} is below {goal}" for n, goal in GOALS.items() if ratios[n] < goal]
    return ", ".join(behind + ([f"{room:.2f} of its memory is above 1"] if room > 1 else []))


def room_beside(found, peer):
    """Of the memory that the driver counts for PyTorch; NaN where it cannot be asked."""
    return found["driver"] / peer["driver"] if peer["driver"] else math.nan


def second_round(name, found):
    """Ours once more after PyTorch's: what changed on the device meanwhile shows."""
    if host.left() < SECOND_ROUND_S:
        return []
    again = measured.ours(name, "fast", again=True)
    said = f"fast, before and after PyTorch: medians of {median(found) * 1e3:.1f} and {median(again) * 1e3:.1f} ms"
    found["times"] = found["times"] + again["times"]
    return [said]


def steps(name):
    """Ours in both numerics, then PyTorch's. That PyTorch cannot run it, or that we are slower, is a result as well."""
    def part():
        found, peer, below = {numerics: measured.ours(name, numerics) for numerics in GOALS}, None, []
        try:
            peer = theirs(name)
            below = [peer["said"], *second_round(name, found["fast"])]
        except (host.Skip, host.Failed) as x:
            below = [f"no figure of PyTorch's: {x}"]
        rows = [row(name, numerics, found[numerics], peer) for numerics in GOALS]
        waited = ", ".join(f"{statistics.median(each['data']) * 1e3:.2f} ms {numerics}" for numerics, each in found.items())
        below = [*below, f"of a step ours waited for data: {waited}"]
        table = "\n".join([*HEAD, *rows, *([row(name, "PyTorch", peer, None)] if peer else []), "", *below])
        if not peer:
            raise host.Missed(f"{median(found['fast']) * 1e3:.1f} ms fast; {below[0].splitlines()[0]}\n{table}")
        ratios = {numerics: median(peer) / median(found[numerics]) for numerics in GOALS}
        cost = median(found["reproducible"]) / median(found["fast"]) - 1
        room = room_beside(found["fast"], peer)
        said = (f"{ratios['fast']:.2f} times PyTorch fast, {ratios['reproducible']:.2f} reproducible, which costs {cost:.1%}; "
                f"{room:.2f} of its memory")
        behind = verdict(ratios, room)
        if behind and not host.DRY:
            raise host.Missed(f"{said}: {behind}\n{table}")
        return f"{said}\n{table}"
    return host.takes(MODEL_S, 2 * MODEL_S, part)


PARTS = [
    ("kernels at GPT-2's shapes as shares of their floors, and beside PyTorch's", host.takes(90, 240, our_kernels)),
    *((f"a step of {name}", steps(name)) for name in ("GPT-2 124M", "GPT-2 1558M", "Llama 1B", "ResNet-50", "GPT-2 350M")),
    ("attention's backward pass, again and again by PyTorch", host.takes(30, 120, pytorch("repeat"))),
]
