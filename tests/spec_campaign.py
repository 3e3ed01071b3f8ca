"""One spec, one history: specs written as people write them, with fields left out, each trained in several layouts.

A spec is drawn from a seed and written as YAML. `trainyard-train` reads it, fills in the defaults and trains, as a
service does. Between the runs of a spec only `parallel.*`, `train.recompute`, the ranks and the threads change; every
number that a step reports and the SHA-256 of the weights must stay the same. FIELDS has every optional field of
docs/spec.md, or FIXED says why a field is not in it."""

import json
import pathlib
import random
import re
import struct
import subprocess
import tempfile

import shapes
from service_fixture import BIN, ROOT

STEPS = 4
# What a step reports about the machine; everything else it reports is a result.
OF_THE_MACHINE = {"tokens_per_second", "samples_per_second", "step_seconds", "mfu", "memory_bytes", "data_wait_seconds",
                  "data_read_seconds",
                  "communication_wait_seconds", "checkpoint_stall_seconds", "arena_bytes"}

# What each family needs, and the fields that it may be given.
MODELS = {
    "gpt": {"layers": 3, "heads": 2, "width": 32, "context": 16},
    "llama": {"layers": 3, "heads": 4, "width": 32, "context": 16},
    "resnet": {"width": 8},  # the default of 64 trains for seconds; `layers` and the rest are left out
    "vit": {"layers": 3, "heads": 2, "width": 32, "patch": 4},
    "mlp": {},
    "unrolled": {"iterations": 4},
}
SOURCES = {"gpt": ["text", "tokens"], "llama": ["text", "tokens"], "resnet": ["images", "idx"],
           "vit": ["images", "idx"], "mlp": ["images", "idx"], "unrolled": ["reconstruction"]}
OPTIMIZERS = ["adamw", "sgd", "lion", "adafactor", "muon"]
SCHEDULES = ["cosine", "constant", "linear", "wsd"]

# Values of each optional field. DATA stands for the folder of the drawn data. A function takes the spec and the
# generator, and returns None if the spec cannot have the field.
DATA = "file://DATA"
FIELDS = {
    "model.gpt.dropout": [0.1], "model.gpt.vocabulary": [300],
    "model.llama.kv_heads": [1, 2], "model.llama.hidden": [48], "model.llama.vocabulary": [300],
    "model.llama.rope_theta": [5e5],
    "model.llama.rope_scaling": [
        {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}],
    "model.llama.norm_eps": [1e-6], "model.llama.tied_embeddings": [True, False],
    "model.resnet.layers": [18, 34, 50], "model.resnet.classes": [5], "model.resnet.stem": ["small", "imagenet"],
    "model.vit.hidden": [48], "model.vit.classes": [5], "model.vit.dropout": [0.1],
    "model.mlp.hidden": [[24, 24, 24, 24], [16]], "model.mlp.classes": [5], "model.mlp.dropout": [0.1],
    "model.unrolled.channels": [6], "model.unrolled.layers": [2], "model.unrolled.shared_weights": [True],
    "data.text.tokenizer": ["char", "byte", f"file://{ROOT}/tests/engine/tokenizers/gpt2.json"],
    "data.text.validation_fraction": [0, 0.2], "data.text.validation": [[f"{DATA}/text.txt"]],
    "data.text.separator": ["\n\n"],
    "data.tokens.validation": [[f"{DATA}/validation.bin"]], "data.tokens.tokenizer": ["byte"],
    "data.tokens.token_bytes": [2],
    "data.images.validation": [f"{DATA}/validation"], "data.images.size": [16, 24], "data.images.channels": [1, 3],
    "data.images.resize": [28],
    "data.images.augment.crop_padding": [2], "data.images.augment.flip": [True],
    "data.images.augment.resized_crop": [{}], "data.images.augment.resized_crop.min_scale": [0.3],
    "data.images.augment.resized_crop.max_scale": [0.9], "data.images.augment.resized_crop.min_ratio": [0.5],
    "data.images.augment.resized_crop.max_ratio": [2], "data.images.augment.brightness": [0.4],
    "data.images.augment.contrast": [0.4], "data.images.augment.saturation": [0.4],
    "data.images.augment.mixup": [0.2, 1],
    "data.images.normalize.mean": [[0.4, 0.5, 0.6]], "data.images.normalize.std": [[0.2, 0.25, 0.3]],
    "data.idx.validation_images": [f"{DATA}/images.idx"], "data.idx.validation_labels": [f"{DATA}/labels.idx"],
    "data.idx.augment.crop_padding": [1], "data.idx.augment.flip": [True],
    "data.idx.augment.resized_crop": [{}], "data.idx.augment.resized_crop.min_scale": [0.3],
    "data.idx.augment.resized_crop.max_scale": [0.9], "data.idx.augment.resized_crop.min_ratio": [0.5],
    "data.idx.augment.resized_crop.max_ratio": [2], "data.idx.augment.brightness": [0.4],
    "data.idx.augment.contrast": [0.4], "data.idx.augment.mixup": [0.2, 1], "data.idx.normalize.mean": [[0.4]], "data.idx.normalize.std": [[0.2]],
    "data.reconstruction.validation": [f"{DATA}/validation"], "data.reconstruction.size": [16],
    "data.reconstruction.sampled_fraction": [0.5], "data.reconstruction.center_fraction": [0.1],
    "data.reconstruction.noise": [0, 0.02],
    "train.micro_batch": lambda spec, draw: draw.choice(divisors(spec["train"]["global_batch"], (1, 2, 3, 4, 8))),
    "train.lanes": lambda spec, draw: draw.choice(divisors(micro_batches(spec))),
    "train.reduce": ["step", "micro_batch"],
    "train.init_from": lambda spec, draw: f"{DATA}/pretrained-{family(spec)}" if may_start_from_weights(spec) else None,
    "train.optimizer.adamw.lr": [3e-3], "train.optimizer.adamw.beta1": [0.8], "train.optimizer.adamw.beta2": [0.99],
    "train.optimizer.adamw.eps": [1e-6], "train.optimizer.adamw.weight_decay": [0, 0.2],
    "train.optimizer.sgd.lr": [0.03], "train.optimizer.sgd.momentum": [0.5], "train.optimizer.sgd.nesterov": [True],
    "train.optimizer.sgd.weight_decay": [0, 1e-3],
    "train.optimizer.lion.lr": [3e-4], "train.optimizer.lion.beta1": [0.8], "train.optimizer.lion.beta2": [0.9],
    "train.optimizer.lion.weight_decay": [0],
    "train.optimizer.adafactor.lr": [0.005], "train.optimizer.adafactor.beta2_decay": [0.7],
    "train.optimizer.adafactor.eps1": [1e-20],
    "train.optimizer.adafactor.eps2": [1e-2], "train.optimizer.adafactor.clip_threshold": [0.8],
    "train.optimizer.adafactor.weight_decay": [0.01],
    "train.optimizer.muon.lr": [0.01], "train.optimizer.muon.momentum": [0.9], "train.optimizer.muon.nesterov": [False],
    "train.optimizer.muon.iterations": [3], "train.optimizer.muon.weight_decay": [0],
    "train.optimizer.muon.adamw.lr": [1e-3], "train.optimizer.muon.adamw.beta1": [0.8],
    "train.optimizer.muon.adamw.beta2": [0.99],
    "train.optimizer.muon.adamw.eps": [1e-6], "train.optimizer.muon.adamw.weight_decay": [0],
    "train.learning_rate_schedule.cosine.warmup_steps": [2], "train.learning_rate_schedule.cosine.min_lr": [1e-5],
    "train.learning_rate_schedule.linear.warmup_steps": [1], "train.learning_rate_schedule.linear.min_lr": [1e-5],
    "train.learning_rate_schedule.constant.warmup_steps": [3],
    "train.learning_rate_schedule.wsd.warmup_steps": [1], "train.learning_rate_schedule.wsd.decay_steps": [2],
    "train.learning_rate_schedule.wsd.min_lr": [1e-5],
    "train.learning_rate_scaling": ["linear", "sqrt"], "train.reference_batch": [8],
    "train.clip_norm": [0, 0.5], "train.clip_value": [0.01],
    "train.precision": ["fp32", "bf16", "fp16"],
    "train.loss_scale.initial": [1024], "train.loss_scale.growth_interval": [2],
    "train.ema.decay": [0.9], "train.ema.evaluate": [False], "train.skip_spikes.z_score": [1], "train.skip_spikes.window": [2], "train.max_not_finite": [0],
    "train.profile.from": [1], "train.profile.to": [2],
    "train.inspect.gradients_every": [1], "train.seed": [0, 1337, -1], "train.numerics": ["reproducible", "strict"],
    "train.eval.every": [2], "train.eval.batches": [1, 3],
    "checkpoint.every": [0, 2],
}
SLOW = {"model.resnet.layers"}  # given only where it is the field that is looked at
FIXED = {
    "data.mixture.tokenizer": "e2e/test_mixtures.py compares the bits of mixtures", "data.mixture.phases": "the same",
    "train.changed_data": "only a fork reads it",
    "model.resnet.width": "always given: the default trains for seconds",
    "data.text.format": "the drawn text is a plain file; e2e/test_documents.py compares the bits of all formats",
    "data.text.document": "follows the format",
    "data.idx.augment.saturation": "the drawn idx files are gray, and have none",
    "train.micro_batch_auto": "`micro_batch: auto` is the wish that the layout and the memory choose the micro-batch",
    "train.recompute": "changes between the runs of a spec, as parallel.* does",
    "data.workers": "changes between the runs of a spec, as parallel.* does", "data.prefetch": "as data.workers",
    "checkpoint.keep_last": "only a service reads it", "checkpoint.keep_best": "only a service reads it",
    "checkpoint.directory": "the campaign reads the weights from a folder of its own",
    "checkpoint.store": "only a service reads it; e2e/test_store_checkpoints.py compares the weights",
    "resources.accelerator": "another device is another machine",
    "resources.memory_bytes": "only refuses, and chooses what auto leaves open",
    "resources.cores": "limits the threads, which change between the runs of a spec",
    "retry.max_restarts": "only a service reads it", "queue": "only a service reads it",
    "priority": "only a service reads it",
    "labels": "only a service reads it",
    "program": "a job has a model or a program, and a program's results are its own",
}


def optional_fields():
    """Of docs/spec.md: the fields that have a default, but for the layout's, a program's and those of stores, which say
    where a host finds data (e2e/test_data_stores.py compares the bits)."""
    fields = re.search(r"^## Fields$(.*?)^## ", (ROOT / "docs/spec.md").read_text(), re.M | re.S)[1]
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| ([^|]*) \|", fields, re.M)
    optional = {name for name, default in rows if not default.startswith("required")}
    whole = {"train.optimizer", "train.learning_rate_schedule"}  # their members are listed
    return {name for name in optional if not name.startswith(("parallel.", "program.", "stores"))} - whole


# --- a spec ---

def family(spec):
    return next(iter(spec["model"]))


def source(spec):
    return next(iter(spec["data"]))


def get(spec, path):
    for key in path.split("."):
        if not isinstance(spec, dict) or key not in spec:
            return None
        spec = spec[key]
    return spec


def put(spec, path, value):
    *parents, last = path.split(".")
    for key in parents:
        spec = spec.setdefault(key, {})
    spec[last] = value


def divisors(n, of=(1, 2, 4, 8)):
    return [k for k in of if n % k == 0]


def micro_batches(spec):
    """Of a step, by the default of docs/spec.md where the spec leaves micro_batch out: 2,048 tokens, or the images of
    the model's row. The drawn batches are smaller, except for a ViT's and an unrolled network's."""
    batch, given = spec["train"]["global_batch"], get(spec, "train.micro_batch")
    if given:
        return batch // given
    least = {"vit": 8, "unrolled": 1}.get(family(spec), batch)
    cut = max(n for n in divisors(batch) if n == 1 or batch // n >= least)
    return max(cut, get(spec, "train.lanes") or 1)


def lanes(spec):
    return get(spec, "train.lanes") or max(divisors(micro_batches(spec)))


def may_start_from_weights(spec):
    """The weights in the data folder are those of the family's smallest spec on the text's characters."""
    kind, shape = family(spec), set(spec["model"][family(spec)]) - {"dropout"}
    return kind in ("gpt", "llama") and shape == set(MODELS[kind]) and spec["data"] == minimal_data("text")


def minimal_data(kind):
    return {kind: {"text": {"files": [f"{DATA}/text.txt"]}, "tokens": {"train": [f"{DATA}/train.bin"]},
                   "images": {"train": f"{DATA}/train"}, "reconstruction": {"train": f"{DATA}/train"},
                   "idx": {"train_images": f"{DATA}/images.idx", "train_labels": f"{DATA}/labels.idx"}}[kind]}


def minimal(draw, kind, data):
    """With a cut into up to eight micro-batches, so that there are layouts; the default would leave these batches whole."""
    batch = draw.choice([8, 12, 16, 24])
    return {"name": "drawn", "model": {kind: dict(MODELS[kind])}, "data": minimal_data(data),
            "train": {"steps": STEPS, "global_batch": batch, "micro_batch": batch // max(divisors(batch))}}


def complete(spec, draw):
    """Gives what a drawn field needs beside it."""
    train = spec["train"]
    if "loss_scale" in train:
        train["precision"] = "fp16"
    if "learning_rate_scaling" in train:
        train["reference_batch"] = 8
    if "profile" in train:
        train["profile"] = {"from": 1, "to": 2}
    if "skip_spikes" in train:
        train["skip_spikes"]["z_score"] = 1
    idx = spec["data"].get("idx", {})
    if "validation_images" in idx or "validation_labels" in idx:
        idx.update(validation_images=f"{DATA}/images.idx", validation_labels=f"{DATA}/labels.idx")
    complete_images(spec["data"].get("images") or idx, idx)
    if get(spec, "data.text.validation"):
        spec["data"]["text"].pop("validation_fraction", None)
    model = spec["model"][family(spec)]
    if "tokens" in spec["data"] and "tokenizer" not in spec["data"]["tokens"]:
        model["vocabulary"] = 300
    if str(get(spec, "data.text.tokenizer") or "").startswith("file:"):
        model.pop("vocabulary", None)
    if train.get("lanes") and micro_batches(spec) % train["lanes"]:
        train["lanes"] = max(divisors(micro_batches(spec)))
    if "init_from" in train and not may_start_from_weights(spec):
        del train["init_from"]
    return spec


def complete_images(images, idx):
    augment, normalize = images.get("augment", {}), images.get("normalize")
    channels = 1 if images is idx else images.get("channels", 3)
    if augment.get("resized_crop") == {}:
        augment["resized_crop"] = {"min_scale": 0.2}
    if "resized_crop" in augment:
        augment.pop("crop_padding", None)
    if "saturation" in augment and channels == 1:
        del augment["saturation"]
    if normalize:
        images["normalize"] = {"mean": [0.4, 0.5, 0.6][:channels], "std": [0.2, 0.25, 0.3][:channels]}
    if "resize" in images:
        images.setdefault("size", 16)


def draw_spec(draw, field=None, number=None):
    """One in three of the fields that the spec can have. `field` is sure to be there, with its value of that number."""
    part = (field or "").split(".")
    member = part[1:3] if part[0] == "train" else part
    kinds = [k for k, sources in SOURCES.items() if part[0] != "model" or part[1] == k
             if part[0] != "data" or part[1] in sources if field != "train.init_from" or k in ("gpt", "llama")]
    kind = draw.choice(kinds)
    data = part[1] if part[0] == "data" else "text" if field == "train.init_from" else draw.choice(SOURCES[kind])
    spec = minimal(draw, kind, data)
    if field != "train.micro_batch" and draw.random() < 1 / 4:
        del spec["train"]["micro_batch"]
    chosen = [f"model.{kind}", f"data.{data}"]
    for name, members in (("optimizer", OPTIMIZERS), ("learning_rate_schedule", SCHEDULES)):
        one = member[1] if member[0] == name else draw.choice(members + [None])
        if one:
            spec["train"][name] = {one: {}}
            chosen.append(f"train.{name}.{one}")
    oneofs = ("model.", "data.", "train.optimizer.", "train.learning_rate_schedule.")
    for path, values in FIELDS.items():
        if path.startswith(oneofs) and not any(path.startswith(c + ".") for c in chosen):
            continue
        unwanted = path in SLOW or (field == "train.init_from" and path.startswith(oneofs[:2]))
        if path != field and (unwanted or draw.random() > 1 / 3):
            continue
        named = path == field and number is not None
        value = values(spec, draw) if callable(values) else values[number] if named else draw.choice(values)
        if value is not None:
            put(spec, path, value)
    return complete(spec, draw)


def yaml(value, indent=0):
    """Block style, as in the examples of docs/spec.md."""
    lines = []
    for key, v in value.items():
        if isinstance(v, dict) and v:
            lines.append(f"{' ' * indent}{key}:\n{yaml(v, indent + 2)}")
        else:
            text = json.dumps(v) if isinstance(v, (dict, list, bool)) or str(v).startswith("file:") else str(v)
            lines.append(f"{' ' * indent}{key}: {text}\n")
    return "".join(lines)


# --- layouts ---

def pieces(spec):
    """How many parts a pipeline can have at most."""
    if family(spec) == "mlp":
        return len(get(spec, "model.mlp.hidden") or []) + 1
    return 3 if get(spec, "model.unrolled.shared_weights") else 4


def draw_loader(draw):
    return {name: n for name, n in (("workers", draw.choice([None, 1, 7])), ("prefetch", draw.choice([None, 1, 9]))) if n}


def layouts(spec, draw):
    """All that the spec can have on at most four ranks, by what is special in them, each in a drawn order."""
    parallel = {"data": [], "sharded": [], "pipeline": []}
    whole = set(spec["train"].get("optimizer", {})) & {"muon", "adafactor"}
    for data in divisors(lanes(spec), (2, 4)):
        parallel["data"] += [{"data": data}, {"data": data, "zero": 1}]
        parallel["sharded"] += [{"data": data, "zero": 2}] + ([] if whole else [{"data": data, "zero": 3}])
    for stages in (n for n in (2, 3, 4) if n <= pieces(spec)):
        for data, zero in [(1, 0)] + [(2, z) for z in (0, 1) if lanes(spec) % 2 == 0 and stages == 2]:
            for schedule in ("1f1b", "gpipe", "zero_bubble", "interleaved"):
                if schedule == "interleaved" and (2 * stages > pieces(spec) or micro_batches(spec) // data % stages):
                    continue
                parallel["pipeline"].append(
                    {"data": data, "zero": zero, "pipeline": stages, "pipeline_schedule": schedule})
    one = [{"recompute": "selective"}, {"recompute": "block"}, {"threads": 2}]
    drawn = {"one rank": one}
    for name, items in parallel.items():
        drawn[name] = [{"parallel": p, "recompute": draw.choice([None, None, "selective", "block"]),
                        "threads": draw.choice([1, 2]), "loader": draw_loader(draw)} for p in items]
    for items in drawn.values():
        draw.shuffle(items)
    return drawn


def choose(drawn, draw, n):
    """n of them, of each kind in turn."""
    kinds = [items for items in drawn.values() if items]
    draw.shuffle(kinds)
    longest = max(map(len, kinds))
    return [items[i] for i in range(longest) for items in kinds if i < len(items)][:n]


# --- one run ---

class Refused(Exception):
    pass


def trainyard_train(*arguments, **more):
    return subprocess.run([BIN / "trainyard-train", *arguments], text=True, capture_output=True, timeout=300, **more)


def train(spec, layout, folder):
    """The history: what each step reports, and the digests of its checkpoints."""
    spec = json.loads(json.dumps(spec).replace("file://DATA", f"file://{folder}"))
    if layout.get("parallel"):
        spec["parallel"] = layout["parallel"]
    if layout.get("recompute"):
        spec["train"]["recompute"] = layout["recompute"]
    spec["data"] |= layout.get("loader", {})
    with tempfile.TemporaryDirectory(dir=folder) as run:
        file = pathlib.Path(run, "spec.yaml")
        file.write_text(yaml(spec))
        done = trainyard_train(file, "--json", "--checkpoints", f"{run}/checkpoints", "--threads",
                               str(layout.get("threads", 1)))
    if done.returncode:
        raise Refused(done.stderr)
    steps = [{name: value for name, value in json.loads(line).items() if name not in OF_THE_MACHINE}
             for line in done.stdout.splitlines()]
    assert len(steps) == STEPS, done.stdout
    weights = re.findall(r"wrote \S*/step-(\d+) \(weights_sha256 ([0-9a-f]{64})\)", done.stderr)
    assert weights and weights[-1][0] == str(STEPS), done.stderr
    return steps, weights[-1][1]


def one_history(spec, chosen, folder):
    """Trains the spec on one rank and in each layout. Returns None, or a text that says where they part."""
    try:
        expected = train(spec, {}, folder)
        for layout in chosen:
            got = train(spec, layout, folder)
            if got == expected:
                continue
            step = next((a["step"] for a, b in zip(expected[0], got[0]) if a != b), "none, but the weights")
            return f"{layout}: another history from step {step}:\n{expected}\n{got}\nspec:\n{yaml(spec)}"
    except Refused as refused:
        return f"{refused}\nlayouts {chosen}\nspec:\n{yaml(spec)}"
    return None


# --- data ---

def write_images(folder, draw, classes):
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(6):
            rows = [bytes(draw.randrange(256) // (1 + (x // 3 + y) % 3) for x in range(48)) for y in range(16)]
            (folder / name / f"{i}.png").write_bytes(shapes.png(rows))


def write_data(folder, draw):
    """Text, tokens, images and idx files, small; and the weights that `init_from` starts from."""
    words = "the a yard train engine rank shard lease step loss runs stops waits sends holds keeps every each".split()
    text = " ".join(draw.choice(words) for _ in range(1500)) + "\n"
    (folder / "text.txt").write_text(text)
    for name, n in (("train", 2000), ("validation", 600)):
        (folder / f"{name}.bin").write_bytes(struct.pack(f"<{n}H", *(draw.randrange(256) for _ in range(n))))
        write_images(folder / name, draw, ["one", "three", "two"])
    n, side = 24, 16
    (folder / "images.idx").write_bytes(struct.pack(">IIII", 0x803, n, side, side) + draw.randbytes(n * side * side))
    (folder / "labels.idx").write_bytes(struct.pack(">II", 0x801, n) + bytes(i % 3 for i in range(n)))
    for kind in ("gpt", "llama"):
        spec = minimal(random.Random(1), kind, "text")
        spec["train"]["steps"] = 1
        text = yaml(spec).replace("file://DATA", f"file://{folder}")
        checkpoints = folder / f"checkpoints-{kind}"
        trainyard_train("-", "--checkpoints", checkpoints, input=text, check=True)
        trainyard_train("export", checkpoints / "step-1", "--huggingface", folder / f"pretrained-{kind}", check=True)
    return folder
