"""GPT-2, Llama and ResNet-50 as one writes them in PyTorch to be fast: scaled_dot_product_attention, fused norms, nothing
that torch.compile breaks its graph at."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        drop = self.dropout if self.training else 0.0
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        x = x + F.dropout(self.out(a.transpose(1, 2).reshape(b, t, c)), drop)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), drop)


class Head(nn.Module):
    """The last norm, the product with the embedding's matrix, and the loss."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x, weight, targets):
        logits = F.linear(self.norm(x), weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.head = Head(nn.LayerNorm(width))
        initial(self, layers)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = F.dropout(x, self.dropout if self.training else 0.0)
        for block in self.blocks:
            x = block(x)
        return self.head(x, self.tokens.weight, targets)


def initial(model, layers):
    """GPT-2's: 0.02, and less where a branch joins the residual."""
    for name, p in model.named_parameters():
        if p.dim() > 1:
            joins = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(p, 0, 0.02 / (2 * layers) ** 0.5 if joins else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def turn(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-b, a), dim=-1) * sine


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv = nn.Linear(width, width + 2 * kv_heads * (width // heads), bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x, cosine, sine):
        b, t, c = x.shape
        head = c // self.heads
        q, k, v = (y.view(b, t, -1, head).transpose(1, 2)
                   for y in self.qkv(self.norm1(x)).split((c, self.kv_heads * head, self.kv_heads * head), 2))
        a = F.scaled_dot_product_attention(turn(q, cosine, sine), turn(k, cosine, sine), v, is_causal=True,
                                           enable_gqa=self.kv_heads < self.heads)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, layers, heads, kv_heads, width, hidden, context, vocabulary, rope_theta, tied_embeddings):
        super().__init__()
        assert tied_embeddings
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers))
        self.head = Head(nn.RMSNorm(width, 1e-5))
        half = width // heads // 2
        angles = torch.outer(torch.arange(context).float(), rope_theta ** (-torch.arange(half).float() / half))
        self.register_buffer("cosine", torch.cat((angles.cos(), angles.cos()), dim=1).bfloat16(), persistent=False)
        self.register_buffer("sine", torch.cat((angles.sin(), angles.sin()), dim=1).bfloat16(), persistent=False)
        initial(self, layers)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(x, self.tokens.weight, targets)


class Bottleneck(nn.Module):
    def __init__(self, width, inner, stride):
        super().__init__()
        out = 4 * inner
        self.conv1, self.bn1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Identity() if stride == 1 and width == out else nn.Sequential(
            nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.short(x))


class Resnet50(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, before = [], width
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(before, width << stage, 2 if stage and i == 0 else 1))
                before = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(before, classes)

    def forward(self, images, labels):
        return F.cross_entropy(self.fc(self.blocks(self.stem(images)).mean((2, 3))).float(), labels)
