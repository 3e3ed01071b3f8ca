"""Draws an image set of ten shapes, 64 x 64 RGB PNGs in one folder a class, from a seed: DIR/{train,validation}/CLASS/NUMBER.png.

    python3 tests/shapes.py DIR [IMAGES_PER_CLASS [SEED]]

Place, size, turn and colours (bright on dark) are random; a shape's class is what is left. A fifth as many again are drawn for validation."""

import math
import pathlib
import random
import struct
import sys
import zlib

SIZE = 64


def polygon(corners, start=90.0):
    """A regular polygon in the unit circle."""
    return [(math.cos(a), math.sin(a)) for a in (math.radians(start + 360 * k / corners) for k in range(corners))]


def star(points, inner):
    return [(r * math.cos(a), r * math.sin(a))
            for r, a in ((1 if k % 2 == 0 else inner, math.radians(90 + 180 * k / points)) for k in range(2 * points))]


def arc(radius, begin, end, steps=24):
    return [(radius * math.cos(a), radius * math.sin(a))
            for a in (math.radians(begin + (end - begin) * k / steps) for k in range(steps + 1))]


# Contours in the unit circle; a point is inside where it is inside an odd number of them.
CLASSES = {
    "arrow": [[(0, 1), (0.8, 0.1), (0.3, 0.1), (0.3, -1), (-0.3, -1), (-0.3, 0.1), (-0.8, 0.1)]],
    "circle": [polygon(40)],
    "corner": [[(-0.7, 0.9), (-0.2, 0.9), (-0.2, -0.4), (0.8, -0.4), (0.8, -0.9), (-0.7, -0.9)]],
    "cross": [[(-0.3, 1), (0.3, 1), (0.3, 0.3), (1, 0.3), (1, -0.3), (0.3, -0.3), (0.3, -1), (-0.3, -1), (-0.3, -0.3), (-1, -0.3),
               (-1, 0.3), (-0.3, 0.3)]],
    "frame": [polygon(4, 45), [(0.55 * x, 0.55 * y) for x, y in polygon(4, 45)]],
    "half": [arc(1, 0, 180)],
    "ring": [polygon(40), [(0.6 * x, 0.6 * y) for x, y in polygon(40)]],
    "square": [polygon(4, 45)],
    "star": [star(5, 0.4)],
    "triangle": [polygon(3)],
}


def place(contours, rng):
    """Turned, sized and moved, in pixels."""
    turn, size = math.radians(rng.uniform(-40, 40)), rng.uniform(14, 24)
    cx, cy = (SIZE / 2 + rng.uniform(-8, 8) for _ in range(2))
    c, s = size * math.cos(turn), size * math.sin(turn)
    return [[(cx + c * x - s * y, cy - s * x - c * y) for x, y in contour] for contour in contours]


def draw(contours, inside, outside):
    """Rows of RGB bytes: each row is filled between pairs of crossings."""
    rows = []
    for y in range(SIZE):
        crossings = []
        for contour in contours:
            for (x0, y0), (x1, y1) in zip(contour, contour[1:] + contour[:1]):
                if (y0 <= y + 0.5) != (y1 <= y + 0.5):
                    crossings.append(x0 + (y + 0.5 - y0) * (x1 - x0) / (y1 - y0))
        row = bytearray(outside * SIZE)
        crossings.sort()
        for begin, end in zip(crossings[::2], crossings[1::2]):
            a, b = (max(0, min(SIZE, round(x))) for x in (begin, end))
            row[3 * a:3 * b] = inside * (b - a)
        rows.append(bytes(row))
    return rows


def png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b"")


def colours(rng):
    """A bright shape on a dark ground."""
    return bytes(rng.randrange(140, 256) for _ in range(3)), bytes(rng.randrange(110) for _ in range(3))


def main(directory, per_class=200, seed=1):
    rng = random.Random(seed)
    for part, n in (("train", per_class), ("validation", max(1, per_class // 5))):
        for name, contours in CLASSES.items():
            folder = pathlib.Path(directory) / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for k in range(n):
                (folder / f"{k:05}.png").write_bytes(png(draw(place(contours, rng), *colours(rng))))


if __name__ == "__main__":
    main(sys.argv[1], *(int(a) for a in sys.argv[2:4]))
