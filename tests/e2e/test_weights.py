"""Weights that come from elsewhere: another job's checkpoint, a folder of Hugging Face's; and go there."""


def trained(service, spec):
    job = service.submit(spec)
    service.wait_end(job)
    return job


def test_a_job_begins_with_the_weights_of_a_checkpoint(shared_service, tiny):
    parent = trained(shared_service, tiny(steps=40, every=40))
    checkpoint = shared_service.json("checkpoints", parent)["checkpoints"][0]["name"]
    child = shared_service.submit(tiny(steps=5, train__init_from=checkpoint))
    ended = shared_service.wait_end(child)
    assert ended["initialised_from"] == checkpoint and "forked_from" in ended and ended["forked_from"] == ""
    loss, fresh = shared_service.metric(child, "loss"), shared_service.metric(parent, "loss")
    assert sorted(loss) == [1, 2, 3, 4, 5], "its steps are its own"
    assert loss[1] < fresh[1] - 0.5, "what the parent learned is there"


def test_weights_that_are_not_there_are_refused_with_the_field(shared_service, tiny):
    done = shared_service.cli("validate", "-", input="train: {init_from: nothing}", status=2)
    assert "train.init_from" in done.stderr
    path = shared_service.directory / "missing.json"
    import json
    path.write_text(json.dumps(tiny(train__init_from="jobs/1/checkpoints/999999")))
    done = shared_service.cli("submit", path, status=4)
    assert "train.init_from" in done.stderr


def test_an_exported_checkpoint_is_where_a_fine_tune_begins(shared_service, tiny, tmp_path):
    parent = trained(shared_service, tiny(steps=40, every=40))
    told = shared_service.cli("export", parent, "--huggingface", tmp_path / "model").stderr
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert told.startswith(f"{tmp_path}/model: ") and told.endswith("config.json, tokenizer.json (char)\n")
    assert f" {size} bytes (model.safetensors)" in told
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {p.name for p in (tmp_path / "model").iterdir()} == files
    said = shared_service.cli("export", parent, "--huggingface", tmp_path / "model", status=1).stderr
    assert "is not empty: give another folder, or --overwrite" in said
    shared_service.cli("export", parent, "--huggingface", tmp_path / "model", "--overwrite")
    child = shared_service.submit(tiny(steps=3, train__init_from=f"file://{tmp_path}/model"))
    shared_service.wait_end(child)
    checkpoint = shared_service.json("checkpoints", parent)["checkpoints"][0]["name"]
    twin = shared_service.submit(tiny(steps=3, train__init_from=checkpoint))
    shared_service.wait_end(twin)
    assert shared_service.metric(child, "loss")[1] == shared_service.metric(twin, "loss")[1]
