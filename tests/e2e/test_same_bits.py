"""Same spec, same bits: the layout does not show in the weights; a flipped weight and another seed do."""

import json
import pathlib
import shutil

from test_main_job import recomputed_sha256


def weights(service, spec):
    return service.wait_end(service.submit(spec))["weights_sha256"]


def test_one_and_two_ranks_make_the_same_weights(shared_service, tiny):
    digests = {weights(shared_service, tiny(steps=30, data=d)) for d in (1, 2)}
    assert len(digests) == 1


def test_both_reductions_keep_the_promise_each_for_itself(shared_service, tiny):
    spec = dict(steps=15, train__reduce="micro_batch", train__global_batch=16)
    digests = {weights(shared_service, tiny(data=d, **spec)) for d in (1, 2)}
    assert len(digests) == 1


def test_another_seed_makes_other_weights(shared_service, tiny):
    assert weights(shared_service, tiny(steps=5, seed=1)) != weights(shared_service, tiny(steps=5, seed=2))


def test_dropout_does_not_depend_on_the_layout(shared_service, tiny):
    def spec(data):
        made = tiny(steps=15, data=data)
        made["model"]["gpt"]["dropout"] = 0.2
        return made
    assert len({weights(shared_service, spec(d)) for d in (1, 2)}) == 1


def test_one_flipped_weight_changes_the_digest(shared_service, tiny, tmp_path):
    job = shared_service.submit(tiny(steps=5))
    shared_service.wait_end(job)
    directory = pathlib.Path(shared_service.json("checkpoints", job)["checkpoints"][0]["directory"])
    before = recomputed_sha256(directory)
    copy = tmp_path / "step"
    shutil.copytree(directory, copy)
    assert recomputed_sha256(copy) == before
    file = copy / "rank-0.safetensors"
    raw = bytearray(file.read_bytes())
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    start = 8 + int.from_bytes(raw[:8], "little")
    name, entry = next((n, t) for n, t in sorted(header.items()) if n.startswith("transformer."))
    raw[start + entry["data_offsets"][0]] ^= 1
    file.write_bytes(raw)
    assert recomputed_sha256(copy) != before, name
