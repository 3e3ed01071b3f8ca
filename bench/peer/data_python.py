"""The peers of bench/data.py, each on one thread: `tokenizers` and Pillow. Prints one JSON object like bench_data.

    data_python.py text TOKENIZER FILE | images FOLDER SIZE
"""

import json
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def text(tokenizer, path):
    from tokenizers import Tokenizer

    t, s, n = Tokenizer.from_file(tokenizer), pathlib.Path(path).read_text(), 0
    begun = time.perf_counter()
    for at in range(0, len(s), 1 << 20):
        n += len(t.encode(s[at:at + (1 << 20)], add_special_tokens=False).ids)
    return {"tokens": n, "seconds": time.perf_counter() - begun}


def images(folder, size):
    from PIL import Image

    begun, n, size = time.perf_counter(), 0, int(size)
    for path in sorted(pathlib.Path(folder).glob("*/*")):
        im = Image.open(path).convert("RGB")
        short = min(im.size)
        w, h = (size * side // short for side in im.size)
        im = im.resize((w, h), Image.BILINEAR)
        x, y = (w - size) // 2, (h - size) // 2
        im.crop((x, y, x + size, y + size)).tobytes()
        n += 1
    return {"images": n, "seconds": time.perf_counter() - begun}


print(json.dumps({"text": text, "images": images}[sys.argv[1]](*sys.argv[2:])))
