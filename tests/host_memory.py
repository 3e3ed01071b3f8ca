"""A rank's memory is what its plan says: specs drawn from a seed, trained by `trainyard-train` with checkpoints and
evaluations, from a checkpoint in half of the runs, and the largest resident memory of each rank compared with the plan.

The specs are those of spec_campaign.py, and in two of three the model is made larger, so that snapshots, packed weights
and tokens weigh more than the program itself."""

import json
import pathlib
import subprocess
import tempfile

import spec_campaign as campaign
from service_fixture import BIN

# A rank may have so much less or more than planned: constants, and not a part of the size.
LESS, MORE = 12 << 20, 10 << 20

LARGER = {"gpt": {"width": [128, 256, 384], "heads": [4], "layers": [2, 4], "context": [64, 128]},
          "llama": {"width": [128, 256, 384], "heads": [4], "layers": [2, 4], "context": [64, 128]},
          "vit": {"width": [96, 192], "heads": [3], "layers": [2, 4]},
          "resnet": {"width": [16, 32]},
          "mlp": {"hidden": [[512], [1024, 1024], [256, 256, 256]]},
          "unrolled": {"channels": [16, 32]}}


def enlarge(spec, draw):
    model = spec["model"][campaign.family(spec)]
    for field in ("kv_heads", "hidden"):
        model.pop(field, None)
    for field, values in LARGER[campaign.family(spec)].items():
        model[field] = draw.choice(values)
    spec["train"].pop("init_from", None)
    return spec


def draw_spec(draw):
    spec = campaign.draw_spec(draw)
    spec["train"].pop("profile", None)
    if draw.random() < 2 / 3:
        enlarge(spec, draw)
    spec.setdefault("checkpoint", {})["every"] = 1
    if draw.random() < 1 / 2:
        spec["train"]["eval"] = {"every": 1}
    return spec


def draw_layout(spec, draw):
    layouts = [layout for some in campaign.layouts(spec, draw).values() for layout in some]
    return draw.choice([{}] * 2 + layouts)


def train(spec, layout, run, *more):
    """What each rank was planned to have, and has had: the objects that `--json` writes to stderr."""
    file = pathlib.Path(run, "spec.yaml")
    file.write_text(campaign.yaml(spec))
    done = campaign.trainyard_train(file, "--json", "--checkpoints", f"{run}/checkpoints", "--threads",
                                    str(layout.get("threads", 1)), *more)
    if done.returncode:
        raise campaign.Refused(f"{done.stderr}\nspec:\n{campaign.yaml(spec)}")
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"rank"')]


def plan(spec, layout):
    done = subprocess.run([BIN / "trainyard-train", "plan", "-", "--json", "--threads", str(layout.get("threads", 1))],
                          input=campaign.yaml(spec), text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def completed(spec, layout, folder):
    spec = json.loads(json.dumps(spec).replace("file://DATA", f"file://{folder}"))
    if layout.get("parallel"):
        spec["parallel"] = layout["parallel"]
    if layout.get("recompute"):
        spec["train"]["recompute"] = layout["recompute"]
    return spec


def world_size(layout):
    parallel = layout.get("parallel") or {}
    return parallel.get("data", 1) * parallel.get("pipeline", 1)


def compare(spec, layout, folder, resume):
    """Trains the spec, and from its checkpoint again. Returns the ranks of the last run with their difference."""
    spec = completed(spec, layout, folder)
    with tempfile.TemporaryDirectory(dir=folder) as run:
        ranks = train(spec, layout, run)
        if resume:
            spec["train"]["steps"] += 2
            ranks = train(spec, layout, run, "--resume", f"{run}/checkpoints/step-{campaign.STEPS}")
    for rank in ranks:
        rank["over_bytes"] = rank["peak_bytes"] - rank["planned_bytes"]
    return sorted(ranks, key=lambda r: r["rank"])


def wrong(spec, layout, ranks):
    """A sentence for each rank outside of the constants."""
    return [f"rank {r['rank']} had {r['peak_bytes'] / 2**20:.1f} MiB, planned {r['planned_bytes'] / 2**20:.1f}: {layout}\n"
            f"{campaign.yaml(spec)}" for r in ranks if not -LESS <= r["over_bytes"] <= MORE]
