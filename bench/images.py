"""Images of 500 x 375 pixels as JPEG, each a random part scaled to 224 x 224, flipped and normalised.

loader      images in a second: the loader's threads beside the worker processes of PyTorch's DataLoader with torchvision, as
            many of both. Runs alternate, and the fastest of each counts.
training    images in a second of ResNet-18 through a service whose executor copied the JPEGs from an S3 server, beside a job
            whose images are decoded in memory. Jobs alternate; the fastest steps of each count.
copying     objects in a second into an empty cache: as JPEGs, and in tar archives, from a server in Python; and small
            ones from bench_objects, which is no limit.

TRAINYARD_TORCH names a Python with PyTorch, torchvision and Pillow, which also draws the images: nothing is measured without it.
Arguments: images (512), rounds (3)."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

from object_store import Store
from report import BIN, ROOT, report
from service_fixture import Service

SIZE, BATCH, STEPS = 224, 32, 6
SMALL, SMALL_BYTES = 4000, 4 << 10
NORMALIZE = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
PEER = ROOT / "bench" / "peer" / "loader_torchvision.py"


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def rate(result):
    return result["images"] / result["seconds"]


def loader_row(python, folder, workers, images, rounds):
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(rate(run(BIN / "bench_data", "loader", folder / "train", SIZE, workers, BATCH, images)))
        theirs.append(rate(run(python, PEER, "loader", folder / "train", SIZE, workers, BATCH, images)))
    return {"what": f"loader, {workers} workers", "unit": "images/s", "ours": max(ours), "peer": max(theirs),
            "ours / peer": max(ours) / max(theirs)}


def spec(train, augment, store=None):
    return {"name": "bench", "model": {"resnet": {"layers": 18}},
            "data": {"images": {"train": train, "size": SIZE, "normalize": NORMALIZE, "augment": augment}},
            **({"stores": {"s3": {"endpoint": store.url}}} if store else {}),
            "train": {"steps": STEPS, "global_batch": BATCH, "micro_batch": 8, "lanes": 4, "optimizer": {"sgd": {"lr": 0.1}}},
            "checkpoint": {"every": 0}}


def speed(service, job):
    """Of the fastest step but the first, which also tunes kernels."""
    service.wait_end(job, timeout_s=1200)
    return max(value for step, value in service.metric(job, "samples_per_second").items() if step > 1)


def training_row(service, store, folder, rounds):
    """In memory: without a random part, 224 x 224 pixels of all images fit into the memory."""
    stored, memory = [], []
    for _ in range(rounds):
        stored.append(speed(service, service.submit(spec("s3://bucket/train/*/*.jpg", {"resized_crop": {}, "flip": True}, store))))
        memory.append(speed(service, service.submit(spec(f"file://{folder}/train", {"flip": True}))))
    return {"what": "ResNet-18, from S3 through the cache", "unit": "images/s", "ours": max(stored), "peer": max(memory),
            "ours / peer": max(stored) / max(memory)}


def copy_rate(service, job_spec, objects):
    begun = time.monotonic()
    job = service.submit(job_spec, "--skip-check")
    with service.watch(job) as watch:
        watch.until_event("data_ready")
    seconds = time.monotonic() - begun
    service.cli("cancel", job)
    return objects / seconds


def small_row(service, objects):
    """Files of tokens."""
    server = subprocess.Popen([BIN / "bench_objects", str(objects), str(SMALL_BYTES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    tokens = {"name": "bench", "model": {"gpt": {"layers": 1, "heads": 1, "width": 8, "context": 8, "vocabulary": 50257}},
              "data": {"tokens": {"train": ["s3://bucket/d/*.bin"]}},
              "stores": {"s3": {"endpoint": f"http://127.0.0.1:{server.stdout.readline().strip()}"}},
              "train": {"steps": STEPS, "global_batch": 1, "micro_batch": 1, "optimizer": {"sgd": {"lr": 0.1}}}, "checkpoint": {"every": 0}}
    try:
        return {"what": f"copying, {objects} objects of {SMALL_BYTES >> 10} KiB", "unit": "objects/s",
                "ours": copy_rate(service, tokens, objects)}
    finally:
        server.communicate()


def put_all(store, folder, images):
    for path in sorted((folder / "train").glob("*/*")):
        store.put(f"/bucket/train/{path.parent.name}/{path.name}", path.read_bytes())
    for i in range(4):
        with tarfile.open(folder / f"{i}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted((folder / "train").glob("*/*"))[i * images // 4:(i + 1) * images // 4]:
                (folder / "class").write_text(str("ab".index(path.parent.name)))
                tar.add(path, path.name)
                tar.add(folder / "class", f"{path.stem}.cls")
        store.put(f"/bucket/tars/{i}.tar", (folder / f"{i}.tar").read_bytes())


def service_rows(folder, images, rounds):
    store = Store()
    put_all(store, folder, images)
    (folder / "service").mkdir()
    service = Service(folder / "service", executors=1, slots=1).start()
    try:
        rows = [{"what": f"copying, {n} objects", "unit": "images/s",
                 "ours": copy_rate(service, {**spec(train, {"resized_crop": {}}, store), "model": {"mlp": {"hidden": [8]}}}, images)}
                for n, train in ((images, "s3://bucket/train/*/*.jpg"), (4, "s3://bucket/tars/{0..3}.tar"))]
        return rows + [small_row(service, SMALL)] + [training_row(service, store, folder, rounds)]
    finally:
        service.stop()
        store.close()


def main():
    images, rounds = int((sys.argv[1:] + ["512"])[0]), int((sys.argv[2:] + ["3"])[0])
    python = os.environ.get("TRAINYARD_TORCH")
    if not python:
        return report("images", [{"what": "nothing: TRAINYARD_TORCH is not set"}])
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        made = run(python, PEER, "make", folder, images)
        cores = os.cpu_count()
        rows = [loader_row(python, folder, workers, 2 * images, rounds) for workers in sorted({1, min(cores, 4)})]
        rows += service_rows(folder, images, rounds)
    return report("images", rows, [f"{images} images of {made['bytes'] / images / 1e3:.0f} kB."])


main()
