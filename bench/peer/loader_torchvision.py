"""The peer of bench/images.py: torchvision's ImageFolder and PyTorch's DataLoader. Prints one JSON object like bench_data.

    loader_torchvision.py make FOLDER IMAGES                    draws JPEGs of 500 x 375 in two class folders, with Pillow
    loader_torchvision.py loader FOLDER SIZE WORKERS BATCH IMAGES
"""

import json
import pathlib
import sys
import time


def make(folder, images):
    """About as many bytes as ImageNet's: smooth colours, edges, and noise."""
    import numpy as np
    from PIL import Image

    rng, total = np.random.default_rng(1), 0
    y, x = np.mgrid[0:375, 0:500]
    for i in range(int(images)):
        path = pathlib.Path(folder, "train", "ab"[i % 2], f"{i:05}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        a, b, c = rng.uniform(20, 90, 3)
        shape = ((x - rng.uniform(0, 500)) ** 2 + (y - rng.uniform(0, 375)) ** 2 < rng.uniform(40, 160) ** 2) * 70.0
        planes = np.stack([127 + 80 * np.sin(x / a + y / b), 127 + 80 * np.cos(x / b - y / c), 127 + 60 * np.sin(y / a)], -1)
        pixels = np.clip(planes + shape[..., None] + rng.normal(0, 16, (375, 500, 1)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=90)
        total += path.stat().st_size
    return {"images": int(images), "bytes": total}


def loader(folder, size, workers, batch, images):
    import torch
    from torchvision import datasets, transforms

    size, workers, batch, images = map(int, (size, workers, batch, images))
    torch.set_num_threads(1)
    data = datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
    batches = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True,
                                          persistent_workers=True, prefetch_factor=2)
    for _ in batches:  # the first epoch starts the workers
        pass
    n, begun = 0, time.perf_counter()
    while n < images:
        for pixels, labels in batches:
            n += len(labels)
    return {"images": n, "seconds": time.perf_counter() - begun}


print(json.dumps({"make": make, "loader": loader}[sys.argv[1]](*sys.argv[2:])))
