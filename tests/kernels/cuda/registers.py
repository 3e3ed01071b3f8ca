#!/usr/bin/python3
"""registers.py BUILD [--write]: compares what ptxas said of each kernel of the CUDA plugin in BUILD with registers.txt.

Fails on a kernel that spills registers or keeps memory of its own per thread, on one that the table lacks or that is no
more, and on one above its limits. --write makes the table anew: the registers of the worst architecture, rounded up to
the 8 that a device gives out at once, and the bytes of shared memory. A line is `registers shared kernel`.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
TABLE = pathlib.Path(__file__).with_name("registers.txt")
HEADER = "# What each kernel may use: registers of a thread, bytes of static shared memory. Made by registers.py --write.\n"
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def demangled(names):
    """{mangled: name with its template arguments, without parameters}"""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    short = {}
    for mangled, name in zip(names, text.splitlines()):
        name = re.sub(r"\(anonymous namespace\)::", "", name)
        name = re.sub(r"^void ", "", name.split("(")[0])
        short[mangled] = name.replace("__nv_bfloat16", "bf16").replace("__half", "fp16")
    return short


def measured(build):
    """{(kernel, architecture): (registers, shared, own)} where own is bytes of stack and spills"""
    found = {}
    sources = {path.stem for folder in ("kernels", "engine") for path in (ROOT / folder).glob("**/*.cu")}
    for path in sorted(pathlib.Path(build).glob("**/trainyard_cuda.dir/**/*.cu.o.ptxas")):
        source = path.name.removesuffix(".cu.o.ptxas")
        if source not in sources:
            continue  # a source that was renamed left its objects in the build folder
        text = path.read_text()
        short = demangled(sorted({m.group(1) for m in ENTRY.finditer(text)}))
        at = own = None
        for line in text.splitlines():
            if m := ENTRY.search(line):
                at, own = (f"{source}: {short[m.group(1)]}", m.group(2)), 0
            elif at and (m := MEMORY.search(line)):
                own = sum(int(x) for x in m.groups())
            elif at and (m := USED.search(line)):
                shared = SHARED.search(line)
                found[at] = int(m.group(1)), int(shared.group(1)) if shared else 0, own
                at = None
    return found


def limits():
    rows = [line.split(None, 2) for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {name: (int(registers), int(shared)) for registers, shared, name in rows}


def write(found):
    worst = {}
    for (kernel, _), (registers, shared, _) in found.items():
        most = worst.get(kernel, (0, 0))
        worst[kernel] = max(most[0], (registers + 7) // 8 * 8), max(most[1], shared)
    TABLE.write_text(HEADER + "".join(f"{r:3} {s:6} {kernel}\n" for kernel, (r, s) in sorted(worst.items())))


def offences(found, table):
    for (kernel, architecture), (registers, shared, own) in found.items():
        if own:
            yield f"{kernel} on {architecture} keeps {own} bytes of a thread in memory"
        if kernel not in table:
            yield f"{kernel} is not in {TABLE.name}"
        elif registers > table[kernel][0] or shared > table[kernel][1]:
            yield f"{kernel} on {architecture} uses {registers} registers and {shared} bytes, not {table[kernel]}"
    sources = {kernel.split(":")[0] for kernel, _ in found}  # a build may leave out what needs a library it lacks
    for kernel in sorted(set(table) - {kernel for kernel, _ in found}):
        if kernel.split(":")[0] in sources:
            yield f"{kernel} of {TABLE.name} is no more"


def main():
    found = measured(sys.argv[1])
    if not found:
        print("1..1\nok 1 - no kernel uses more than the table says # SKIP this build has no CUDA plugin")
        return 0
    if "--write" in sys.argv[2:]:
        write(found)
    bad = sorted(set(offences(found, limits())))
    for line in bad:
        print("#", line)
    print(f"1..1\n{'not ok' if bad else 'ok'} 1 - no kernel of {len({k for k, _ in found})} uses more than the table says")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
