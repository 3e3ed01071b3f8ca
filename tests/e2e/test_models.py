"""Models that read no text, and precisions: through the service, from folders that the tests draw themselves."""

import json
import subprocess
import sys

import pytest

from service_fixture import ROOT


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Ten classes of drawn shapes, a few images each."""
    folder = tmp_path_factory.mktemp("shapes")
    subprocess.run([sys.executable, ROOT / "tests/shapes.py", folder, "6"], check=True)
    return folder


MODELS = {
    "resnet": {"resnet": {"width": 8}},
    "vit": {"vit": {"layers": 2, "heads": 2, "width": 32, "patch": 8}},
    "mlp": {"mlp": {"hidden": [32]}},
}


def of_images(folder, model, **parallel):
    return {
        "name": "shapes", "model": model,
        "data": {"images": {"train": f"file://{folder}/train", "validation": f"file://{folder}/validation", "size": 32,
                            "augment": {"crop_padding": 2, "flip": True}}},
        "train": {"steps": 6, "global_batch": 8, "micro_batch": 2, "lanes": 4, "optimizer": {"adamw": {"lr": 0.003}},
                  "eval": {"batches": 2}},
        "parallel": parallel, "checkpoint": {"every": 3},
    }


@pytest.mark.parametrize("family", MODELS)
def test_an_image_model_learns_from_folders_with_the_same_weights_in_two_stages(shared_service, shapes, family):
    alone = shared_service.submit(of_images(shapes, MODELS[family]))
    staged = shared_service.submit(of_images(shapes, MODELS[family], pipeline=2))
    first, second = (shared_service.wait_end(job)["weights_sha256"] for job in (alone, staged))
    assert first == second
    assert len(shared_service.metric(alone, "samples_per_second")) == 6
    accuracy = shared_service.metric(alone, "validation_accuracy")[6]
    assert 0 <= accuracy <= 1


def test_an_unrolled_network_reconstructs_undersampled_images(shared_service, shapes):
    spec = of_images(shapes, {"unrolled": {"iterations": 3, "channels": 8}})
    spec["data"] = {"reconstruction": {"train": f"file://{shapes}/train", "validation": f"file://{shapes}/validation",
                                       "size": 32}}
    job = shared_service.submit(spec)
    shared_service.wait_end(job)
    assert shared_service.metric(job, "validation_psnr")[6] > 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_low_precision_is_as_good_and_as_reproducible(shared_service, tiny, precision):
    ends = []
    for data in (1, 2):
        job = shared_service.submit(tiny(steps=30, data=data, train__precision=precision))
        ends.append(shared_service.wait_end(job)["weights_sha256"])
    assert ends[0] == ends[1]
    exact = shared_service.submit(tiny(steps=30))
    shared_service.wait_end(exact)
    loss, reference = shared_service.metric(job, "loss")[30], shared_service.metric(exact, "loss")[30]
    assert abs(loss - reference) < 0.02 * reference
    if precision == "fp16":
        assert shared_service.metric(job, "loss_scale")[30] >= 1


def test_a_data_source_that_a_model_cannot_read_is_refused(shared_service, shapes):
    spec = of_images(shapes, {"gpt": {"layers": 1, "heads": 1, "width": 8, "context": 8}})
    done = shared_service.cli("submit", "-", input=json.dumps(spec), status=2)
    assert "data: model.gpt cannot read images" in done.stderr


def test_a_corrupt_image_fails_the_job_with_its_name(shared_service, shapes, tmp_path):
    bad = tmp_path / "train" / "circle"
    bad.mkdir(parents=True)
    (bad / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    spec = of_images(tmp_path, MODELS["mlp"])
    spec["data"]["images"]["validation"] = ""
    refused = shared_service.cli("submit", "-", input=json.dumps(spec), status=2)
    assert "data.images.train: " in refused.stderr and "broken.png" in refused.stderr, refused.stderr
    ended = shared_service.wait_end(shared_service.submit(spec, "--skip-check"), "FAILED")
    assert ended["attempt"] == 1 and "broken.png" in ended["reason"], ended["reason"]
