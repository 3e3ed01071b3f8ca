"""The ordered all-reduce beside Gloo's own all-reduce, between processes on this host."""

import subprocess

from report import BIN, report


def times(program, world_size):
    out = subprocess.run([BIN / program, str(world_size)], check=True, text=True, capture_output=True).stdout
    return {int(line.split()[0]): float(line.split()[1]) for line in out.splitlines()}


rows = []
for world_size in (2, 4):
    ours, gloo = times("bench_collective", world_size), times("bench_collective_gloo", world_size)
    for size, us in ours.items():
        wire = 2 * (world_size - 1) / world_size * size
        rows.append({"ranks": world_size, "KiB": size >> 10, "ordered us": us, "GB/s": wire / us / 1e3,
                     "gloo us": gloo[size], "gloo / ordered": gloo[size] / us})
report("collective", rows, ["The median call of rank 0; GB/s = bytes that each rank sends / time. "
                            "The ordered sum gives the same bits in every world size; Gloo's does not."])
