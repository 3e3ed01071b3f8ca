"""What models learn through the service, to goals: a text, drawn shapes, and images behind an undersampled Fourier transform.

nanoGPT's CPU recipe on tinyshakespeare (TRAINYARD_TEXT=tinyshakespeare.txt; its own page reports a validation loss of 1.88) for each
family, precision and layout; the images are drawn here. `./dev bench learn` runs all of it; TRAINYARD_LEARN=text,shapes,unrolled some."""

import os
import pathlib
import shutil
import tempfile
import time

import shapes
from report import report
from service_fixture import DATA_ROOTS, Service

LAYOUTS = {
    "1 rank": {"data": 1},
    "data 2": {"data": 2},
    "ZeRO-3, data 2": {"data": 2, "zero": 3},
    "pipeline 2": {"pipeline": 2},
}
TEXT_RUNS = [
    ("gpt", "fp32", "1 rank"), ("gpt", "fp32", "data 2"), ("gpt", "fp32", "ZeRO-3, data 2"), ("gpt", "fp32", "pipeline 2"),
    ("gpt", "bf16", "ZeRO-3, data 2"), ("gpt", "bf16", "pipeline 2"), ("gpt", "fp16", "ZeRO-3, data 2"), ("gpt", "fp16", "pipeline 2"),
    ("llama", "fp32", "ZeRO-3, data 2"), ("llama", "fp32", "pipeline 2"), ("llama", "bf16", "ZeRO-3, data 2"),
    ("llama", "bf16", "pipeline 2"), ("llama", "fp16", "ZeRO-3, data 2"), ("llama", "fp16", "pipeline 2"),
]
MODELS = {
    "gpt": {"gpt": {"layers": 4, "heads": 4, "width": 128, "context": 64, "dropout": 0.0}},
    "llama": {"llama": {"layers": 4, "heads": 4, "kv_heads": 2, "width": 128, "hidden": 384, "context": 64}},
    "resnet": {"resnet": {"layers": 18, "width": 16, "stem": "imagenet"}},
    "vit": {"vit": {"layers": 4, "heads": 4, "width": 96, "patch": 8}},
}
# A transformer sees no neighbourhoods: orthogonalised steps find them several times sooner than AdamW's.
OPTIMIZERS = {
    "resnet": {"adamw": {"lr": 1e-3, "weight_decay": 0.05}},
    "vit": {"muon": {"lr": 0.01, "weight_decay": 0.05, "adamw": {"lr": 1e-3, "beta2": 0.99}}},
}


def text_spec(family, precision, layout, text):
    return {
        "name": f"{family}-{precision}",
        "model": MODELS[family],
        "data": {"text": {"files": [f"file://{text}"], "tokenizer": "char", "validation_fraction": 0.1}},
        "train": {
            "steps": 2000, "global_batch": 12, "micro_batch": 6, "lanes": 2, "seed": 1337, "precision": precision,
            "optimizer": {"adamw": {"lr": 1e-3, "beta2": 0.99, "weight_decay": 0.1}},
            "learning_rate_schedule": {"cosine": {"warmup_steps": 100, "min_lr": 1e-4}},
            "clip_norm": 1.0, "eval": {"every": 250, "batches": 200},
        },
        "parallel": LAYOUTS[layout],
        "checkpoint": {"every": 1000},
    }


def image_spec(family, directory):
    return {
        "name": f"shapes-{family}",
        "model": MODELS[family],
        "data": {"images": {"train": f"file://{directory}/train", "validation": f"file://{directory}/validation",
                            "augment": {"crop_padding": 4}}},
        "train": {
            "steps": 800, "global_batch": 64, "micro_batch": 16, "seed": 7,
            "optimizer": OPTIMIZERS[family],
            "learning_rate_schedule": {"cosine": {"warmup_steps": 50, "min_lr": 1e-5}},
            "eval": {"every": 400, "batches": 31},
        },
        "parallel": {"data": 2},
        "checkpoint": {"every": 0},
    }


def unrolled_spec(directory):
    return {
        "name": "unrolled",
        "model": {"unrolled": {"iterations": 4, "channels": 16, "layers": 3}},
        "data": {"reconstruction": {"train": f"file://{directory}/train", "validation": f"file://{directory}/validation",
                                    "sampled_fraction": 0.33, "noise": 0.01}},
        "train": {
            "steps": 600, "global_batch": 16, "micro_batch": 4, "seed": 3, "recompute": "block",
            "optimizer": {"adamw": {"lr": 1e-3, "weight_decay": 0.0}},
            "learning_rate_schedule": {"cosine": {"warmup_steps": 50, "min_lr": 1e-5}},
            "eval": {"every": 200, "batches": 8},
        },
        "parallel": {"data": 2},
        "checkpoint": {"every": 0},
    }


def run(service, spec):
    start = time.monotonic()
    job = service.submit(spec)
    ended = service.wait_end(job, timeout_s=1800)
    assert ended["state"] == "SUCCEEDED", f"{spec['name']}: {ended['state']}: {ended.get('reason')}"
    return job, ended, time.monotonic() - start


def last(service, job, name):
    values = service.metric(job, name)
    return values[max(values)]


def learn_text(service):
    text = os.environ.get("TRAINYARD_TEXT")
    if not text:
        print("skipped: set TRAINYARD_TEXT to the path of tinyshakespeare.txt (1.1 MB of text, not part of this project)")
        return
    rows = []
    for family, precision, layout in TEXT_RUNS:
        job, ended, seconds = run(service, text_spec(family, precision, layout, pathlib.Path(text).resolve()))
        rows.append({"model": family, "precision": precision, "layout": layout,
                     "validation loss": last(service, job, "validation_loss"), "goal": "<= 1.90", "seconds": seconds,
                     "weights_sha256": ended["weights_sha256"][:16]})
        print(rows[-1], flush=True)
    report("learn-text", rows)


def learn_shapes(service, directory):
    rows = []
    for family in ("resnet", "vit"):
        job, _, seconds = run(service, image_spec(family, directory))
        rows.append({"model": family, "validation accuracy": last(service, job, "validation_accuracy"), "goal": ">= 0.98",
                     "seconds": seconds})
        print(rows[-1], flush=True)
    report("learn-shapes", rows)


def learn_unrolled(service, directory):
    job, _, seconds = run(service, unrolled_spec(directory))
    first, best = last(service, job, "validation_psnr_first"), last(service, job, "validation_psnr")
    report("learn-unrolled", [{"model": "unrolled", "first iterate, dB": first, "last iterate, dB": best, "gain, dB": best - first,
                               "goal": ">= 3 dB", "seconds": seconds}])


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    (directory / "service").mkdir()
    asked = os.environ.get("TRAINYARD_LEARN", "text,shapes,unrolled").split(",")
    shapes.main(directory / "shapes", 1000)
    text = os.environ.get("TRAINYARD_TEXT")
    service = Service(directory / "service", roots=[*DATA_ROOTS, *([pathlib.Path(text).resolve().parent] if text else [])]).start()
    try:
        if "text" in asked:
            learn_text(service)
        if "shapes" in asked:
            learn_shapes(service, directory / "shapes")
        if "unrolled" in asked:
            learn_unrolled(service, directory / "shapes")
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)


main()
