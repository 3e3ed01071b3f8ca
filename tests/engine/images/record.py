"""Draws small PNG and JPEG files of every kind and records what Pillow (13) makes of them: the files, and expected.json
{FILE: {channels: {width, height, pixels, fit}}}, where pixels are the decoded bytes in hex and fit those of the image brought
to 16 x 16 by BILINEAR (shorter side, then the middle).

    python3 tests/engine/images/record.py
"""

import json
import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
SIZE = 16


def picture(height, width, seed):
    """Smooth colours with edges and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    a = np.stack([127 + 120 * np.sin(x / 3 + y / 5), 255 * x / width, 255 * ((x // 4 + y // 3) % 2)], -1)
    return np.clip(a + rng.normal(0, 9, a.shape), 0, 255).astype(np.uint8)


def fit(im):
    w, h = im.size
    s = min(w, h)
    w2, h2 = (SIZE if w == s else SIZE * w // s), (SIZE if h == s else SIZE * h // s)
    im = im.resize((w2, h2), Image.BILINEAR)
    x, y = round((w2 - SIZE) / 2), round((h2 - SIZE) / 2)  # as torchvision does
    return im.crop((x, y, x + SIZE, y + SIZE))


def main():
    rgb = Image.fromarray(picture(24, 37, 1))
    files = {}

    def put(name, im, **how):
        im.save(HERE / name, **how)
        files[name] = None

    put("rgb.png", rgb)
    put("grey.png", rgb.convert("L"))
    alpha = rgb.convert("RGBA")
    alpha.putalpha(Image.fromarray(picture(24, 37, 2)[..., 0]))
    put("alpha.png", alpha)
    put("grey-alpha.png", alpha.convert("LA"))
    put("palette.png", rgb.quantize(13), transparency=3)
    put("bit.png", rgb.convert("L").convert("1"))
    wide = (np.arange(11 * 9, dtype=np.uint32).reshape(11, 9) * 661 % 65536).astype(np.uint16)
    put("sixteen.png", Image.fromarray(wide))
    put("tiny.png", rgb.crop((0, 0, 5, 3)))
    put("line.png", rgb.crop((0, 0, 37, 1)))
    put("colour.jpg", rgb, quality=90)
    put("sharp.jpg", rgb, quality=95, subsampling=0)
    put("progressive.jpg", Image.fromarray(picture(50, 31, 3)), quality=80, progressive=True)
    put("grey.jpg", rgb.convert("L"), quality=85)

    expected = {}
    for name in files:
        expected[name] = {}
        for channels, mode in [(1, "L"), (3, "RGB")]:
            im = Image.open(HERE / name)
            if name == "sixteen.png":
                im = Image.fromarray((wide >> 8).astype(np.uint8))
            elif name.endswith("jpg"):
                im.draft(mode, im.size)
            im = im.convert(mode)
            expected[name][channels] = {"width": im.width, "height": im.height, "pixels": im.tobytes().hex(), "fit": fit(im).tobytes().hex()}
    (HERE / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


main()
