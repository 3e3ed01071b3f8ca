"""Data of every kind through the service: byte-pair tokens, token files, idx files; and what is wrong with them."""

import json
import os
import struct
import subprocess

import pytest

from service_fixture import BIN, ROOT

TOKENIZER = ROOT / "tests/engine/tokenizers/llama3.json"


def uri(path):
    return f"file://{path}"


def tokenized(text, out, tokenizer=TOKENIZER):
    done = subprocess.run([BIN / "trainyard-train", "tokenize", text, "--tokenizer", tokenizer, "--out", out], check=True,
                          capture_output=True, text=True)
    return int(done.stdout)


def test_a_text_of_byte_pair_tokens_and_its_token_file_give_the_same_weights(shared_service, tiny, text_file, tmp_path):
    n = tokenized(text_file, tmp_path / "train.bin")
    assert 0 < n < text_file.stat().st_size / 2
    text = tiny(data=2)
    text["data"] = {"text": {"files": [uri(text_file)], "tokenizer": uri(TOKENIZER), "validation_fraction": 0}}
    tokens = tiny(data=1)
    tokens["data"] = {"tokens": {"train": [uri(tmp_path / "train.bin")], "tokenizer": uri(TOKENIZER)}}
    jobs = [shared_service.submit(spec) for spec in (text, tokens)]
    assert len({shared_service.wait_end(job)["weights_sha256"] for job in jobs}) == 1
    sample = [shared_service.cli("sample", job, "--prompt", "The train", "--tokens", "20", "--seed", "3").stdout for job in jobs]
    assert sample[0] == sample[1] and len(sample[0]) > 20


def test_token_files_of_both_kinds_train_and_validate(shared_service, tiny, tmp_path):
    (tmp_path / "bare.bin").write_bytes(struct.pack("<4000H", *(i * 7 % 50 for i in range(4000))))
    header = struct.pack("<3i", 20240801, 7, 500) + bytes(1012)
    (tmp_path / "headed.bin").write_bytes(header + struct.pack("<500I", *(i * 7 % 50 for i in range(500))))
    spec = tiny(steps=30)
    spec["model"]["gpt"]["vocabulary"] = 50
    spec["data"] = {"tokens": {"train": [uri(tmp_path / "bare.bin")], "validation": [uri(tmp_path / "headed.bin")]}}
    job = shared_service.submit(spec)
    shared_service.wait_end(job)
    assert shared_service.metric(job, "validation_loss")[30] < shared_service.metric(job, "loss")[1]
    done = shared_service.cli("sample", job, status=2)
    assert "there is no tokenizer" in done.stderr


def idx(path, dims, numbers):
    path.write_bytes(struct.pack(f">4B{len(dims)}I", 0, 0, 8, len(dims), *dims) + bytes(numbers))
    return uri(path)


def of_idx(images, labels):
    return {"name": "idx", "model": {"mlp": {"hidden": [16]}},
            "data": {"idx": {"train_images": images, "train_labels": labels, "augment": {"crop_padding": 1}}},
            "train": {"steps": 60, "global_batch": 16, "micro_batch": 8, "optimizer": {"adamw": {"lr": 0.01}}}}


def test_a_model_learns_from_idx_files(shared_service, tmp_path):
    """Four classes of 6 x 6 pixels: one bright quarter."""
    n = 80
    pixels = [200 if (y // 3) * 2 + x // 3 == i % 4 else 20 for i in range(n) for y in range(6) for x in range(6)]
    images, labels = idx(tmp_path / "images", (n, 6, 6), pixels), idx(tmp_path / "labels", (n,), (i % 4 for i in range(n)))
    job = shared_service.submit(of_idx(images, labels))
    shared_service.wait_end(job)
    assert shared_service.metric(job, "loss")[60] < 0.3


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """name: (data, model, what the reason must say)"""
    place = tmp_path_factory.mktemp("wrong")

    def put(name, data):
        (place / name).write_bytes(data)
        return uri(place / name)

    gpt = {"gpt": {"layers": 1, "heads": 1, "width": 8, "context": 8, "vocabulary": 100}}
    mlp = {"mlp": {"hidden": [4]}}
    good_images, good_labels = idx(place / "i", (2, 2, 2), range(8)), idx(place / "l", (2,), (0, 1))
    text = put("text", b"some text that is long enough")
    leading = place / "leading" / "train" / "a"
    leading.mkdir(parents=True)
    os.symlink("/etc/hostname", leading / "1.png")
    bpe = json.loads(TOKENIZER.read_text())
    bpe["normalizer"] = {"type": "NFC"}
    return {
        "cut token file": ({"tokens": {"train": [put("cut.bin", struct.pack("<3i", 20240520, 1, 99) + bytes(1012) + bytes(100))]}}, gpt,
                           "cut.bin' has a count of 99 tokens at byte 8"),
        "odd token file": ({"tokens": {"train": [put("odd.bin", bytes(99))]}}, gpt, "odd.bin' has 99 bytes: its last token"),
        "token beyond the vocabulary": ({"tokens": {"train": [put("far.bin", struct.pack("<64H", *([100] * 64)))]}}, gpt,
                                        "far.bin' has the token 100 at byte"),
        "tokenizer that is not valid JSON": ({"text": {"files": [text], "tokenizer": put("t.json", b"{")}}, gpt, "t.json': it is not valid JSON"),
        "tokenizer with a normalizer": ({"text": {"files": [text], "tokenizer": put("nfc.json", json.dumps(bpe).encode())}}, gpt,
                                        "nfc.json': tokenizer.normalizer is not supported"),
        "text that is no UTF-8": ({"text": {"files": [put("latin", b"caf\xe9 " * 20)], "tokenizer": uri(TOKENIZER)}},
                                  {"gpt": {**gpt["gpt"], "vocabulary": 2000}}, "latin' is not valid UTF-8 at byte 3"),
        "idx magic": ({"idx": {"train_images": put("magic", bytes(50)), "train_labels": good_labels}}, mlp, "magic' has the magic 00000000"),
        "idx labels": ({"idx": {"train_images": good_images, "train_labels": idx(place / "three", (3,), (0, 1, 2))}}, mlp,
                       "three' has 3 labels for 2 images"),
        "link out of a folder": ({"images": {"train": uri(place / "leading" / "train"), "size": 4}}, mlp,
                                 "1.png' has a symbolic link on its way, which is not followed"),
    }


def test_what_is_wrong_with_data_is_one_sentence_and_no_retry(shared_service, wrong):
    jobs = {}
    for name, (data, model, _) in wrong.items():
        spec = {"name": name.replace(" ", "-"), "model": model, "data": data,
                "train": {"steps": 3, "global_batch": 2, "micro_batch": 1, "optimizer": {"adamw": {"lr": 0.01}}}}
        jobs[name] = shared_service.submit(spec, "--skip-check")
        refused = shared_service.cli("submit", shared_service.directory / "submitted.json", status=2).stderr
        assert wrong[name][2] in refused and ": data." in refused, (name, refused)
    for name, job in jobs.items():
        ended = shared_service.wait_end(job, "FAILED")
        assert wrong[name][2] in ended["reason"] and ended["attempt"] == 1, (name, ended["reason"])
