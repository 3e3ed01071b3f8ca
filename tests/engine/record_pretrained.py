#!/usr/bin/env python3
"""Makes small folders as transformers saves models, with the logits that it computes, for test_pretrained.c:

    python3 record_pretrained.py pretrained/

Needs torch and transformers (2.13.0 and 5.23.0 made the committed files). Of each model: config.json and safetensors as
save_pretrained writes them, and beside them logits.f32 (2, 12, vocabulary) of the tokens that tokens() computes, float32.
Weights of 16 bits are rounded first, then computed with in fp32.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY, BATCH, TIME = 48, 2, 12
root = pathlib.Path(sys.argv[1])
torch.manual_seed(1337)


def tokens():
    return torch.tensor([[(7 * b + 11 * t + t * t) % VOCABULARY for t in range(TIME)] for b in range(BATCH)])


def enlarge(model):
    """Weights large enough that logits differ, biases and norms that are not what they start as."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
        for name, p in model.named_parameters():
            if name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")):
                p.add_(1)
    return model.eval()


def save(name, model, dtype=None, **options):
    folder = root / name
    if dtype:
        model = model.to(dtype)
    model.save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        logits = model.float()(tokens()).logits
    (folder / "logits.f32").write_bytes(logits.numpy().astype("<f4").tobytes())
    return folder


gpt = dict(vocab_size=VOCABULARY, n_positions=16, n_embd=24, n_layer=2, n_head=3, bos_token_id=None, eos_token_id=None)
llama = dict(vocab_size=VOCABULARY, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None)

save("gpt2", enlarge(GPT2LMHeadModel(GPT2Config(**gpt))))
# As the files of the bare model are, and as OpenAI's are on the hub: no "transformer." in front, and its masks beside.
folder = save("gpt2-bare-bf16-sharded", enlarge(GPT2LMHeadModel(GPT2Config(**gpt))), torch.bfloat16)
from safetensors import safe_open

with safe_open(folder / "model.safetensors", "pt") as f:
    weights = {k.removeprefix("transformer."): f.get_tensor(k) for k in f.keys()}
weights["h.0.attn.bias"] = torch.ones(1, 1, 16, 16, dtype=torch.uint8)
(folder / "model.safetensors").unlink()
names = sorted(weights)
parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
for file, of in parts.items():
    save_file({k: weights[k].contiguous() for k in of}, folder / file, {"format": "pt"})
index = {"metadata": {"total_size": sum(w.numel() * w.element_size() for w in weights.values())},
         "weight_map": {k: file for file, of in parts.items() for k in of}}
(folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))

save("llama-f16", enlarge(LlamaForCausalLM(LlamaConfig(rms_norm_eps=1e-5, **llama))), torch.float16)
save("llama-tied", enlarge(LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 50000.0}, **llama))))
# Pairs of a head turn by 1, 0.22 and 0.046: the first stays, the second goes smoothly, the third is divided by 8.
save("llama-scaled", enlarge(LlamaForCausalLM(LlamaConfig(rope_parameters={
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}, **llama | {"max_position_embeddings": 512}))))
