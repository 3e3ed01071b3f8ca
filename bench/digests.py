"""Prints the SHA-256 of the weights after four steps of 20 fixed specs, over every model family and kind of layout.

Run it before and after a change that must keep results, on the same machine, and compare the tables. TRAINYARD_BIN
names the folder of another build's programs."""

import pathlib
import random
import tempfile

import spec_campaign as campaign
from report import report

BF16, FP16 = {"precision": "bf16"}, {"precision": "fp16"}

# Family, source of data, fields of `model`, fields of `train`, layout.
SPECS = [
    ("gpt", "text", {}, {}, {}),
    ("gpt", "text", {"dropout": 0.1}, {"ema": {"decay": 0.9}, **BF16}, {"parallel": {"data": 2, "zero": 1}}),
    ("gpt", "text", {}, {"clip_norm": 0.5}, {"parallel": {"pipeline": 2}, "recompute": "block"}),
    ("gpt", "tokens", {"vocabulary": 300}, {"optimizer": {"lion": {}}}, {"parallel": {"data": 2, "zero": 3}}),
    ("gpt", "text", {}, {"optimizer": {"adafactor": {}}, "reduce": "step"}, {"recompute": "selective"}),
    ("llama", "text", {}, {}, {}),
    ("llama", "tokens", {"vocabulary": 300, "kv_heads": 1}, BF16, {"parallel": {"data": 2, "zero": 2}}),
    ("llama", "text", {"tied_embeddings": True}, {},
     {"parallel": {"pipeline": 3, "pipeline_schedule": "zero_bubble"}}),
    ("llama", "text", {}, {"optimizer": {"muon": {}}, "clip_value": 0.01}, {"parallel": {"data": 2}}),
    ("llama", "text", {}, {"loss_scale": {"growth_interval": 2}, **FP16}, {"parallel": {"data": 2, "pipeline": 2}}),
    ("resnet", "images", {}, {}, {}),
    ("resnet", "images", {}, {"optimizer": {"sgd": {"nesterov": True}}, **BF16}, {"parallel": {"data": 2}}),
    ("resnet", "idx", {"layers": 50}, {}, {"parallel": {"pipeline": 2, "pipeline_schedule": "gpipe"}}),
    ("vit", "images", {}, {}, {"threads": 2}),
    ("vit", "idx", {"dropout": 0.1}, BF16, {"parallel": {"data": 4, "zero": 1}}),
    ("mlp", "idx", {"hidden": [24, 24]}, {"optimizer": {"sgd": {}}}, {}),
    ("mlp", "images", {"hidden": [24, 24, 24], "dropout": 0.1}, {},
     {"parallel": {"pipeline": 2, "virtual_stages": 2, "pipeline_schedule": "interleaved"}}),
    ("unrolled", "reconstruction", {}, {}, {}),
    ("unrolled", "reconstruction", {"shared_weights": True}, BF16, {"parallel": {"data": 2}}),
    ("unrolled", "reconstruction", {}, {"skip_spikes": {"z_score": 1}}, {"parallel": {"pipeline": 2, "data": 2}}),
]


def digest(number, folder):
    family, source, model, train, layout = SPECS[number]
    spec = campaign.minimal(random.Random(number), family, source)
    spec["model"][family].update(model)
    spec["train"].update(train)
    _, weights = campaign.train(spec, layout, folder)
    return {"spec": number + 1, "family": family, "data": source, "layout": campaign.yaml(layout).split(), "sha256": weights}


with tempfile.TemporaryDirectory() as folder:
    folder = campaign.write_data(pathlib.Path(folder), random.Random(11))
    rows = [digest(number, folder) for number in range(len(SPECS))]
for row in rows:
    row["layout"] = " ".join(row["layout"]) or "one rank"
report("digests", rows)
