#!/usr/bin/env python3
"""Records what PyTorch makes of a small model of each family: ten AdamW steps, and the gradients of the first.

    python3 tests/engine/record_models.py tests/engine/models      (PyTorch 2.13, transformers; once, files are committed)

FAMILY.f32 holds little-endian fp32 values: ten losses in fp32, ten losses with bf16 weights and activations over fp32
masters, and the fp32 gradients of step 1, parameter by parameter in the order of their names' bytes. Parameters, inputs
and hyperparameters are computed alike here and in test_models_pytorch.c.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

STEPS, BATCH = 10, 4


def hashed(n, which):
    """n numbers in [-1, 1), the same in C."""
    u = (np.arange(n, dtype=np.uint64) * 2654435761 + (which + 1) * 2246822519) & 0xFFFFFFFF
    u ^= u >> 15
    u = (u * 2654435761) & 0xFFFFFFFF
    u ^= u >> 13
    return torch.from_numpy((u.astype(np.float64) / 2**31 - 1).astype(np.float32))


def integers(n, step, modulus):
    i = np.arange(n, dtype=np.int64)
    return torch.from_numpy((7 * i * i + 3 * i + 5 * step) % modulus)


def images(shape, step):
    return (integers(int(np.prod(shape)), step, 251).to(torch.float32) / 125 - 1).view(shape)


def initial(shapes):
    """Norms' weights around one (0.15 for a bottleneck's last, so that rounding does not grow over its sixteen blocks),
    vectors within 0.1, matrices within 1 / sqrt(length of a row)."""
    values = {}
    for which, name in enumerate(sorted(shapes)):
        shape, one = shapes[name]
        n = int(np.prod(shape))
        size = 1 / np.sqrt(n / shape[0]) if len(shape) > 1 else 0.1
        values[name] = (np.float32(0.15 if "bn3" in name and one else one) + hashed(n, which) * np.float32(size)).view(shape)
    return values


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


class Gpt:
    LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 2, 2, 16, 8, 33

    def __init__(self):
        w = self.WIDTH
        s = self.shapes = {"wte.weight": ((self.VOCABULARY, w), False), "wpe.weight": ((self.CONTEXT, w), False)}
        norms = ["ln_f"]
        for i in range(self.LAYERS):
            norms += [f"h.{i}.ln_1", f"h.{i}.ln_2"]
            for name, a, b in (("attn.c_attn", w, 3 * w), ("attn.c_proj", w, w), ("mlp.c_fc", w, 4 * w), ("mlp.c_proj", 4 * w, w)):
                s[f"h.{i}.{name}.weight"] = ((a, b), False)  # inputs first, as GPT-2's files have it
                s[f"h.{i}.{name}.bias"] = ((b,), False)
        for norm in norms:
            s[norm + ".weight"] = ((w,), True)
            s[norm + ".bias"] = ((w,), False)
        self.shapes = {"transformer." + name: shape for name, shape in s.items()}

    def loss(self, p, step, cast):
        w = self.WIDTH
        p = {name.removeprefix("transformer."): v for name, v in p.items()}
        window = integers(BATCH * (self.CONTEXT + 1), step, self.VOCABULARY).view(BATCH, self.CONTEXT + 1)

        def norm(x, name):
            return F.layer_norm(x, (w,), p[name + ".weight"], p[name + ".bias"], 1e-5)

        def product(x, name):
            return F.linear(x, p[name + ".weight"].t(), p[name + ".bias"])

        x = p["wte.weight"][window[:, :-1]] + p["wpe.weight"]
        for h in (f"h.{i}." for i in range(self.LAYERS)):
            q, k, v = (t.view(BATCH, self.CONTEXT, self.HEADS, w // self.HEADS).transpose(1, 2)
                       for t in product(norm(x, h + "ln_1"), h + "attn.c_attn").split(w, 2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, self.CONTEXT, w)
            x = x + product(a, h + "attn.c_proj")
            x = x + product(F.gelu(product(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
        logits = F.linear(norm(x, "ln_f"), p["wte.weight"])
        return F.cross_entropy(logits.float().view(-1, self.VOCABULARY), window[:, 1:].reshape(-1))


class Llama:
    LAYERS, HEADS, KV, WIDTH, HIDDEN, CONTEXT, VOCABULARY = 2, 4, 2, 32, 48, 8, 33

    def __init__(self, tied):
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=self.VOCABULARY, hidden_size=self.WIDTH, intermediate_size=self.HIDDEN,
            num_hidden_layers=self.LAYERS, num_attention_heads=self.HEADS, num_key_value_heads=self.KV,
            max_position_embeddings=self.CONTEXT, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=tied,
        )
        self.model = LlamaForCausalLM(config).train()
        self.shapes = {n: (tuple(t.shape), "norm" in n) for n, t in self.model.named_parameters()}

    def loss(self, p, step, cast):
        window = integers(BATCH * (self.CONTEXT + 1), step, self.VOCABULARY).view(BATCH, self.CONTEXT + 1)
        out = torch.func.functional_call(self.model, p, (window[:, :-1],), {"use_cache": False})
        return F.cross_entropy(out.logits.float().view(-1, self.VOCABULARY), window[:, 1:].reshape(-1))


class Classifier:
    def loss(self, p, step, cast):
        labels = (torch.arange(self.IMAGES[0]) * 3 + step) % self.CLASSES
        return F.cross_entropy(self.logits(p, cast(images(self.IMAGES, step))).float(), labels)


class Mlp(Classifier):
    CLASSES, HIDDEN, IMAGES = 5, (16, 12), (BATCH, 1, 6, 8)

    def __init__(self):
        sizes = (48, *self.HIDDEN, self.CLASSES)
        self.shapes = {}
        for i in range(len(sizes) - 1):
            self.shapes[f"layers.{i}.weight"] = ((sizes[i + 1], sizes[i]), False)
            self.shapes[f"layers.{i}.bias"] = ((sizes[i + 1],), False)

    def logits(self, p, x):
        x = x.flatten(1)
        for i in range(len(self.HIDDEN)):
            x = F.gelu(linear(p, f"layers.{i}", x), approximate="tanh")
        return linear(p, f"layers.{len(self.HIDDEN)}", x)


class Resnet(Classifier):
    CLASSES = 5

    def __init__(self, batch, blocks, bottleneck, imagenet, width, side):
        self.blocks, self.bottleneck, self.imagenet, self.width = blocks, bottleneck, imagenet, width
        self.IMAGES = (batch, 3, side, side)
        self.expansion = 4 if bottleneck else 1
        self.shapes = {}
        self.conv("conv1", 3, width, 7 if imagenet else 3)
        self.norm("bn1", width)
        c = width
        for s, n in enumerate(blocks):
            for i in range(n):
                inner, out = width << s, (width << s) * self.expansion
                base = f"layer{s + 1}.{i}."
                sizes = [(c, inner, 1), (inner, inner, 3), (inner, out, 1)] if bottleneck else [(c, inner, 3), (inner, out, 3)]
                for j, (a, b, k) in enumerate(sizes):
                    self.conv(f"{base}conv{j + 1}", a, b, k)
                    self.norm(f"{base}bn{j + 1}", b)
                if c != out or (s > 0 and i == 0):
                    self.conv(base + "downsample.0", c, out, 1)
                    self.norm(base + "downsample.1", out)
                c = out
        self.shapes["fc.weight"] = ((self.CLASSES, c), False)
        self.shapes["fc.bias"] = ((self.CLASSES,), False)

    def conv(self, name, a, b, k):
        self.shapes[name + ".weight"] = ((b, a, k, k), False)

    def norm(self, name, c):
        self.shapes[name + ".weight"] = ((c,), True)
        self.shapes[name + ".bias"] = ((c,), False)

    def logits(self, p, x):
        def conv(x, name, stride=1):
            w = p[name + ".weight"]
            return F.conv2d(x, w, stride=stride, padding=w.shape[2] // 2)

        def norm(x, name):
            return F.batch_norm(x, None, None, p[name + ".weight"], p[name + ".bias"], training=True, eps=1e-5)

        x = F.relu(norm(conv(x, "conv1", 2 if self.imagenet else 1), "bn1"))
        if self.imagenet:
            x = F.max_pool2d(x, 3, 2, 1)
        for s, n in enumerate(self.blocks):
            for i in range(n):
                base, stride = f"layer{s + 1}.{i}.", 2 if s > 0 and i == 0 else 1
                strides = (1, stride, 1) if self.bottleneck else (stride, 1)
                y = x
                for j, st in enumerate(strides):
                    y = norm(conv(y, f"{base}conv{j + 1}", st), f"{base}bn{j + 1}")
                    if j + 1 < len(strides):
                        y = F.relu(y)
                if base + "downsample.0.weight" in p:
                    x = norm(conv(x, base + "downsample.0", stride), base + "downsample.1")
                x = F.relu(y + x)
        return linear(p, "fc", x.mean((2, 3)))


class Vit(Classifier):
    CLASSES, LAYERS, HEADS, WIDTH, PATCH, HIDDEN, IMAGES = 5, 2, 2, 16, 4, 24, (BATCH, 3, 8, 12)

    def __init__(self):
        w, self.tokens = self.WIDTH, 1 + (8 // 4) * (12 // 4)
        s = self.shapes = {
            "class_token": ((1, 1, w), False),
            "conv_proj.weight": ((w, 3, self.PATCH, self.PATCH), False),
            "conv_proj.bias": ((w,), False),
            "encoder.pos_embedding": ((1, self.tokens, w), False),
            "encoder.ln.weight": ((w,), True),
            "encoder.ln.bias": ((w,), False),
            "heads.head.weight": ((self.CLASSES, w), False),
            "heads.head.bias": ((self.CLASSES,), False),
        }
        for i in range(self.LAYERS):
            h = f"encoder.layers.encoder_layer_{i}."
            for norm in ("ln_1", "ln_2"):
                s[h + norm + ".weight"] = ((w,), True)
                s[h + norm + ".bias"] = ((w,), False)
            s[h + "self_attention.in_proj_weight"] = ((3 * w, w), False)
            s[h + "self_attention.in_proj_bias"] = ((3 * w,), False)
            for name, a, b in (("self_attention.out_proj", w, w), ("mlp.0", w, self.HIDDEN), ("mlp.3", self.HIDDEN, w)):
                s[h + name + ".weight"] = ((b, a), False)
                s[h + name + ".bias"] = ((b,), False)

    def logits(self, p, x):
        w = self.WIDTH

        def norm(x, name):
            return F.layer_norm(x, (w,), p[name + ".weight"], p[name + ".bias"], 1e-6)

        x = F.conv2d(x, p["conv_proj.weight"], p["conv_proj.bias"], stride=self.PATCH).flatten(2).transpose(1, 2)
        x = torch.cat((p["class_token"].expand(BATCH, 1, w), x), 1) + p["encoder.pos_embedding"]
        for i in range(self.LAYERS):
            h = f"encoder.layers.encoder_layer_{i}."
            qkv = F.linear(norm(x, h + "ln_1"), p[h + "self_attention.in_proj_weight"], p[h + "self_attention.in_proj_bias"])
            q, k, v = (t.view(BATCH, self.tokens, self.HEADS, w // self.HEADS).transpose(1, 2) for t in qkv.split(w, 2))
            a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, self.tokens, w)
            x = x + linear(p, h + "self_attention.out_proj", a)
            m = F.gelu(linear(p, h + "mlp.0", norm(x, h + "ln_2")))
            x = x + linear(p, h + "mlp.3", m)
        return linear(p, "heads.head", norm(x, "encoder.ln")[:, 0])


class Unrolled:
    ITERATIONS, CHANNELS, LAYERS, SIDE = 3, 6, 3, 8

    def __init__(self, shared):
        self.shared = shared
        self.shapes = {}
        for base in ["update."] if shared else [f"updates.{i}." for i in range(self.ITERATIONS)]:
            self.shapes[base + "eta"] = ((1,), True)
            c = 1
            for j in range(self.LAYERS):
                out = 1 if j == self.LAYERS - 1 else self.CHANNELS
                self.shapes[f"{base}net.{j}.weight"] = ((out, c, 3, 3), False)
                self.shapes[f"{base}net.{j}.bias"] = ((out,), False)
                c = out

    def loss(self, p, step, cast):
        shape = (BATCH, 1, self.SIDE, self.SIDE)
        reference = images(shape, step)
        re, im = images((BATCH, 2, self.SIDE, self.SIDE), step + 1).split(1, 1)
        mask = (integers(reference.numel(), step + 2, 3).view(shape) == 0).to(torch.float32)
        y = torch.complex(re, im) * mask
        x = cast(torch.fft.ifft2(y, norm="ortho").real)
        for i in range(self.ITERATIONS):
            base = "update." if self.shared else f"updates.{i}."
            residual = torch.fft.ifft2(mask * torch.fft.fft2(x.float(), norm="ortho") - y, norm="ortho").real
            net = x
            for j in range(self.LAYERS):
                net = F.conv2d(net, p[f"{base}net.{j}.weight"], p[f"{base}net.{j}.bias"], padding=1)
                net = net if j == self.LAYERS - 1 else F.relu(net)
            x = cast(x.float() - p[base + "eta"].float() * residual + net.float())
        return F.mse_loss(x.float(), reference)


def train(model, rate, element):
    """Losses, and the gradients of step 1. Masters are fp32; the model sees them in `element`."""
    cast = lambda t: t.to(element)
    masters = {n: v.clone().requires_grad_() for n, v in initial(model.shapes).items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in masters.values() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in masters.values() if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=rate, betas=(0.9, 0.99), eps=1e-8,
    )
    losses, first = [], None
    for step in range(STEPS):
        weights = {n: cast(p.detach()).requires_grad_() for n, p in masters.items()}
        loss = model.loss(weights, step, cast)
        loss.backward()
        for n, p in masters.items():
            p.grad = weights[n].grad.float()
        first = first or [masters[n].grad.flatten().clone() for n in sorted(masters)]
        losses.append(loss.item())
        optimizer.step()
    return losses, first


def main():
    families = {
        "gpt": (Gpt, 1e-2),
        "llama": (lambda: Llama(False), 1e-2),
        "llama_tied": (lambda: Llama(True), 1e-2),
        "mlp": (Mlp, 1e-2),
        "resnet18": (lambda: Resnet(8, (2, 2, 2, 2), False, False, 3, 32), 1e-4),
        "resnet50": (lambda: Resnet(8, (3, 4, 6, 3), True, True, 2, 64), 1e-4),
        "vit": (Vit, 3e-3),
        "unrolled": (lambda: Unrolled(False), 1e-2),
        "unrolled_shared": (lambda: Unrolled(True), 1e-2),
    }
    for name, (make, rate) in families.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        model = make()
        exact, first = train(model, rate, torch.float32)
        rounded, _ = train(model, rate, torch.bfloat16)
        values = torch.cat([torch.tensor(exact), torch.tensor(rounded)] + first)
        values.numpy().astype("<f4").tofile(f"{sys.argv[1]}/{name}.f32")
        print(name, values.numel(), np.round(exact, 4), np.round(rounded, 4))


if __name__ == "__main__":
    main()
