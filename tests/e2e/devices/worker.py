#!/usr/bin/python3
"""Stands for trainyard-worker on a host with GPUs: joins, says which device it sees, and reports a step every 50 ms.
Asked for libraries, it says what a file named 'says' of its library path has, and ends with the status named there."""
import os
import struct
import sys
import threading


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def put(record):
    os.write(4, struct.pack("<I", len(record)) + record)


if sys.argv[1:] == ["--check-cuda"]:
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if os.path.exists(folder + "/says"):
            status, sentence = open(folder + "/says").read().split(" ", 1)
            print(sentence)
            sys.exit(int(status))
    sys.exit(0)
print("searches", os.environ.get("LD_LIBRARY_PATH", "nothing"), flush=True)
print("sees", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
put(field(2, field(2, b"a stand-in")))  # RankJoined.numerics_id; its address came first, if it needed any
ended = threading.Event()
threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(3, 4096), b"")] and ended.set(), daemon=True).start()
for step in range(1, 1 << 40):
    put(field(3, field(1, step) + field(2, b"loss") + field(3, struct.pack("<d", 1 / step))))  # MetricRow
    put(field(8, field(1, step)))                                                              # WorkerAlive.progress
    if ended.wait(0.05):
        sys.exit(0)
