"""What must be right on a device."""

import difflib
import json
import os
import platform
import re
import shutil
import subprocess
import time

import full_size
import host
import measured
import models

NCCL = {  # ranks on one GPU: each is a host of its own, and all talk over the loopback
    "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0", "NCCL_RAS_ENABLE": "0",
    "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MAX_CTAS": "2", "NCCL_BUFFSIZE": "1048576",
}
REPEATS = 3 if host.DRY else 100
SEEDS_S = 60  # that further shapes are drawn for
ROUND_S = 170  # that one seed of all programs may take
MODELS_S = 200  # that the recorded models may take: cuDNN looks for an engine for each convolution of four
RANKS_S = 90
SANITIZER_S = 90
# Products without cuDNN, which would compile dozens of kernels: with their own. Workspaces run none.
SANITIZED = ["gpu_elements", "gpu_rows", "gpu_images", "gpu_products"]
# A case asks for more memory than there is, and is refused; else the programs themselves check what each call returns.
SANITIZER_OPTIONS = {"memcheck": ["--report-api-errors", "no"]}
NUMBERS = ("loss", "grad_norm")
FAST_TOLERANCE = 1e-2  # engines may add in any order


def last_line(out):
    return out.strip().splitlines()[-1]


# ---- the machine ----

def asked(*command):
    """What a program of the system says; why it says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20)
    except (OSError, subprocess.TimeoutExpired) as x:
        return str(x)
    return (done.stdout + done.stderr).strip()


def machine():
    """What a figure or a failure may depend on, in bench/gpu/facts.txt. Fails if the plugin lacks a library."""
    plugin, env = host.build() / host.PLUGIN, host.environment()
    linked = subprocess.run(["ldd", plugin], capture_output=True, text=True, env=env).stdout if plugin.exists() else "no plugin"
    facts = {"nvidia-smi": asked("nvidia-smi"), "clocks": asked("nvidia-smi", "-q", "-d", "CLOCK,POWER"),
             "system": " ".join(platform.uname()), "processors": str(os.cpu_count()), "memory": asked("free", "-g"),
             "nvcc": asked("nvcc", "--version"), "compute-sanitizer": asked(host.sanitizer() or "compute-sanitizer", "--version"),
             "PyTorch": str(host.torch_version()), "libraries": "\n".join(env["LD_LIBRARY_PATH"].split(":")), "plugin": linked}
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    host.replace(host.REPORTS / "facts.txt", "".join(f"######## {name}\n{said}\n" for name, said in facts.items()))
    missing = [line.strip() for line in linked.splitlines() if "not found" in line]
    if missing:
        raise host.Failed("the plugin lacks libraries\n" + "\n".join(missing))
    return f"{os.cpu_count()} processors, PyTorch {host.torch_version()}, commit {host.commit()}; the rest in bench/gpu/facts.txt"


def describe():
    if host.DRY:
        raise host.Skip("a dry run has no device")
    versions, _, description = host.run([host.python(), host.ROOT / "tests/gpu/describe.py"]).partition("\n")
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    (host.REPORTS / "device.json").write_text(description)
    return f"{versions}; bench/gpu/device.json, for machines without a device"


# ---- kernels ----

def program(name):
    return host.build() / "tests" / name


def cases(seed):
    """Shapes of its own for each seed; each is made twice on the device and once on the CPU, into memory full of NaNs."""
    host.run_together([(seconds, [program(name)]) for name, seconds in host.CASES.items()], TRAINYARD_SEED=str(seed))


def kernels():
    cases(1)
    return f"{len(host.CASES)} programs, seed 1"


def own_kernels():
    host.run([program("gpu_products")], host.CASES["gpu_products"], without="cudnn", TRAINYARD_SEED="1")
    return "attention and convolutions, seed 1"


def more_kernels():
    begun, seed = time.monotonic(), 2
    cases(seed)
    while time.monotonic() - begun < SEEDS_S and host.left() > ROUND_S:
        seed += 1
        cases(seed)
    return f"{len(host.CASES)} programs, seeds 2 to {seed}"


def sanitizer(tool, work):
    def part():
        path = host.sanitizer()
        if not path:
            raise host.Skip("no compute-sanitizer in PATH or /usr/local/cuda/bin")
        return work((path, "--error-exitcode", "9", "--print-limit", "20", "--tool", tool, *SANITIZER_OPTIONS.get(tool, [])))
    return host.takes(SANITIZER_S, SANITIZER_S + 30, part)


def case_under(name):
    def work(prefix):
        host.run([*prefix, program(name)], SANITIZER_S, without="cudnn", TRAINYARD_SEED="1")
        return "seed 1"
    return work


def steps_under(prefix):
    """Of a whole engine, whose arena is the device's own memory; the cases' is the host's, of which initcheck sees nothing."""
    path = models.write("spec-sanitizer", models.spec(models.text(), 2, host.DEVICE, "bf16", layers=2, width=128))
    host.run([*prefix, host.build() / "bin/trainyard-train", path, "--json"], SANITIZER_S, GOMP_SPINCOUNT="1000")
    return "2 steps of a small GPT in bf16"


# ---- models ----

def recorded_steps():
    """What PyTorch came to is in the repository (tests/engine/record_*.py): the programs ask the device for the same."""
    out = "\n".join(host.run_each([(MODELS_S, [program(name)]) for name in host.MODELS], TRAINYARD_TEST_DEVICE=host.DEVICE,
                                  TRAINYARD_SOURCE=str(host.ROOT), REPEATS=str(REPEATS), CMOCKA_MESSAGE_OUTPUT="TAP"))
    said = re.findall(r"^ok \d+ - (\w+)$", out, re.MULTILINE)
    agree = sum("agree" in name for name in said)
    repeat = sum("repeats_to_the_bit" in name for name in said)
    if agree < 20 or repeat < 9:
        raise host.Failed(f"only these were asked: {', '.join(said)}")
    return (f"{agree} trials of ten steps agree: losses to 1e-4 in fp32, to 1e-2 in bf16, first gradients to 1e-4; {repeat} "
            f"families' first step {REPEATS} times to the same bits, in fp32 and bf16")


def steps_as_on_cpu(precision, tolerance):
    def part():
        cpu, device = models.losses(10, "cpu", precision), models.losses(10, host.DEVICE, precision)
        worst = max(abs(a - b) / a for a, b in zip(cpu, device))
        if len(cpu) != 10 or len(device) != 10 or not worst <= tolerance:
            raise host.Failed(f"losses on cpu {cpu}, on {host.DEVICE} {device}")
        return f"10 steps: losses at most {worst:.1e} apart"
    return part


def same_bits_again():
    """At full size: batches, products and attention whose sums a device cuts in many pieces."""
    path = models.write("spec-bits", models.step_spec("GPT-2 124M", "reproducible"))
    first, again = ([[row[name] for name in NUMBERS] for row in models.train(path) if "loss" in row] for _ in range(2))
    if first != again or len(first) != models.STEPS:
        raise host.Failed(f"losses and norms {first}, then {again}")
    return f"{len(first)} steps twice: the same losses and gradient norms to the bit"


def goes_on_under_fast():
    """What was chosen by timing, algorithms of products and engines of convolutions, is found and taken again: nothing is
    chosen anew or besides."""
    job = models.step_spec("ResNet-50", "fast")
    job["train"] |= {"steps": 4, "global_batch": min(32, job["train"]["global_batch"])}
    job["train"]["micro_batch"] = job["train"]["global_batch"]
    job["checkpoint"] = {"every": 2}
    path, folder = models.write("spec-goes-on", job), host.WORK / "goes-on"
    shutil.rmtree(folder, ignore_errors=True)
    whole = models.train(path, "--checkpoints", folder / "whole")
    again = models.train(path, "--resume", folder / "whole/step-2", "--checkpoints", folder / "again")
    pairs = [(a["loss"], b["loss"]) for a, b in zip(whole[2:], again)]
    worst = max(abs(a - b) / a for a, b in pairs)
    if len(whole) != 4 or len(again) != 2 or not worst <= FAST_TOLERANCE:
        raise host.Failed(f"losses {[row['loss'] for row in whole]}, resumed after two steps {[row['loss'] for row in again]}")
    first, second = (measured.record_of(folder / name / "step-4") for name in ("whole", "again"))
    if first != second:
        told = "\n".join(difflib.unified_diff(first.splitlines(), second.splitlines(), "whole", "resumed", lineterm="", n=0))
        raise host.Failed(f"the resumed run computed with others:\n{told}")
    return (f"4 steps of ResNet-50, resumed after 2: losses at most {worst:.1e} apart, by the same {len(first.splitlines())} lines of "
            "choices")


def families(text):
    """Bytes by family, of `--plan`, which opens the device, its arena included."""
    return dict(re.findall(r"^  (\w+) +(\d+) bytes$", text, re.MULTILINE))


def planned_as_allocated():
    """A plan that asks no device says what the arena on the device is."""
    program, told = host.build() / "bin/trainyard-train", []
    for precision, numerics in (("fp32", "reproducible"), ("bf16", "reproducible"), ("bf16", "fast")):
        job = models.spec(models.text(), 10, host.DEVICE, precision, context=1024)
        job["train"]["numerics"] = numerics
        path = models.write(f"spec-plan-{precision}-{numerics}", job)
        described = "cpu" if host.DRY else "a100"
        [rank] = json.loads(host.run([program, "plan", path, "--device", described, "--json"]))["memory"]
        planned = {family["name"]: family["bytes"] for family in rank["families"]}
        allocated = families(host.run([program, path, "--plan"]))
        if planned != allocated or not allocated:
            raise host.Failed(f"{precision}, {numerics}: planned {planned}, allocated {allocated}")
        told.append(f"{precision} {numerics} {int(rank['bytes']):,}")
    return f"bytes as planned: {', '.join(told)}"


# ---- ranks ----

def ranks(number, how):
    def part():
        return last_line(host.run([program("gpu_ranks"), number, how], RANKS_S, **NCCL))
    return host.takes(40, RANKS_S + 10, part)


def layouts(what, seconds):
    def part():
        lines = host.run([program("gpu_layouts"), what, host.DEVICE], 2 * seconds, **NCCL).strip().splitlines()
        return "\n".join([lines[-1], *(f"- {line}" for line in lines[:-1])])
    return host.takes(seconds, 2 * seconds, part)


PARTS = [
    ("the machine", host.takes(5, 60, machine)),
    *full_size.PARTS,
    ("cuDNN describes the device", host.takes(5, 60, describe)),
    ("every kernel against the CPU's, and again to the same bits", host.takes(60, ROUND_S, kernels)),
    ("ten steps of each model as PyTorch recorded them, the first again and again", host.takes(60, 2 * MODELS_S, recorded_steps)),
    ("two NCCL ranks on one GPU", ranks(2, "sums")),
    ("steps of GPT-2 124M repeat to the bit", host.takes(60, 150, same_bits_again)),
    ("a resumed run under fast computes with what was chosen by timing", host.takes(60, 150, goes_on_under_fast)),
    ("layouts of two and four ranks have the bits of one", layouts("same", 100)),
    ("a rank killed -9 is known to all others", ranks(4, "kill")),
    ("training goes on after a rank is killed -9, to the same bits", layouts("killed", 60)),
    ("four NCCL ranks on one GPU", ranks(4, "sums")),
    ("the plan without a device is the arena on it", host.takes(30, 120, planned_as_allocated)),
    ("first steps of whole engines again and again to the same bits", layouts("repeat", 100)),
    ("kernels that cuDNN's stand in for, against the CPU's", host.takes(60, host.CASES["gpu_products"], own_kernels)),
    ("steps in fp32 as on cpu", host.takes(30, 120, steps_as_on_cpu("fp32", 1e-3))),
    ("steps in bf16 as on cpu", host.takes(30, 120, steps_as_on_cpu("bf16", 2e-2))),
    ("an engine's steps under memcheck", sanitizer("memcheck", steps_under)),
    ("an engine's steps under initcheck", sanitizer("initcheck", steps_under)),
    *((f"{name} under {tool}", sanitizer(tool, case_under(name))) for tool in ("memcheck", "racecheck") for name in SANITIZED),
    ("every kernel over further shapes", host.takes(ROUND_S, SEEDS_S + ROUND_S, more_kernels)),
]
