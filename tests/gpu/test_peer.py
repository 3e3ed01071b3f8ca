"""The speed parts' two sides on a CPU, tiny, by the lines that run on a device: what PyTorch does, where there is one
(TRAINYARD_TORCH names its Python), and what trainyard-train does."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import host
from service_fixture import BIN

HERE = pathlib.Path(__file__).resolve().parent

# Graphs are captured as for a device, then run as they are: compilers would take minutes.
UNCOMPILED = """
import functools, json, sys, torch
torch.compile = functools.partial(torch.compile, backend="eager", fullgraph=True)
import peer
"""


def script(python, text, *words):
    """The last line that it prints, in a dry run."""
    done = subprocess.run([python, "-B", "-c", text, *words], cwd=HERE, env=dict(os.environ, TRAINYARD_GPU_DRY="1"),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def torch():
    """Runs a script by the Python that has it."""
    try:
        host.has_torch()
    except host.Skip as x:
        pytest.skip(str(x))
    return lambda *words: script(host.python(), *words)


def test_what_a_dry_run_has_in_torch_cudas_place_is_named_as_there(torch):
    assert torch("""
import no_cuda, torch
ours = [name for name in vars(no_cuda) if name[0] != "_" and name != "time"]
events = [name for name in vars(no_cuda.Event) if name[0] != "_"]
assert len(ours) >= 7 and len(events) == 2
assert all(hasattr(torch.cuda, name) for name in ours) and all(hasattr(torch.cuda.Event, name) for name in events)
print("named")""") == "named"


def test_each_of_pytorchs_models_is_one_graph_and_trains_with_the_best_attention(torch):
    said = json.loads(torch(f"""{UNCOMPILED}
print(json.dumps({{name: peer.steps(name) for name in peer.MODELS}}))"""))
    assert list(said) == ["GPT-2 124M", "GPT-2 350M", "GPT-2 1558M", "Llama 1B", "ResNet-50"]
    assert all(len(found["times"]) == 2 and min(found["times"]) > 0 for found in said.values())
    assert all("flash attention of flash " in said[name]["said"] for name in said if name != "ResNet-50")
    assert "blocks compiled" in said["GPT-2 1558M"]["said"] and "no attention" in said["ResNet-50"]["said"]


def test_pytorch_takes_micro_batches_where_a_batch_has_no_room(torch):
    said = json.loads(torch(f"""{UNCOMPILED}
whole = peer.measured
def measured(model, count):
    if count < 4:
        raise torch.OutOfMemoryError("no room")
    return whole(model, count)
peer.measured = measured
print(json.dumps(peer.steps("GPT-2 124M")))"""))
    assert "in 4 micro-batches" in said["said"]


def test_pytorchs_kernels_and_recipe_run(torch, tmp_path):
    (tmp_path / "text").write_text("to be or not to be, that is the question\n" * 50)
    said = json.loads(torch(f"""{UNCOMPILED}
peer.SHAPES = {{"124M": 32}}
print(json.dumps([peer.products(), peer.attention(), peer.repeat(), peer.learn(sys.argv[1])]))""", tmp_path / "text"))
    products, attention, repeat, learn = said
    assert len(products["rows"]) == 4 and len(attention["rows"]) == 4
    assert "flash_attention: the same bits in 20 repeats" in repeat["said"] and 0 < learn["loss"] < 4


@pytest.mark.parametrize("numerics", ["fast", "reproducible"])
def test_trainyard_train_takes_the_steps_that_are_measured(tmp_path, numerics):
    said = json.loads(script(sys.executable, """
import json, pathlib, sys
import host, measured, models
host.WORK, host.build = pathlib.Path(sys.argv[1]), lambda: pathlib.Path(sys.argv[2])
host.REPORTS = host.WORK / "reports"
print(json.dumps({name: measured.ours(name, sys.argv[3]) for name in models.MODELS}))""", tmp_path, BIN.parent, numerics))
    assert len(said) == 5
    assert all(len(found["times"]) == 1 and min(found["times"]) > 0 and found["own"][0] > 0 for found in said.values())


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_from_weights_that_pytorch_wrote_the_first_step_is_pytorchs(torch, tmp_path, precision):
    said = json.loads(script(sys.executable, """
import json, pathlib, sys
import full_size, host
host.WORK, host.build = pathlib.Path(sys.argv[1]), lambda: pathlib.Path(sys.argv[2])
host.REPORTS = host.WORK / "reports"
print(json.dumps(full_size.as_pytorch(sys.argv[3])()))""", tmp_path, BIN.parent, precision))
    assert "the same weights and tokens: loss " in said
