"""Records what torchvision and Pillow make of the files of this folder, as augment.json:

  parts    [{file, box, size, pixels}]: F.resized_crop of a part (top, left, height, width) to size x size
  middles  [{file, shorter, size, pixels}]: Resize(shorter) and CenterCrop(size)
  colors   [{file, changes, pixels}]: adjust_brightness, _contrast and _saturation by factors, in their order
  wholes   [{height, width, scale, ratio, box}]: RandomResizedCrop.get_params where no random box lies within the image
  normals  {mean, std, values}: Normalize of the bytes 0, 1, 127, 255 in three channels

    python3 tests/engine/images/record_augment.py
"""

import json
import pathlib

import torch
from PIL import Image
from torchvision.transforms import CenterCrop, InterpolationMode, RandomResizedCrop, Resize
from torchvision.transforms import functional as F

HERE = pathlib.Path(__file__).parent
FILES = ["rgb.png", "colour.jpg", "sharp.jpg", "progressive.jpg", "grey.jpg"]


def opened(file):
    im = Image.open(HERE / file)
    im.draft("RGB", im.size)
    return im.convert("RGB")


def main():
    parts, middles, colors, wholes = [], [], [], []
    for file in FILES:
        im = opened(file)
        for top, left, height, width in [(0, 0, 10, 13), (5, 7, 17, 9), (im.height - 7, im.width - 20, 7, 20), (3, 1, 16, 16)]:
            small = F.resized_crop(im, top, left, height, width, [16, 16], InterpolationMode.BILINEAR)
            parts.append({"file": file, "box": [top, left, height, width], "size": 16, "pixels": small.tobytes().hex()})
        for shorter, size in [(20, 16), (17, 11), (12, 7)]:
            small = CenterCrop(size)(Resize(shorter)(im))
            middles.append({"file": file, "shorter": shorter, "size": size, "pixels": small.tobytes().hex()})
    for changes in [[["brightness", 0.6]], [["brightness", 1.4]], [["contrast", 0.625]], [["contrast", 1.75]],
                    [["saturation", 0]], [["saturation", 1.3]],
                    [["saturation", 0.7], ["brightness", 1.25], ["contrast", 0.8]],
                    [["contrast", 1.4], ["saturation", 1.4], ["brightness", 0.9]]]:
        im = opened("rgb.png")
        for name, factor in changes:
            im = getattr(F, f"adjust_{name}")(im, factor)
        colors.append({"file": "rgb.png", "changes": changes, "pixels": im.tobytes().hex()})
    for height, width, scale, ratio in [(10, 1000, (0.9, 1), (0.75, 4 / 3)), (1000, 10, (0.9, 1), (0.75, 4 / 3)),
                                        (7, 90, (1, 1), (0.5, 2)), (301, 13, (1, 1), (1, 1))]:
        box = RandomResizedCrop.get_params(torch.zeros(3, height, width), list(scale), list(ratio))
        wholes.append({"height": height, "width": width, "scale": scale, "ratio": ratio, "box": list(box)})
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    bytes_ = torch.tensor([0, 1, 127, 255], dtype=torch.uint8).repeat(3, 1).reshape(3, 2, 2)
    values = F.normalize(F.convert_image_dtype(bytes_, torch.float32), mean, std).flatten().tolist()
    normals = {"mean": mean, "std": std, "values": values}
    (HERE / "augment.json").write_text(json.dumps({"parts": parts, "middles": middles, "colors": colors, "wholes": wholes,
                                                   "normals": normals}, separators=(",", ":")) + "\n")


main()
