"""The jobs that the parts train."""

import json

import host


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


def losses(steps, accelerator, precision):
    path = host.WORK / f"spec-{accelerator}-{precision}-{steps}.json"
    path.write_text(json.dumps(spec(text(), steps, accelerator, precision)))
    out = host.run([host.build() / "bin/trainyard-train", path, "--json"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [r["loss"] for r in rows if "loss" in r]
