"""How fast it is, beside PyTorch on the same device."""

import json

import host
import models

GOALS = {"fast": 1.15, "reproducible": 1.0}  # times PyTorch's step


def shares(out):
    """`floor NAME SHARE` of what gpu_speed prints."""
    return [line.split()[1:] for line in out.splitlines() if line.startswith("floor ")]


def our_kernels():
    out = host.run([host.build() / "tests/gpu_speed", host.DEVICE, *(["64"] if host.DRY else [])])
    said = ", ".join(f"{name} {share}" for name, share in shares(out))
    return f"of what the device's ceilings allow: {said}\n```\n{out.split('trainyard products')[0].strip()}\n```"


def pytorch(what):
    def part():
        return json.loads(host.peer(what)())["said"]
    return part


def planned_gib(path):
    plan = json.loads(host.run([host.build() / "bin/trainyard-train", "plan", path, "--device", "h200", "--json"]))
    return int(plan["memory"][0]["bytes"]) / 2**30


def ours(name, numerics):
    """A step's seconds, without a wait between steps; and the arena's GiB."""
    path = models.write(f"step-{name}-{numerics}", models.step_spec(name, numerics))
    took = [row["step_seconds"] for row in models.train(path) if "step_seconds" in row]
    counted = took[models.UNCOUNTED:]
    return {"seconds": sum(counted) / len(counted), "GiB": planned_gib(path)}


def theirs(name):
    found = json.loads(host.peer("step", name)())
    return {"seconds": found["seconds"], "GiB": found["bytes"] / 2**30, "said": found["said"]}


def row(name, who, found, peer):
    rate = models.samples(models.MODELS[name]) / found["seconds"]
    ratio = f"{peer['seconds'] / found['seconds']:.2f}" if peer else ""
    return f"| {who} | {found['seconds'] * 1e3:.1f} | {rate:,.0f} | {found['GiB']:.1f} | {ratio} |"


def verdict(ratios):
    """What is behind its goal."""
    return ", ".join(f"{n} {ratios[n]:.2f} is below {goal}" for n, goal in GOALS.items() if ratios[n] < goal)


def steps(name):
    """Ours in both numerics, then PyTorch's. That PyTorch cannot run it, or that we are slower, is a result as well."""
    def part():
        found, peer, why = {numerics: ours(name, numerics) for numerics in GOALS}, None, ""
        try:
            peer = theirs(name)
        except (host.Skip, host.Failed) as x:
            why = f"no figure of PyTorch's: {x}"
        rows = [row(name, numerics, found[numerics], peer) for numerics in GOALS] + (
            [row(name, "PyTorch", peer, None), "", peer["said"]] if peer else ["", why])
        cost = found["reproducible"]["seconds"] / found["fast"]["seconds"] - 1
        table = "\n".join(["| | ms a step | tokens or images/s | GiB | times PyTorch |", "|---|---|---|---|---|", *rows])
        if not peer:
            raise host.Missed(f"{found['fast']['seconds'] * 1e3:.1f} ms fast; {why.splitlines()[0]}\n{table}")
        ratios = {numerics: peer["seconds"] / found[numerics]["seconds"] for numerics in GOALS}
        said = (f"{ratios['fast']:.2f} times PyTorch fast, {ratios['reproducible']:.2f} reproducible, which costs {cost:.1%}")
        behind = verdict(ratios)
        if behind and not host.DRY:
            raise host.Missed(f"{said}: {behind}\n{table}")
        return f"{said}\n{table}"
    return part


PARTS = [
    ("our kernels at GPT-2's shapes, as shares of their floors", our_kernels),
    *((f"a step of {name}", steps(name)) for name in ("GPT-2 124M", "GPT-2 1558M", "Llama 1B", "ResNet-50", "GPT-2 350M")),
    ("products of 124M, 350M and 1558M, by PyTorch", pytorch("products")),
    ("attention, by PyTorch", pytorch("attention")),
    ("attention's backward pass, again and again by PyTorch", pytorch("repeat")),
]
