#!/usr/bin/env python3
"""weights_sha256 of a checkpoint's step folder, from its safetensors files alone.

    python3 weights_sha256.py STEP_FOLDER        prints 64 hexadecimal digits

Definition: SHA-256 over one line a tensor, sorted by name: "NAME DTYPE [D0,D1,...] DIGEST\\n", where DIGEST is SHA-256
over the SHA-256 digests of the tensor's 4 KiB chunks. Tensors named "optimizer.*" and "ema.*" are state and no weights. A tensor
that several ranks share is stored in pieces "NAME[FIRST:END]", with its shape in __metadata__ under "shape:NAME".
Written apart from the C code, on purpose: it shares nothing with it but this definition."""

import hashlib
import json
import pathlib
import re
import struct
import sys

CHUNK = 4096


def pieces_of(path):
    """Yields (name, dtype, whole shape, first element, bytes) for each tensor or piece in one file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        for stored, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            cut = re.fullmatch(r"([^\[]+)\[(\d+):(\d+)\]", stored)
            if cut:
                name = cut.group(1)
                yield name, entry["dtype"], json.loads(metadata["shape:" + name]), int(cut.group(2)), data
            else:
                yield stored, entry["dtype"], entry["shape"], 0, data


def weights_sha256(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        for name, dtype, shape, first, data in pieces_of(path):
            if not name.startswith(("optimizer.", "ema.")):
                tensors.setdefault(name, (dtype, shape, []))[2].append((first, data))
    lines = hashlib.sha256()
    for name in sorted(tensors):
        dtype, shape, pieces = tensors[name]
        data = b"".join(data for _, data in sorted(pieces))
        chunks = b"".join(hashlib.sha256(data[i : i + CHUNK]).digest() for i in range(0, len(data), CHUNK))
        digest = hashlib.sha256(chunks).hexdigest()
        lines.update(f"{name} {dtype} [{','.join(map(str, shape))}] {digest}\n".encode())
    return lines.hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(weights_sha256(sys.argv[1]))
