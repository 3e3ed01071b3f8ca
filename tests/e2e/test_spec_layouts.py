"""One spec, one history, for specs with fields left out: drawn from a printed seed (spec_campaign.py).

`./dev bench layouts` draws more."""

import os
import random
import time

import pytest

import spec_campaign as campaign

DRAWN = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return campaign.write_data(tmp_path_factory.mktemp("campaign"), random.Random(11))


def test_the_campaign_knows_every_optional_field():
    assert set(campaign.FIELDS) | set(campaign.FIXED) == campaign.optional_fields()


@pytest.mark.parametrize("family, precision", [("llama", None), ("resnet", "bf16")])
def test_more_micro_batches_than_lanes_have_one_history_with_reduce_left_out(data, family, precision):
    """Sixteen micro-batches on eight lanes: what is added first depends on `reduce`, which once followed `zero`."""
    spec = campaign.minimal(random.Random(3), family, campaign.SOURCES[family][0])
    spec["train"].update({"global_batch": 16, "micro_batch": 1} | ({"precision": precision} if precision else {}))
    parallel = [{"data": 2, "zero": 1}, {"data": 2, "zero": 2}, {"data": 4, "zero": 3}, {"pipeline": 2}]
    wrong = campaign.one_history(spec, [{"parallel": p} for p in parallel], data)
    assert not wrong, wrong


def test_drawn_specs_have_one_history_in_every_layout(data):
    seed = int(os.environ.get("TRAINYARD_SEED", time.time_ns() % 2**32))
    print(f"TRAINYARD_SEED={seed}")
    draw = random.Random(seed)
    for _ in range(DRAWN):
        spec = campaign.draw_spec(draw)
        wrong = campaign.one_history(spec, campaign.choose(campaign.layouts(spec, draw), draw, 4), data)
        assert not wrong, wrong
