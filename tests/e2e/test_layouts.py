"""Layouts through the service: pipeline stages, sharding and recompute show in no weight, and any layout takes over from any other."""

import json

import pytest

LAYOUTS = [
    {"data": 2}, {"data": 2, "zero": 1}, {"pipeline": 2}, {"pipeline": 2, "pipeline_schedule": "gpipe"},
    {"pipeline": 2, "pipeline_schedule": "zero_bubble"}, {"pipeline": 2, "pipeline_schedule": "interleaved"},
    {"data": 2, "zero": 2}, {"data": 2, "zero": 3},
]


def laid_out(tiny, layout, **more):
    spec = tiny(steps=12, every=6, train__global_batch=16, **more)  # two micro-batches a lane: `reduce`, left out, means something
    spec["parallel"] = layout
    return spec


def weights(service, spec):
    return service.wait_end(service.submit(spec))["weights_sha256"]


@pytest.fixture(scope="module")
def alone(shared_service, tiny):
    return weights(shared_service, laid_out(tiny, {}))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_layout_does_not_show_in_the_weights(shared_service, tiny, alone, layout):
    assert weights(shared_service, laid_out(tiny, layout)) == alone


@pytest.mark.parametrize("recompute", ["selective", "block"])
def test_recompute_makes_the_same_weights(shared_service, tiny, alone, recompute):
    assert weights(shared_service, laid_out(tiny, {"pipeline": 2}, train__recompute=recompute)) == alone


def test_a_fork_goes_on_in_another_layout_to_the_same_bits(shared_service, tiny, alone):
    parent = shared_service.submit(laid_out(tiny, {"data": 2, "zero": 1}))
    shared_service.wait_end(parent)
    fork = shared_service.cli("submit", "--fork", f"{parent}@6", "--set", "parallel={pipeline: 2}").stdout.strip()
    assert shared_service.wait_end(fork)["weights_sha256"] == alone


def test_a_layout_that_cannot_be_is_refused_before_it_is_stored(shared_service, tiny):
    spec = laid_out(tiny, {"pipeline": 2, "data": 2, "zero": 3})
    done = shared_service.cli("submit", "-", status=2, input=json.dumps(spec))
    assert "parallel.zero: 3 shards gradients" in done.stderr


def test_more_stages_than_blocks_are_refused_and_fail_an_unchecked_job(service, tiny):
    """Two blocks, an embedding and a head: four pieces at most; eight stages are asked for on a machine of two slots."""
    spec = laid_out(tiny, {"pipeline": 2, "pipeline_schedule": "interleaved", "virtual_stages": 8})
    refused = service.cli("submit", "-", input=json.dumps(spec), status=2)
    assert "parallel.pipeline: 2 stages of 8 virtual stages cannot be cut" in refused.stderr
    ended = service.wait_end(service.submit(spec, "--skip-check"), "FAILED")
    assert "parallel.pipeline: 2 stages of 8 virtual stages cannot be cut" in ended["reason"], ended["attempts"]


@pytest.mark.parametrize("layout", [{"pipeline": 2}, {"data": 2, "zero": 3}], ids=str)
def test_a_killed_rank_of_any_layout_changes_no_bit(service, tiny, layout):
    """The other rank learns of it, both start again from the newest checkpoint, whose parts the two wrote."""
    spec = tiny(steps=1200, every=40)
    spec["train"]["reduce"] = "micro_batch"
    expected = weights(service, spec)
    spec["parallel"] = layout
    ended = service.end_of_killed(spec, rank=1)
    assert ended["attempt"] == 2 and int(ended["attempts"][1]["from_step"]) >= 40
    assert ended["weights_sha256"] == expected
