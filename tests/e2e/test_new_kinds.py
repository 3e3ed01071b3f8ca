"""A model of existing ops, an optimizer, a data kind, a learning rate and a pipeline schedule: each is written into a
copy of the tree, touches at most five files, builds, and trains."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from service_fixture import PATIENCE, ROOT

pytestmark = pytest.mark.xdist_group("new_kinds")
FILES_MAX = 5
NOT_SOURCES = {"build", ".git", ".trainyard", "shared"}
MODEL = """
message BagModel {
  optional int32 layers = 1 [(field) = {default: "2" min: 1 max: 64 help: "linear layers"}];
  optional int32 width = 2 [(field) = {required: true min: 1 max: 4096 help: "size of an embedding"}];
  optional int32 context = 3 [(field) = {required: true min: 1 max: 4096 unit: "tokens" help: "length of a sample"}];
  optional int32 vocabulary = 4 [(field) = {computed: "the tokenizer's" min: 2 max: 65536 help: "rows of the embedding"}];
}
"""
OPTIMIZER = """
message Signum {
  optional double lr = 1 [(field) = {default: "0.001" above: 0 max: 1 help: "size of a step"}];
}
"""
DATA = """
message CycleData {
  optional int32 period = 1 [(field) = {required: true min: 2 max: 100 unit: "tokens" help: "after which they repeat"}];
}
"""
RATE = """
message RootSchedule {
  int64 warmup_steps = 1 [(field) = {min: 0 unit: "steps" help: "before the first step at `lr`"}];
}
"""
# What CONTRIBUTING.md says: the text that spec.proto gets, where the file goes, and the list that names the kind.
KINDS = {
    "model": {
        "member": ("  oneof family {\n",
                   '    BagModel bag = 15 [(field) = {samples: "tokens" help: "one token predicts the next"}];\n'),
        "message": MODEL, "file": "engine/model/bag.c", "list": ("engine/model/model.h", "KIND(unrolled)", "KIND(bag)")},
    "optimizer": {
        "member": ("message OptimizerSpec {\n  oneof kind {\n", "    Signum signum = 15;\n"),
        "message": OPTIMIZER, "file": "engine/optimizer/signum.c",
        "list": ("engine/optimizer/optimizer.h", "KIND(muon)", "KIND(signum)")},
    "data": {
        "member": ("  oneof source {\n", '    CycleData cycle = 15 [(field) = {samples: "tokens" help: "a cycle"}];\n'),
        "message": DATA, "file": "engine/data/cycle.c",
        "list": ("engine/data/source.h", "KIND(reconstruction)", "KIND(cycle)")},
    "learning rate": {
        "member": ("message ScheduleSpec {\n  oneof kind {\n", "    RootSchedule root = 15;\n"),
        "message": RATE, "file": "engine/run/rate_root.c",
        "list": ("engine/run/learning_rate.h", "KIND(wsd)", "KIND(root)")},
    "pipeline schedule": {
        "member": ('choices: ["gpipe", ', '"pairs", '), "message": "", "file": "engine/plan/build/schedule_pairs.c",
        "list": ("engine/plan/schedule_kind.h", "KIND(zero_bubble)", "KIND(pairs)")},
}


def insert_after(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, old + new))


def add_kind(tree, kind):
    proto = tree / "api/trainyard/v1/spec.proto"
    insert_after(proto, *kind["member"])
    proto.write_text(proto.read_text() + kind["message"])
    shutil.copy(ROOT / "tests/e2e/kinds" / pathlib.Path(kind["file"]).name, tree / kind["file"])
    header, last, added = kind["list"]
    insert_after(tree / header, last, " " + added)
    subprocess.run(["/usr/bin/python3", tree / "tests/lint/spec_fields.py", "--write"], check=True)


def contents(tree):
    return {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources with all kinds, and the files that each of them touched."""
    copy = tmp_path_factory.mktemp("tree") / "trainyard"
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: NOT_SOURCES if pathlib.Path(folder) == ROOT else set())
    touched, before = {}, contents(copy)
    for name, kind in KINDS.items():
        add_kind(copy, kind)
        after = contents(copy)
        touched[name] = sorted(path for path in after if before.get(path) != after[path])
        before = after
    return copy, touched


@pytest.fixture(scope="module")
def program(tree):
    run("cmake", "--preset", "plain", "-DTRAINYARD_TESTS=OFF", "-DCMAKE_C_FLAGS_DEBUG=-O0", cwd=tree[0])
    run("cmake", "--build", "build/plain", "--target", "trainyard-train", "-j", str(os.cpu_count()), cwd=tree[0],
        timeout=900 * PATIENCE)
    return tree[0] / "build/plain/bin/trainyard-train"


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "text").write_text("the yard runs trains at night. " * 200)
    return {"name": "bag", "model": {"bag": {"width": 16, "context": 8}},
            "data": {"text": {"files": [f"file://{tmp_path}/text"]}},
            "train": {"steps": 30, "global_batch": 8, "lanes": 2, "optimizer": {"adamw": {"lr": 0.01}}}}


def train(program, spec, folder, layouts):
    """The losses and the weights, which are the same in every layout."""
    (folder / "job.json").write_text(json.dumps(spec))
    results = set()
    for layout in layouts:
        out = run(program, folder / "job.json", *[f"--set=parallel.{part}" for part in layout.split()], "--json", "--threads", "1",
                  "--checkpoints", folder / layout, timeout=120 * PATIENCE)
        losses = tuple(json.loads(line)["loss"] for line in out.splitlines() if '"loss"' in line)
        manifest = json.loads((folder / layout / f"step-{spec['train']['steps']}/manifest.json").read_text())
        results.add((losses, manifest["weights_sha256"]))
    assert len(results) == 1, results
    return results.pop()


@pytest.mark.parametrize("name", KINDS)
def test_a_new_kind_touches_at_most_five_files(tree, name):
    assert 0 < len(tree[1][name]) <= FILES_MAX, tree[1][name]


def test_a_new_model_is_built_and_trains_in_every_layout_alike(program, spec, tmp_path):
    losses, _ = train(program, spec, tmp_path, ["data=1", "data=2", "pipeline=2"])
    assert losses[-1] < losses[0] - 0.3, losses
    sample = run(program, "sample", tmp_path / "data=1/step-30", "--prompt", "t", "--tokens", "5")
    assert len(sample) >= 5, sample


def test_a_new_optimizer_trains_in_every_layout_alike(program, spec, tmp_path):
    spec["train"]["optimizer"] = {"signum": {"lr": 0.01}}
    losses, _ = train(program, spec, tmp_path, ["data=1", "data=2", "data=2 zero=3"])
    assert losses[-1] < losses[0] - 0.3, losses


def test_a_new_data_kind_is_learnt(program, spec, tmp_path):
    spec["data"] = {"cycle": {"period": 5}}
    spec["model"]["bag"]["vocabulary"] = 5
    losses, _ = train(program, spec, tmp_path, ["data=1", "data=2"])
    assert losses[-1] < 0.6 * losses[0], losses


def test_a_new_learning_rate_changes_the_weights_alike_in_every_layout(program, spec, tmp_path):
    _, constant = train(program, spec, tmp_path, ["data=1"])
    spec["train"]["learning_rate_schedule"] = {"root": {"warmup_steps": 3}}
    assert train(program, spec, tmp_path, ["data=1", "data=2"])[1] != constant


def test_a_new_pipeline_schedule_gives_the_same_weights(program, spec, tmp_path):
    train(program, spec, tmp_path, ["pipeline=1", "pipeline=2", "pipeline=2 pipeline_schedule=pairs"])


def test_the_wrong_spec_of_a_new_model_is_refused_by_its_options(program, tmp_path):
    (tmp_path / "job.yaml").write_text("name: a\nmodel: {bag: {width: 5000, context: 8}}\n"
                                       "data: {idx: {train_images: 'file:///i', train_labels: 'file:///l'}}\n"
                                       "train: {steps: 1, global_batch: 1}\n")
    done = subprocess.run([program, tmp_path / "job.yaml"], capture_output=True, text=True)
    assert "model.bag.width: 5000 is not from 1 to 4096" in done.stderr, done.stderr
    assert "data: model.bag cannot read idx; give text or tokens or mixture or cycle" in done.stderr, done.stderr
