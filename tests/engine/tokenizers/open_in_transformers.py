#!/usr/bin/env python3
"""Opens a folder's tokenizer in transformers and compares it with ours: python3 open_in_transformers.py FOLDER

FOLDER has tokenizer.json and tokenizer_config.json as they are exported, a config.json of a GPT-2, a text, and the tokens that
we make of it (int32). Exit status: 0 the same tokens, and the text again; 1 not (the sentence is on stdout); 77 transformers is
not installed."""
import array
import pathlib
import sys

try:
    from transformers import AutoTokenizer
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
text = (folder / "text").read_bytes().decode()
ours = array.array("i", (folder / "tokens").read_bytes()).tolist()
tokenizer = AutoTokenizer.from_pretrained(folder)
theirs = tokenizer(text)["input_ids"]
if theirs != ours:
    first = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    print(f"token {first} of {len(ours)} differs: {theirs[first:first + 3]}, not {ours[first:first + 3]}")
    sys.exit(1)
if tokenizer.decode(ours) != text:
    print(f"the text of the tokens differs: {tokenizer.decode(ours)!r}")
    sys.exit(1)
