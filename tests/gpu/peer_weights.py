"""The weights of a PyTorch Gpt as a Hugging Face folder, which `train.init_from` reads. Written here by hand: a host with a GPU
need not have transformers or safetensors."""

import json
import struct

PARTS = {"norm1": "ln_1", "norm2": "ln_2", "qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}


def named(model):
    """(name in a folder, tensor in fp32); GPT-2's folders keep the weights of linear layers as (in, out)."""
    yield "wte.weight", model.tokens.weight
    yield "wpe.weight", model.positions.weight
    for number, block in enumerate(model.blocks):
        for ours, theirs in PARTS.items():
            layer = getattr(block, ours)
            yield f"h.{number}.{theirs}.weight", layer.weight.t() if layer.weight.dim() == 2 else layer.weight
            yield f"h.{number}.{theirs}.bias", layer.bias
    yield "ln_f.weight", model.head.norm.weight
    yield "ln_f.bias", model.head.norm.bias


def write(model, folder):
    """config.json and model.safetensors; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    heads, (vocabulary, width), context = model.blocks[0].heads, model.tokens.weight.shape, model.positions.weight.shape[0]
    (folder / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "n_layer": len(model.blocks), "n_head": heads, "n_embd": width, "n_positions": context,
        "vocab_size": vocabulary}))
    header, data, at = {}, [], 0
    for name, tensor in named(model):
        bytes_ = tensor.detach().float().contiguous().cpu().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(bytes_)]}
        data.append(bytes_)
        at += len(bytes_)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(data)
