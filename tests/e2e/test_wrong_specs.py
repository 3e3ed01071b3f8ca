"""Specs that could not run are refused before they get an id: `validate` and `submit` print the same lines, all at once."""

import json
import os

import pytest


def text_of(tiny, path, **more):
    spec = tiny(**more)
    spec["data"] = {"text": {"files": [f"file://{path}"], **more.pop("text", {})}}
    return spec


def write(folder, name, data):
    (folder / name).write_bytes(data)
    return folder / name


def fifo(folder):
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def folder_in(folder, name):
    (folder / name).mkdir()
    return folder / name


def images(tiny, folder):
    spec = tiny()
    spec["model"] = {"mlp": {"hidden": [8]}}
    spec["data"] = {"images": {"train": f"file://{folder_in(folder, 'classes')}"}}
    return spec


def tokens(tiny, folder):
    spec = tiny()
    spec["model"]["gpt"]["vocabulary"] = 50257  # which no two letters of a text reach
    spec["data"] = {"tokens": {"train": [f"file://{write(folder, 'text.bin', b'The yard runs trains at night. ' * 400)}"]}}
    return spec


def wide_tokens(tiny, folder):
    spec = tiny()
    spec["model"]["gpt"]["vocabulary"] = 100
    spec["data"] = {"tokens": {"train": [f"file://{write(folder, 'wide.bin', bytes(range(200)) * 400)}"]}}
    return spec


def changed(spec, **parts):
    for name, part in parts.items():
        spec.setdefault(name, {}).update(part)
    return spec


def gpt(spec, **fields):
    spec["model"]["gpt"].update(fields)
    return spec


def transformers_folder(folder):
    model = folder_in(folder, "model")
    (model / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    return model


# What is wrong, and what the line must say behind the file's name.
WRONG = {
    "context above the text": (lambda t, f: text_of(t, write(f, "short.txt", b"too short")), "data.text: there are 8 tokens for training"),
    "two bytes": (lambda t, f: text_of(t, write(f, "two.txt", b"ab")), "data.text: there is 1 token for training"),
    "empty": (lambda t, f: text_of(t, write(f, "empty.txt", b"")), "data.text.files[0]: the data file"),
    "not UTF-8": (lambda t, f: text_of(t, write(f, "bytes.txt", b"ab\xff" * 999)), "data.text.files[0]: the data file"),
    "no class folders": (images, "data.images.train: "),
    "missing": (lambda t, f: text_of(t, f / "nowhere.txt"), "data.text.files[0]: "),
    "a folder": (lambda t, f: text_of(t, folder_in(f, "folder")), "data.text.files[0]: "),
    "a fifo": (lambda t, f: text_of(t, fifo(f)), "data.text.files[0]: "),
    "a device": (lambda t, f: text_of(t, "/dev/zero"), "data.text.files[0]: "),
    "more stages than blocks": (lambda t, f: changed(t(), parallel={"pipeline": 8}), "parallel.pipeline: "),
    "too little memory": (lambda t, f: changed(t(), resources={"memory_bytes": 1000}), "train.micro_batch: "),
    "weights missing": (lambda t, f: t(train__init_from=f"file://{f}/nowhere"), "train.init_from: "),
    "weights of another kind": (lambda t, f: t(train__init_from=f"file://{transformers_folder(f)}"), "train.init_from: "),
    "vocabulary too small": (lambda t, f: gpt(t(), vocabulary=10), "model.gpt.vocabulary: 10"),
    "no folder for checkpoints": (lambda t, f: changed(t(), checkpoint={"directory": "file:///proc/nope"}), "checkpoint.directory: '/proc/nope'"),
    "text as tokens": (tokens, "data.tokens.train[0]: the token file"),
    "tokens outside the vocabulary": (wide_tokens, "data.tokens.train[0]: the token file"),
    "more ranks than slots": (lambda t, f: t(data=4), "parallel: needs 4 cpu slots, more than the 2 of all attached executors"),
    "a GPU that is not there": (lambda t, f: changed(t(), resources={"accelerator": "cuda"}), "resources.accelerator: needs 1 cuda slot"),
}


def refused(service, spec, *arguments, status=2):
    path = service.directory / "wrong.json"
    path.write_text(json.dumps(spec))
    before = len(service.json("list", "--limit", 1000)["jobs"])
    told = [service.cli(command, path, *arguments, status=status).stderr for command in ("validate", "submit")]
    assert told[0] == told[1]
    assert len(service.json("list", "--limit", 1000)["jobs"]) == before, "no id was assigned"
    return [line.removeprefix(f"trainyard: {path}: ") for line in told[0].splitlines()]


@pytest.mark.parametrize("what", WRONG)
def test_a_spec_that_could_not_run_is_refused_with_its_field(shared_service, tiny, tmp_path, what):
    make, says = WRONG[what]
    lines = refused(shared_service, make(tiny, tmp_path))
    assert any(line.startswith(says) for line in lines), lines
    if what not in ("more stages than blocks", "a GPU that is not there"):
        assert len(lines) == 1, lines


def test_problems_of_several_kinds_are_told_at_once(shared_service, tiny, tmp_path):
    spec = changed(tiny(), parallel={"pipeline": 8}, checkpoint={"directory": "file:///proc/nope"})
    spec["data"]["text"]["files"] = [f"file://{tmp_path}/a", f"file://{tmp_path}/b"]
    spec["train"]["init_from"] = f"file://{tmp_path}/c"
    fields = [line.split(": ")[0] for line in refused(shared_service, spec)]
    assert sorted(fields) == sorted(["data.text.files[0]", "data.text.files[1]", "train.init_from", "parallel",
                                     "parallel.pipeline", "checkpoint.directory"])


def test_a_folder_for_checkpoints_that_cannot_be_made_is_refused_and_none_is_made(shared_service, tiny):
    place = shared_service.directory / "checkpoints"
    (place / "file").write_text("in the way")
    lines = refused(shared_service, changed(tiny(), checkpoint={"directory": f"file://{place}/file/below"}))
    assert len(lines) == 1 and lines[0].startswith(f"checkpoint.directory: '{place}/file/below' cannot be made"), lines
    good = shared_service.directory / "good.json"
    good.write_text(json.dumps(changed(tiny(), checkpoint={"directory": f"file://{place}/new/below"})))
    shared_service.cli("validate", good)
    assert not (place / "new").exists()


def test_an_origin_that_is_not_there_is_not_found(shared_service, tiny):
    lines = refused(shared_service, tiny(train__init_from="jobs/999999/checkpoints/1"), status=4)
    assert len(lines) == 1 and "train.init_from: " in lines[0]


def test_a_file_that_is_mended_is_accepted_at_once(shared_service, tiny, tmp_path):
    spec = text_of(tiny, tmp_path / "late.txt", steps=2)
    refused(shared_service, spec)
    write(tmp_path, "late.txt", b"The yard runs trains at night.\n" * 400)
    path = shared_service.directory / "wrong.json"
    shared_service.wait_end(shared_service.cli("submit", path).stdout.strip())


def test_a_fork_of_data_that_has_changed_is_refused(shared_service, tiny, tmp_path):
    path = write(tmp_path, "text.txt", b"The yard runs trains at night.\n" * 400)
    job = shared_service.cli("submit", "-", input=json.dumps(text_of(tiny, path, steps=5))).stdout.strip()
    shared_service.wait_end(job)
    write(tmp_path, "text.txt", b"The yard runs trains by day..\n" * 400)
    told = {shared_service.cli(command, "--fork", job, "--set", "train.steps=9", status=2).stderr
            for command in ("submit", "validate")}
    assert len(told) == 1
    assert told.pop().startswith(f"trainyard: --fork {job}: data: it has changed since the checkpoint that the fork begins with")


def test_weights_of_another_model_are_refused(shared_service, tiny):
    parent = shared_service.submit(tiny(steps=5))
    shared_service.wait_end(parent)
    origin = shared_service.json("checkpoints", parent)["checkpoints"][0]["name"]
    spec = gpt(tiny(steps=5, train__init_from=origin), width=64)
    assert refused(shared_service, spec) == ["train.init_from: model.gpt.width: 64, but the weights are of a model with 32"]


def test_a_check_that_is_skipped_leaves_it_to_the_ranks(shared_service, tiny, tmp_path):
    spec = shared_service.directory / "skipped.json"
    spec.write_text(json.dumps(text_of(tiny, tmp_path / "nowhere.txt")))
    job = shared_service.cli("submit", spec, "--skip-check").stdout.strip()
    ended = shared_service.wait_end(job, "FAILED")
    assert "nowhere.txt" in ended["reason"] and ended["attempt"] == 1


def test_a_refused_job_whose_check_is_skipped_tells_nothing_of_what_is_skipped(shared_service, tiny, tmp_path):
    spec = shared_service.directory / "skipped.json"
    spec.write_text(json.dumps(text_of(tiny, tmp_path / "nowhere.txt", data=4)))
    told = shared_service.cli("submit", spec, "--skip-check", status=2).stderr.splitlines()
    assert len(told) == 1 and told[0].startswith(f"trainyard: {spec}: parallel: needs 4 cpu slots"), told


def test_ranks_of_one_host_share_its_memory(shared_service, tiny):
    """One rank that needs 0.7 of the memory fits; two of them on the host's two slots do not."""
    path = shared_service.directory / "memory.json"

    def validate(batch, ranks, status=0):
        path.write_text(json.dumps(tiny(data=ranks, train__micro_batch=batch, train__global_batch=batch * ranks, train__lanes=ranks)))
        return shared_service.cli("validate", path, "-o", "json", status=status)

    def most(batch):
        return int(json.loads(validate(batch, 1).stdout)["plan"]["most_bytes"])
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(text) for limit in ["/sys/fs/cgroup/memory.max"] if os.path.exists(limit)
              for text in [open(limit).read().strip()] if text != "max"]
    room = min([room, *limits])
    batch = int(0.7 * room / (most(2000) - most(1000)) * 1000)
    validate(batch, 1)
    told = validate(batch, 2, status=2).stderr
    assert "train.micro_batch: rank 0 needs " in told and "that a rank can have" in told, told
