"""That it learns: nanoGPT's recipe for one GPU, beside PyTorch's."""

import json
import time

import host
import models

GOAL = 1.48  # validation loss; nanoGPT's page has 1.4697


def ours():
    path = models.write("recipe", models.recipe_spec(host.text()))
    host.build()  # not what is timed
    begun = time.monotonic()
    rows = models.train(path)
    took = time.monotonic() - begun
    return {"loss": min(r["validation_loss"] for r in rows if "validation_loss" in r), "seconds": took,
            "step": sum(r["step_seconds"] for r in rows[models.UNCOUNTED:]) / (len(rows) - models.UNCOUNTED)}


def row(who, found):
    return f"| {who} | {found['loss']:.4f} | {found['seconds']:.1f} | {found['step'] * 1e3:.2f} |"


def learns():
    """That PyTorch cannot run it is a result as well."""
    found, why = ours(), ""
    rows = [row("ours, fast", found)]
    try:
        peer = json.loads(host.peer("learn", host.text())())
        rows.append(row("PyTorch, compiled", peer))
        beside = f"; {peer['seconds'] / found['seconds']:.2f} times PyTorch's {peer['seconds']:.0f} s, its loss {peer['loss']:.4f}"
    except (host.Skip, host.Failed) as x:
        beside, why = "", f"no figure of PyTorch's: {x}"
    said = f"validation loss {found['loss']:.4f} in {found['seconds']:.0f} s{beside}"
    table = "\n".join(["| | validation loss | s | ms a step |", "|---|---|---|---|", *rows, *(["", why] if why else [])])
    if why or not (found["loss"] <= GOAL or host.DRY):
        raise host.Missed(f"{said}\n{table}")
    return f"{said}\n{table}"


PARTS = [("nanoGPT's recipe for one GPU", host.takes(200, 400, learns))]
