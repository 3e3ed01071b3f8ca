"""The jobs that the parts train, and the models that they measure: as specs for us, as sizes for PyTorch (peer.py)."""

import array
import json
import random
import sys

import host

# GPT-2's sizes, Llama 3.2 1B's, ResNet-50's; a vocabulary that is a multiple of 128, as all who are fast have it.
MODELS = {
    "GPT-2 124M": {"gpt": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50304}, "batch": 64},
    "GPT-2 350M": {"gpt": {"layers": 24, "heads": 16, "width": 1024, "context": 1024, "vocabulary": 50304}, "batch": 64},
    "GPT-2 1558M": {"gpt": {"layers": 48, "heads": 25, "width": 1600, "context": 1024, "vocabulary": 50304}, "batch": 16},
    "Llama 1B": {"llama": {"layers": 16, "heads": 32, "kv_heads": 8, "width": 2048, "hidden": 8192, "context": 1024,
                           "vocabulary": 128256, "rope_theta": 500000.0, "tied_embeddings": True}, "batch": 16},
    "ResNet-50": {"resnet": {"layers": 50, "width": 64, "classes": 1000, "stem": "imagenet"}, "batch": 256, "side": 224},
}
# nanoGPT's recipe for one GPU (config/train_shakespeare_char.py); its page reports a validation loss of 1.4697.
RECIPE = {"gpt": {"layers": 6, "heads": 6, "width": 384, "context": 256, "dropout": 0.2}, "batch": 64, "steps": 5000,
          "lr": 1e-3, "min_lr": 1e-4, "warmup": 100, "beta2": 0.99, "weight_decay": 0.1, "every": 250, "batches": 20}
STEPS, UNCOUNTED = 20, 8  # of a measurement: the first ones choose, compile and capture

if host.DRY:
    for model in MODELS.values():
        for sizes in (model.get("gpt"), model.get("llama")):
            if sizes:
                sizes |= {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 256}
        if "llama" in model:
            model["llama"] |= {"kv_heads": 1, "hidden": 64}
        if "resnet" in model:
            model["resnet"] |= {"width": 4, "classes": 10}
            model["side"] = 32
        model["batch"] = 4
    MODELS["GPT-2 1558M"]["gpt"]["layers"] = 13  # compiled block after block, as the whole one is
    RECIPE |= {"gpt": {"layers": 2, "heads": 2, "width": 32, "context": 16, "dropout": 0.2}, "batch": 4, "steps": 20,
               "warmup": 5, "every": 10, "batches": 2}
    STEPS, UNCOUNTED = 4, 2


def family(model):
    return next(name for name in ("gpt", "llama", "resnet") if name in model)


def samples(model):
    """Tokens or images of a step."""
    return model["batch"] * model[family(model)].get("context", 1)


# ---- jobs ----

def spec(text, steps, accelerator, precision, **model):
    return {"name": "gpu", "model": {"gpt": {"layers": 4, "heads": 4, "width": 256, "context": 128, **model}},
            "data": {"text": {"files": [f"file://{text}"], "tokenizer": "char", "validation_fraction": 0.1}},
            "train": {"steps": steps, "global_batch": 16, "micro_batch": 8, "lanes": 2, "seed": 1, "precision": precision,
                      "optimizer": {"adamw": {"lr": 0.001}}, "learning_rate_schedule": {"constant": {}}},
            "resources": {"accelerator": accelerator}}


def text():
    """Some text that is in every checkout."""
    path = host.WORK / "text"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("".join(p.read_text() for p in sorted(host.ROOT.glob("docs/*.md"))) * 4)
    return path


def write(name, job):
    """The file of a job's spec."""
    path = host.WORK / f"{name.replace(' ', '-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job))
    return path


def train(path, *options, timeout=300, **more):
    """What trainyard-train says of each step. Fails if a step could not be captured: it then runs call by call, and slowly."""
    out, errors = host.finish([host.build() / "bin/trainyard-train", path, "--json", *options], timeout, **more)
    refused = [line for line in errors.splitlines() if "could not be captured" in line]
    if refused:
        raise host.Failed("\n".join(refused))
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def losses(steps, accelerator, precision):
    path = write(f"spec-{accelerator}-{precision}-{steps}", spec(text(), steps, accelerator, precision))
    return [r["loss"] for r in train(path) if "loss" in r]


def tokens():
    """A million random ones: what they are does not change how long a step takes."""
    path = host.WORK / "tokens.bin"
    if not path.exists():
        least = min(sizes["vocabulary"] for m in MODELS.values() for sizes in (m.get("gpt"), m.get("llama")) if sizes)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            array.array("H", random.Random(1).choices(range(least), k=1 << 20)).tofile(file)
    return path


def images():
    """Few enough that they are decoded once, and then stay in memory."""
    path = host.WORK / "images"
    if not path.exists():
        sys.path.insert(0, str(host.ROOT / "tests"))
        import shapes
        shapes.main(path, 30)
    return path


def step_spec(name, numerics):
    """STEPS steps of one of MODELS."""
    model = MODELS[name]
    data = {"tokens": {"train": [f"file://{tokens()}"]}} if family(model) != "resnet" else {
        "images": {"train": f"file://{images()}/train", "size": model["side"]}}
    return {"name": "gpu", "model": {family(model): model[family(model)]}, "data": data,
            "train": {"steps": STEPS, "global_batch": model["batch"], "micro_batch": model["batch"], "lanes": 1, "seed": 1,
                      "precision": "bf16", "numerics": numerics, "optimizer": {"adamw": {"lr": 3e-4}}, "clip_norm": 1.0,
                      "learning_rate_schedule": {"constant": {}}},
            "resources": {"accelerator": host.DEVICE}}


def recipe_spec(path):
    r = RECIPE
    return {"name": "gpu", "model": {"gpt": r["gpt"]},
            "data": {"text": {"files": [f"file://{path}"], "tokenizer": "char", "validation_fraction": 0.1}},
            "train": {"steps": r["steps"], "global_batch": r["batch"], "micro_batch": r["batch"], "lanes": 1, "seed": 1337,
                      "precision": "bf16", "numerics": "fast", "clip_norm": 1.0,
                      "optimizer": {"adamw": {"lr": r["lr"], "beta2": r["beta2"], "weight_decay": r["weight_decay"]}},
                      "learning_rate_schedule": {"cosine": {"warmup_steps": r["warmup"], "min_lr": r["min_lr"]}},
                      "eval": {"every": r["every"], "batches": r["batches"]}},
            "resources": {"accelerator": host.DEVICE}}
