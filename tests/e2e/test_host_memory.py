"""The memory of a rank's process is what its plan says, within a constant (host_memory.py)."""

import os
import random
import time

import pytest

import host_memory as memory
import spec_campaign as campaign

DRAWN = int(os.environ.get("TRAINYARD_MEMORY_SPECS", 24))
MIB = 1 << 20


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return campaign.write_data(tmp_path_factory.mktemp("memory"), random.Random(11))


def test_processes_have_as_much_memory_as_planned(data):
    seed = int(os.environ.get("TRAINYARD_SEED", time.time_ns() % 2**32))
    print(f"TRAINYARD_SEED={seed}")
    draw = random.Random(seed)
    over = []
    for number in range(DRAWN):
        spec = memory.draw_spec(draw)
        layout = memory.draw_layout(spec, draw)
        ranks = memory.compare(spec, layout, data, resume=draw.random() < 1 / 2)
        assert len(ranks) == memory.world_size(layout)
        wrong = memory.wrong(spec, layout, ranks)
        assert not wrong, "\n".join(wrong)
        over += [rank["over_bytes"] for rank in ranks]
    print(f"{len(over)} ranks of {DRAWN} specs: {min(over) / MIB:.1f} to {max(over) / MIB:.1f} MiB more than planned")


def large(**train):
    """A snapshot of 150 MiB: what is not planned would be seen."""
    spec = campaign.minimal(random.Random(1), "gpt", "text")
    spec["model"]["gpt"] = {"layers": 4, "heads": 4, "width": 512, "context": 32}
    spec["train"].update(steps=2, global_batch=4, micro_batch=1, **train)
    spec["checkpoint"] = {"every": 1}
    return spec


def test_a_plan_counts_the_snapshot(data):
    [rank] = memory.compare(large(), {}, data, resume=False)
    planned = memory.plan(memory.completed(large(), {}, data), {})["memory"][0]
    snapshot = next(int(f["bytes"]) for f in planned["host"] if f["name"] == "snapshot")
    assert 120 * MIB < snapshot < 200 * MIB
    assert abs(int(planned["bytes"]) + int(planned["host_bytes"]) - rank["planned_bytes"]) < MIB
    assert not memory.wrong(large(), {}, [rank])


def test_a_limit_covers_the_whole_process(data):
    """The arena alone would fit."""
    spec = memory.completed(large(), {}, data)
    planned = memory.plan(spec, {})
    arena, whole = int(planned["memory"][0]["bytes"]), int(planned["most_bytes"])
    assert whole == arena + int(planned["memory"][0]["host_bytes"])
    spec["resources"] = {"memory_bytes": whole}
    memory.plan(spec, {})
    spec["resources"] = {"memory_bytes": arena + 100 * MIB}
    with pytest.raises(AssertionError, match="over the limit of"):
        memory.plan(spec, {})


def test_the_host_of_a_gpu_needs_the_snapshot_and_the_limit_is_the_gpus(data):
    spec = memory.completed(large(), {}, data) | {"resources": {"accelerator": "cuda"}}
    planned = memory.plan(spec, {})
    assert int(planned["most_bytes"]) == int(planned["memory"][0]["bytes"])
    assert int(planned["memory"][0]["host_bytes"]) > 120 * MIB
