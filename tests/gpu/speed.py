"""How fast it is, beside PyTorch on the same device."""

import json

import host
import models


def our_speed():
    out = host.run([host.build() / "tests/gpu_speed"])
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    (host.REPORTS / "kernels.txt").write_text(out)
    rates = [float(line.split()[-2]) for line in out.splitlines() if line.endswith("TFLOP/s") and "->" in line]
    return f"bf16 products: {min(rates):.0f} to {max(rates):.0f} TFLOP/s; all of it in bench/gpu/kernels.txt"


def our_step():
    path = host.WORK / "spec-124M.json"
    job = models.spec(models.text(), 12, "cuda", "bf16", layers=12, heads=12, width=768, context=1024)
    job["train"] |= {"global_batch": 64, "micro_batch": 64, "lanes": 1, "numerics": "fast"}
    path.write_text(json.dumps(job))
    rows = [json.loads(line) for line in host.run([host.build() / "bin/trainyard-train", path, "--json"]).splitlines()
            if line.startswith("{")]
    best = min(r["step_seconds"] for r in rows if "step_seconds" in r)
    return f"{best * 1e3:.1f} ms a step, {64 * 1024 / best:,.0f} tokens/s (a character tokenizer: a small head)"


PARTS = [
    ("our kernels at GPT-2's shapes", our_speed),
    ("products of 124M, 350M and 1558M, by PyTorch", host.peer("products")),
    ("attention, by PyTorch", host.peer("attention")),
    ("our step of GPT-2 124M's blocks, batch 64", our_step),
    ("a step of GPT-2 124M, batch 64, compiled, by PyTorch", host.peer("gpt2")),
]
