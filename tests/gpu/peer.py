"""PyTorch on the device that tests/gpu/run measures: products | attention | repeat | step MODEL | first MODEL PRECISION FOLDER |
learn TEXT. Prints one line of JSON last; `said` is what came of it."""

import itertools
import json
import array
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

import no_cuda
import peer_weights
from host import DEVICE, DRY
from models import MODELS, RECIPE, STEPS, UNCOUNTED, family
from peer_models import Gpt, Llama, Resnet50

SHAPES = {"124M": 768, "350M": 1024, "1558M": 1600}  # GPT-2 by its width
ROWS, BATCH, TIME = (65536, 64, 1024) if not DRY else (64, 1, 64)  # gpu_speed's
cuda = torch.cuda if DEVICE == "cuda" else no_cuda


def seconds(work, repeats=20):
    """As gpu_speed: of a call, in the fastest of three runs of `repeats` calls, by the device's clock."""
    best, begun, ended = math.inf, cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    for run in range(4):  # the first chooses and compiles
        begun.record()
        for _ in range(repeats):
            work()
        ended.record()
        cuda.synchronize()
        best = min(best, begun.elapsed_time(ended) / 1e3 / repeats) if run else best
    return best


def products():
    """As gpu_speed names them: the four of a block, with their bias, by F.linear."""
    rows = {}
    for name, width in SHAPES.items():
        for into, out in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            x = torch.randn(ROWS, into, device=DEVICE, dtype=torch.bfloat16)
            w = torch.randn(out, into, device=DEVICE, dtype=torch.bfloat16)
            bias = torch.randn(out, device=DEVICE, dtype=torch.bfloat16)
            gelu = ", GELU" if out == 4 * width else ""  # ours has it in the product, this one has not
            rows[f"{name} {into} -> {out}{gelu}"] = seconds(lambda x=x, w=w, bias=bias: F.linear(x, w, bias))
    return {"rows": rows, "said": "products"}


def qkv(batch, heads, head):
    return [torch.randn(batch, heads, TIME, head, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def attention():
    rows = {}
    for heads, head in ((12, 64), (16, 128)):
        q, k, v = qkv(BATCH, heads, head)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        gradient = torch.randn_like(out)

        def back(out=out, inputs=(q, k, v), gradient=gradient):
            torch.autograd.grad(out, inputs, gradient, retain_graph=True)
        name = f"causal attention, head {head}"
        rows[name] = seconds(lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        rows[f"{name}, backward"] = seconds(back)
    return {"rows": rows, "said": "attention"}


def repeat():
    """Is the backward pass of attention the same to the bit each time? Asked of each of PyTorch's ways."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    said = []
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        q, k, v = qkv(8, 12, 64)
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                gradient = torch.randn_like(out)
                first = torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
                same = all(torch.equal(a, b) for _ in range(20)
                           for a, b in zip(first, torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)))
            said.append(f"{name.lower()}: {'the same bits' if same else 'other bits'} in 20 repeats")
        except RuntimeError as x:
            said.append(f"{name.lower()}: {str(x).splitlines()[0][:80]}")
    return {"said": "; ".join(said)}


# ---- a step ----

def built(model):
    """The model and one batch of it."""
    kind = family(model)
    if kind == "resnet":
        net = Resnet50(model["resnet"]["width"], model["resnet"]["classes"]).to(DEVICE, memory_format=torch.channels_last)
        images = torch.randn(model["batch"], 3, model["side"], model["side"], device=DEVICE)
        return net, (images.to(memory_format=torch.channels_last),
                     torch.randint(model["resnet"]["classes"], (model["batch"],), device=DEVICE))
    sizes = model[kind]
    net = (Gpt if kind == "gpt" else Llama)(**sizes).to(DEVICE)
    return net, tuple(torch.randint(sizes["vocabulary"], (model["batch"], sizes["context"]), device=DEVICE) for _ in range(2))


def compiled(net):
    """Twelve blocks are compiled as one graph; of more, block after block by what one of them is compiled to: the
    whole would take minutes."""
    if not hasattr(net, "head") or len(net.blocks) <= 12:
        return torch.compile(net), "compiled"
    for block in net.blocks:
        block.compile()
    net.head.compile()
    return net, "blocks compiled"


def optimizer_of(net, lr, beta2=0.95):
    decay = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() == 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, beta2), fused=True)


def step_of(run, net, optimizer):
    parameters = list(net.parameters())

    def step(batches):
        for inputs, targets in batches:
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = run(inputs, targets) / len(batches)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def parts_of(batch, count):
    return [tuple(half) for half in zip(*(t.chunk(count) for t in batch))]


def best_attention(model):
    """Leaves PyTorch only the fastest of its attentions for the model's shape, forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if family(model) == "resnet":
        return "no attention"
    sizes, took = model[family(model)], {}
    heads = sizes["heads"], sizes.get("kv_heads", sizes["heads"]), sizes.get("kv_heads", sizes["heads"])
    q, k, v = (torch.randn(model["batch"], h, sizes["context"], sizes["width"] // sizes["heads"], device=DEVICE, dtype=torch.bfloat16,
                           requires_grad=True) for h in heads)
    for name in ("flash", "cudnn"):
        def both():
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads[1] < heads[0])
            torch.autograd.grad(out, (q, k, v), out)
        try:
            with sdpa_kernel(getattr(SDPBackend, f"{name.upper()}_ATTENTION")):
                took[name] = seconds(both, 5)
        except RuntimeError as x:
            print(f"{name}: {x}")
    if not took:
        return "its default attention"
    best = min(took, key=took.get)
    torch.backends.cuda.enable_flash_sdp(best == "flash")
    torch.backends.cuda.enable_cudnn_sdp(best == "cudnn")
    return f"{best} attention of " + ", ".join(f"{name} {s * 1e3:.2f} ms" for name, s in took.items())


def each_seconds(work, count):
    """Of each of `count` calls, without a wait between them."""
    events = [cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:])]


def measured(model, count):
    """STEPS - UNCOUNTED steps of `count` micro-batches, on a batch that stays on the device."""
    begun = time.monotonic()
    net, batch = built(model)
    run, how = compiled(net)
    step, batches = step_of(run, net, optimizer_of(net, 3e-4)), parts_of(batch, count)
    for _ in range(UNCOUNTED):
        step(batches)
    cuda.synchronize()
    warm = time.monotonic() - begun
    pieces = f" in {count} micro-batches" if count > 1 else ""
    return each_seconds(lambda: step(batches), STEPS - UNCOUNTED), f"{how}{pieces}; {warm:.0f} s until it was warm"


def forget_memory():
    """The peaks begin here."""
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()


def steps(name):
    """As few micro-batches as its memory has room for."""
    model, count = MODELS[name], 1
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    attention_ = best_attention(model)
    forget_memory()
    while True:
        try:
            took, how = measured(model, count)
            break
        except torch.OutOfMemoryError:
            count *= 2
        if count > 8:
            sys.exit(f"{name}: no room for an eighth of the batch")
        torch._dynamo.reset()
        forget_memory()
    return {"times": took, "allocated": cuda.max_memory_allocated(), "reserved": cuda.max_memory_reserved(),
            "said": f"{how}, {attention_}"}


# ---- the first step, from weights that both sides have ----

FIRST_BATCH = 8


def first(name, precision, folder):
    """Loss and gradient norm of the first step, uncompiled. Writes the weights to FOLDER, and its one window of tokens: all samples
    of the batch are this window."""
    sizes, folder = MODELS[name]["gpt"], pathlib.Path(folder)
    torch.set_float32_matmul_precision("highest")
    net = Gpt(**sizes).to(DEVICE)
    peer_weights.write(net, folder)
    window = torch.randint(sizes["vocabulary"], (sizes["context"] + 1,))
    (folder / "tokens.bin").write_bytes(array.array("H", window.tolist()).tobytes())
    rows = window.to(DEVICE).expand(FIRST_BATCH, -1)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
        loss = net(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), math.inf)
    return {"loss": loss.item(), "grad_norm": norm.item(), "batch": FIRST_BATCH, "said": f"loss {loss.item():.5f}"}


# ---- nanoGPT's recipe ----

def rate_at(step):
    r = RECIPE
    if step < r["warmup"]:
        return r["lr"] * (step + 1) / (r["warmup"] + 1)
    done = (step - r["warmup"]) / (r["steps"] - r["warmup"])
    return r["min_lr"] + 0.5 * (1 + math.cos(math.pi * done)) * (r["lr"] - r["min_lr"])


def windows(tokens, generator):
    """Batches of windows that begin anywhere, and their next tokens."""
    context, batch = RECIPE["gpt"]["context"], RECIPE["batch"]
    offsets = torch.arange(context + 1, device=DEVICE)
    while True:
        first = torch.randint(len(tokens) - context, (batch, 1), device=DEVICE, generator=generator)
        window = tokens[first + offsets]
        yield window[:, :-1].contiguous(), window[:, 1:].contiguous()


def learn(path):
    """All of the text stays on the device: nothing is loaded within a step."""
    begun = time.monotonic()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    letters = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([letters[c] for c in text], device=DEVICE)
    cut = int(0.9 * len(tokens))
    net = Gpt(vocabulary=len(letters), **RECIPE["gpt"]).to(DEVICE)
    run = torch.compile(net)
    optimizer = optimizer_of(net, RECIPE["lr"], RECIPE["beta2"])
    step, best, evaluating = step_of(run, net, optimizer), math.inf, 0.0
    generator = torch.Generator(device=DEVICE).manual_seed(1337)
    batches, first_done = windows(tokens[:cut], generator), None
    for number in range(RECIPE["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(number)
        step([next(batches)])
        if number == UNCOUNTED:
            cuda.synchronize()
            first_done = time.monotonic()
        if (number + 1) % RECIPE["every"] == 0:
            cuda.synchronize()
            paused = time.monotonic()
            net.eval()
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                losses = [run(*b) for b in itertools.islice(windows(tokens[cut:], generator), RECIPE["batches"])]
            best = min(best, float(torch.stack(losses).mean()))
            net.train()
            evaluating += time.monotonic() - paused
    cuda.synchronize()
    ended = time.monotonic()
    training = (ended - first_done - evaluating) / (RECIPE["steps"] - UNCOUNTED - 1)
    return {"loss": best, "seconds": ended - begun, "step": training,
            "said": f"validation loss {best:.4f}; {ended - begun:.1f} s, of it steps {training * RECIPE['steps']:.1f} s"}


if __name__ == "__main__":
    torch.manual_seed(1)
    said = {"products": products, "attention": attention, "repeat": repeat, "step": steps, "first": first, "learn": learn}[sys.argv[1]](*sys.argv[2:])
    said["said"] = f"PyTorch {torch.__version__} on {cuda.get_device_name()}: {said['said']}"
    print(json.dumps(said))
