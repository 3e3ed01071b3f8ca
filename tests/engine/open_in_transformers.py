#!/usr/bin/env python3
"""Opens an exported folder in transformers and compares its logits: python3 open_in_transformers.py FOLDER LOGITS B T

LOGITS is a file of float32 (B, T, vocabulary), of the tokens that test_pretrained.c computes. Exit status: 0 they agree to
1e-4, 1 they do not (the sentence is on stdout), 77 transformers or torch is not installed."""
import sys

try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError:
    sys.exit(77)

folder, file, batch, time = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
model = AutoModelForCausalLM.from_pretrained(folder).eval()
vocabulary = model.config.vocab_size
tokens = torch.tensor([[(7 * b + 11 * t + t * t) % vocabulary for t in range(time)] for b in range(batch)])
with torch.no_grad():
    theirs = model(tokens).logits
ours = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=torch.float32).reshape(batch, time, vocabulary)
difference = (ours - theirs).abs().max().item()
if not difference <= 1e-4:
    print(f"logits of {folder} differ by {difference} (the largest is {theirs.abs().max().item()})")
    sys.exit(1)
