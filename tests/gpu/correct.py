"""What must be right on a device."""

import json
import re
import shutil

import host
import models


def ranks(number, how):
    def part():
        return host.run([host.build() / "tests/gpu_ranks", number, how], NCCL_NET="Socket", NCCL_SOCKET_IFNAME="=lo",
                        NCCL_SOCKET_FAMILY="AF_INET", NCCL_IB_DISABLE="1", NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1",
                        NCCL_NVLS_ENABLE="0", NCCL_MNNVL_ENABLE="0", NCCL_RAS_ENABLE="0", NCCL_ALGO="Ring",
                        NCCL_PROTO="Simple", NCCL_MAX_CTAS="2", NCCL_BUFFSIZE="1048576").strip().splitlines()[-1]
    return part


def describe():
    out = host.run([host.python(), host.ROOT / "tests/gpu/describe.py"])
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    (host.REPORTS / "device.json").write_text(out)
    return "bench/gpu/device.json, for machines without a device"


def kernels(seeds, prefix=()):
    """Every case with shapes of its own for each seed; each is made twice on the device and once on the CPU."""
    def part():
        for seed in range(1, seeds + 1):
            for name in host.CASES:
                host.run([*prefix, host.build() / "tests" / name], SEED=str(seed))
        return f"{len(host.CASES)} programs with {seeds} seeds each"
    return part


def sanitizer(tool):
    def part():
        if not shutil.which("compute-sanitizer"):
            raise host.Skip("no compute-sanitizer in PATH")
        return kernels(1, prefix=("compute-sanitizer", "--error-exitcode", "9", "--tool", tool))()
    return part


def steps_as_on_cpu(precision, tolerance):
    def part():
        cpu, cuda = models.losses(10, "cpu", precision), models.losses(10, "cuda", precision)
        worst = max(abs(a - b) / a for a, b in zip(cpu, cuda))
        if len(cpu) != 10 or len(cuda) != 10 or not worst <= tolerance:
            raise host.Failed(f"losses on cpu {cpu}, on cuda {cuda}")
        return f"10 steps: losses at most {worst:.1e} apart"
    return part


def families(text):
    """Bytes by family, of `--plan`, which opens the device, its arena included."""
    return dict(re.findall(r"^  (\w+) +(\d+) bytes$", text, re.MULTILINE))


def planned_as_allocated():
    """A plan that asks no device says what the arena on the device is."""
    program, told = host.build() / "bin/trainyard-train", []
    for precision, numerics in (("fp32", "reproducible"), ("bf16", "reproducible"), ("bf16", "fast")):
        path = host.WORK / f"spec-plan-{precision}-{numerics}.json"
        job = models.spec(models.text(), 10, "cuda", precision, context=1024)
        job["train"]["numerics"] = numerics
        path.write_text(json.dumps(job))
        [rank] = json.loads(host.run([program, "plan", path, "--device", "a100", "--json"]))["memory"]
        planned = {family["name"]: family["bytes"] for family in rank["families"]}
        allocated = families(host.run([program, path, "--plan"]))
        if planned != allocated or not allocated:
            raise host.Failed(f"{precision}, {numerics}: planned {planned}, allocated {allocated}")
        told.append(f"{precision} {numerics} {int(rank['bytes']):,}")
    return f"bytes as planned: {', '.join(told)}"


def same_bits_again():
    first, again = models.losses(20, "cuda", "bf16"), models.losses(20, "cuda", "bf16")
    if first != again:
        raise host.Failed(f"losses {first}, then {again}")
    return "20 steps twice: the same losses to the bit"


PARTS = [  # the first run on an H200 comes first
    ("cuDNN describes the device", describe),
    ("two NCCL ranks on one GPU", ranks(2, "sums")),
    ("four NCCL ranks on one GPU", ranks(4, "sums")),
    ("a rank killed -9 is known to all others", ranks(4, "kill")),
    ("attention backward repeats to the bit, by PyTorch and cuDNN too", host.peer("repeat")),
    ("every kernel against the CPU's, and again to the same bits", kernels(20)),
    ("kernels under memcheck", sanitizer("memcheck")),
    ("kernels under racecheck", sanitizer("racecheck")),
    ("kernels under initcheck", sanitizer("initcheck")),
    ("the plan without a device is the arena on it", planned_as_allocated),
    ("steps in fp32 as on cpu", steps_as_on_cpu("fp32", 1e-3)),
    ("steps in bf16 as on cpu", steps_as_on_cpu("bf16", 2e-2)),
    ("steps repeat to the bit", same_bits_again),
]
