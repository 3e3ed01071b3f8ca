"""Reading data on one thread, as ratios: byte-pair tokens beside the `tokenizers` package, images beside Pillow.

TRAINYARD_TORCH names a Python that has the two packages (else the peers' columns stay empty). Each run starts a process of its
own; the fastest of three counts. Tokens must be as many as the peer's.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from report import BIN, ROOT, report

TOKENIZERS = ROOT / "tests" / "engine" / "tokenizers"


def headers(path, n):
    """C headers as ASCII text: what every such machine has."""
    with open(path, "wb") as f:
        for header in sorted(pathlib.Path("/usr/include").rglob("*.h")):
            if header.is_file():
                f.write(bytes(c for c in header.read_bytes() if c in (9, 10) or 32 <= c < 127))
            if f.tell() > n:
                return


def fastest(command):
    runs = [subprocess.run(command, capture_output=True, text=True) for _ in range(3)]
    if any(r.returncode for r in runs):
        return None
    return min((json.loads(r.stdout) for r in runs), key=lambda r: r["seconds"])


def row(what, unit, amount, arguments):
    ours = fastest([BIN / "bench_data", *arguments])
    if not ours:
        raise SystemExit(f"bench_data {' '.join(map(str, arguments))} failed")
    python = os.environ.get("TRAINYARD_TORCH")
    theirs = fastest([python, ROOT / "bench" / "peer" / "data_python.py", *arguments]) if python else None
    for same in ("tokens", "images"):
        if theirs and ours.get(same) != theirs.get(same):
            raise SystemExit(f"{what}: {ours[same]} {same}, the peer has {theirs[same]}")
    n = amount(ours)
    return {"what": what, "unit": unit, "ours": n / ours["seconds"], "peer": n / theirs["seconds"] if theirs else None,
            "ours / peer": theirs["seconds"] / ours["seconds"] if theirs else None}


def main():
    with tempfile.TemporaryDirectory() as place:
        text, shapes = pathlib.Path(place, "headers.txt"), pathlib.Path(place, "shapes")
        headers(text, 8_000_000)
        subprocess.run([sys.executable, ROOT / "tests" / "shapes.py", shapes, "100", "1"], check=True, stdout=subprocess.DEVNULL)
        megabytes = lambda r: r["bytes"] / 1e6
        rows = [row(f"text, {name}'s pattern, 900 tokens", "MB/s", megabytes, ["text", TOKENIZERS / f"{name}.json", text])
                for name in ("gpt2", "llama3")]
        rows += [row(f"PNG 64x64 to {size}x{size}", "images/s", lambda r: r["images"], ["images", shapes / "train", str(size)])
                 for size in (64, 32)]
        report("data", rows, ["Ours reads every image twice: decoded, and once more for the digest of the data."])


main()
