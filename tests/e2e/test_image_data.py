"""Images of folders, patterns, stores and tar archives: the same bits wherever they are, however many ranks read them, and
whatever is killed meanwhile; a store is read once for all jobs of a host."""

import io
import json
import subprocess
import sys
import tarfile

import pytest

from object_store import Store
from service_fixture import ROOT, make_service

EVERYTHING = {"resized_crop": {"min_scale": 0.3}, "flip": True, "brightness": 0.4, "contrast": 0.4, "saturation": 0.4,
              "mixup": 0.4}


@pytest.fixture(scope="module")
def host():
    yield from make_service(executors=1, slots=2)


@pytest.fixture(scope="module")
def store():
    server = Store()
    yield server
    server.close()


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Ten classes of drawn shapes, a few images each."""
    folder = tmp_path_factory.mktemp("shapes")
    subprocess.run([sys.executable, ROOT / "tests/shapes.py", folder, "5"], check=True)
    return folder


def samples(folder):
    """(key, image, label) by class and name."""
    classes = sorted(p.name for p in folder.iterdir())
    return [(f"{name}/{p.stem}", p.read_bytes(), i) for i, name in enumerate(classes) for p in sorted((folder / name).iterdir())]


def tar_of(these, format=tarfile.USTAR_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for key, image, label in these:
            for name, data in ((f"{key}.cls", str(label).encode()), (f"{key}.png", image)):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture(scope="module")
def archives(shapes, tmp_path_factory):
    """Training in three archives of a folder, validation in one."""
    folder, train = tmp_path_factory.mktemp("archives"), samples(shapes / "train")
    for i in range(3):
        (folder / f"train-{i:03}.tar").write_bytes(tar_of(train[i * len(train) // 3:(i + 1) * len(train) // 3]))
    (folder / "validation-000.tar").write_bytes(tar_of(samples(shapes / "validation"), tarfile.GNU_FORMAT))
    return folder


def spec_of(train, validation, store=None, data=1, steps=8, **images):
    return {
        "name": "shapes", "model": {"resnet": {"width": 4}},
        "data": {"images": {"train": train, "validation": validation, "size": 16, "resize": 18, "augment": EVERYTHING,
                            "normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}, **images}},
        **({"stores": {train.partition(":")[0].replace("http", "https"): {"endpoint": store.url}}} if store else {}),
        "train": {"steps": steps, "global_batch": 8, "micro_batch": 2, "lanes": 4, "optimizer": {"sgd": {"lr": 0.01}},
                  "eval": {"batches": 2}},
        "parallel": {"data": data}, "checkpoint": {"every": 3},
    }


def put_tree(store, root, folder):
    for path in folder.rglob("*.*"):
        store.put(f"{root}/{path.relative_to(folder)}", path.read_bytes())


def gets(store, root):
    """{path: how often it was read}."""
    paths = [p for m, p, _, _ in store.requests if m == "GET" and p.startswith(root) and "?" not in p]
    return {path: paths.count(path) for path in paths}


def test_class_folders_have_the_same_bits_wherever_they_are_and_a_second_job_reads_nothing(host, store, shapes):
    put_tree(store, "/bucket/shapes", shapes)
    remote = ("s3://bucket/shapes/train/*/*.png", "s3://bucket/shapes/validation/*/*.png", store)
    folder = host.submit(spec_of(f"file://{shapes}/train", f"file://{shapes}/validation"))
    first = host.submit(spec_of(*remote, data=2))
    ends = [host.wait_end(job) for job in (folder, first)]
    before = gets(store, "/bucket/shapes/")
    assert set(before.values()) == {1} and len(before) == len(list(shapes.rglob("*.png")))
    others = [host.submit(spec_of(f"file://{shapes}/train/*/*.png", f"file://{shapes}/validation/[a-z]*/*")),
              host.submit(spec_of(*remote))]
    ends += [host.wait_end(job) for job in others]
    assert len({end["weights_sha256"] for end in ends}) == 1, ends
    assert gets(store, "/bucket/shapes/") == before
    losses = [host.metric(job, "validation_loss") for job in (folder, first, *others)]
    assert losses[0] == losses[1] == losses[2] == losses[3] and 8 in losses[0]


def test_tar_archives_have_the_same_bits_wherever_they_are(host, store, archives):
    commit = "0123456789abcdef0123456789abcdef01234567"
    store.commits["owner/shapes@main"] = commit
    put_tree(store, "/web/shapes", archives)
    put_tree(store, f"/datasets/owner/shapes/resolve/{commit}", archives)
    places = [(f"file://{archives}/train-*.tar", f"file://{archives}/validation-000.tar"),
              (f"{store.url}/web/shapes/train-{{000..002}}.tar", f"{store.url}/web/shapes/validation-000.tar", store, 2),
              ("hf://datasets/owner/shapes/train-{000..002}.tar", "hf://datasets/owner/shapes/validation-*.tar", store)]
    ends = [host.wait_end(job) for job in [host.submit(spec_of(*place)) for place in places]]
    assert len({end["weights_sha256"] for end in ends}) == 1, ends


def test_a_killed_rank_changes_no_bits(host, store, shapes, archives):
    """Its next attempt draws the same parts and colours, from the copies that are there."""
    put_tree(store, "/bucket/killed", archives)
    remote = ("s3://bucket/killed/train-{000..002}.tar", "s3://bucket/killed/validation-*.tar", store)
    calm = host.wait_end(host.submit(spec_of(*remote, steps=100)))
    killed = host.end_of_killed(spec_of(*remote, steps=100, data=2), 1)
    assert killed["weights_sha256"] == calm["weights_sha256"]
    assert set(gets(store, "/bucket/killed/").values()) == {1}


def test_what_cannot_be_images_is_refused_with_its_field(host, store, shapes, tmp_path):
    def refused(train, validation="", status=2, **images):
        spec = spec_of(train, validation, store if train.startswith("s3:") else None, **images)
        return host.cli("submit", "-", input=json.dumps(spec), status=status).stderr
    assert "data.images.train: 's3://bucket/data.zip' names neither images" in refused("s3://bucket/data.zip")
    assert "data.images.train: 's3://bucket/train/' is a folder" in refused("s3://bucket/train/")
    (tmp_path / "cut.tar").write_bytes(tar_of(samples(shapes / "validation"))[:5000])
    said = refused(f"file://{tmp_path}/cut.tar")
    assert "data.images" in said and "cut.tar" in said and "incomplete" in said, said
    said = refused(f"file://{shapes}/train/*/*.jpg")
    assert "data.images.train: no file matches" in said, said
    for name in "ab":
        store.put(f"/bucket/wrong/{name}/1.png", b"\x89PNG\r\n\x1a\n and then nothing")
    spec = spec_of("s3://bucket/wrong/*/*.png", "", store)
    ended = host.wait_end(host.submit({**spec, "retry": {"max_restarts": 0}}), "FAILED")
    assert "s3://bucket/wrong/" in ended["reason"] and "not a complete PNG" in ended["reason"], ended["reason"]


def test_reconstructions_of_a_store_have_the_bits_of_the_folder(host, store, shapes, archives):
    put_tree(store, "/bucket/measured", shapes)

    def job(train, **more):
        spec = {**spec_of("", ""), "model": {"unrolled": {"iterations": 2, "channels": 4}},
                "data": {"reconstruction": {"train": train, "size": 16}}, **more}
        return host.submit(spec)
    stores = {"stores": {"s3": {"endpoint": store.url}}}
    ends = [host.wait_end(id) for id in (job(f"file://{shapes}/train"), job("s3://bucket/measured/train/*/*.png", **stores))]
    assert ends[0]["weights_sha256"] == ends[1]["weights_sha256"]
    host.wait_end(job(f"file://{archives}/train-*.tar"))
