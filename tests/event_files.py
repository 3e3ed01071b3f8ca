"""Writes TensorBoard event files without TensorBoard: TFRecords of tensorflow.Event messages. Tests of programs pass this
file to the program, which then needs no library."""

import struct


def checksum(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def number(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def member(field, data):
    return number(field << 3 | 2) + number(len(data)) + data


def event(step, value):
    return b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + number(step) + member(5, member(1, value))


def scalar(tag, step, value):
    return record(event(step, member(1, tag.encode()) + b"\x15" + struct.pack("<f", value)))


def image(tag, step):
    return record(event(step, member(1, tag.encode()) + member(4, b"\x08\x01")))


def version():
    return record(member(3, b"brain.Event:2"))
