"""nanoGPT's CPU recipe through the service: TRAINYARD_TEXT=tinyshakespeare.txt. Its own page reports a validation loss of 1.88."""

import os
import pathlib
import shutil
import tempfile
import time

from report import report
from yard import Service


def spec(text, data):
    return {
        "name": "tinyshakespeare",
        "model": {"gpt": {"layers": 4, "heads": 4, "width": 128, "context": 64, "dropout": 0.0}},
        "data": {"text": {"files": [f"file://{text}"], "tokenizer": "char", "validation_fraction": 0.1}},
        "train": {
            "steps": 2000, "global_batch": 12, "micro_batch": 6, "lanes": 2, "seed": 1337,
            "optimizer": {"adamw": {"lr": 1e-3, "beta2": 0.99, "weight_decay": 0.1}},
            "learning_rate_schedule": {"cosine": {"warmup_steps": 100, "min_lr": 1e-4}},
            "clip_norm": 1.0, "eval": {"every": 250, "batches": 200},
        },
        "parallel": {"data": data},
        "checkpoint": {"every": 500},
    }


def main():
    text = os.environ.get("TRAINYARD_TEXT")
    if not text:
        print("skipped: set TRAINYARD_TEXT to the path of tinyshakespeare.txt (1.1 MB of text, not part of this project)")
        return
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    (directory / "yard").mkdir()
    service = Service(directory / "yard").start()
    rows = []
    try:
        for data in (1, 2):
            start = time.monotonic()
            job = service.submit(spec(pathlib.Path(text).resolve(), data))
            ended = service.wait_end(job, timeout_s=900)
            validation = service.metric(job, "validation_loss")
            rows.append({"ranks": data, "validation loss": validation[2000], "best": min(validation.values()),
                         "nanoGPT's page": 1.88, "goal": 1.90, "seconds": time.monotonic() - start,
                         "weights_sha256": ended["weights_sha256"][:16]})
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report("learn", rows)


main()
