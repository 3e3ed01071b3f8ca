"""`auto`, plans and ValidateJob: what a job would take, chosen once and kept."""

import json

LIMIT = 64_000_000


def automatic(tiny, **more):
    spec = tiny(steps=3000, every=100, **more)
    del spec["train"]["micro_batch"], spec["train"]["lanes"]
    spec["train"]["micro_batch"] = "auto"
    spec["resources"] = {"memory_bytes": LIMIT}
    return spec


def plan(service, spec, *arguments, **more):
    return service.cli("plan", "-", *arguments, input=json.dumps(spec), **more)


def test_auto_is_chosen_before_the_first_step_and_survives_a_kill(service, tiny):
    spec = automatic(tiny)
    ended = service.end_of_killed(spec, rank=0)
    train = ended["spec"]["train"]
    assert ended["attempt"] == 2 and train["micro_batch_auto"]
    planned = json.loads(plan(service, spec, "-o", "json").stdout)
    assert train["micro_batch"] == planned["micro_batch"] and train["lanes"] == planned["lanes"]
    del spec["resources"]
    spec["train"].update(micro_batch=train["micro_batch"], lanes=train["lanes"], recompute=train["recompute"])
    assert service.wait_end(service.submit(spec))["weights_sha256"] == ended["weights_sha256"]


def test_a_plan_tells_bytes_by_family_the_bubble_and_the_largest_micro_batch(shared_service, tiny):
    spec = tiny()
    spec["parallel"] = {"data": 2, "pipeline": 2}
    spec["resources"] = {"memory_bytes": 100_000_000}
    told = json.loads(plan(shared_service, spec, "-o", "json").stdout)
    assert told["ranks"] == 4 and told["micro_batch"] == 2
    assert 0 < told["bubble"] < 1 and told["step_seconds"] > 0
    for rank in told["memory"]:
        assert int(rank["bytes"]) == sum(int(f["bytes"]) for f in rank["families"]) <= int(told["most_bytes"])
    table = plan(shared_service, spec).stdout
    assert "optimizer" in table and "bubble" in table


def test_a_plan_of_a_thousand_ranks_on_another_device_is_drawn(shared_service, tiny, tmp_path):
    spec = tiny(layers=16)
    spec["train"].update(global_batch=2048, micro_batch=1, lanes=64)
    spec["parallel"] = {"data": 64, "pipeline": 16}
    told = json.loads(plan(shared_service, spec, "--device", "h200", "--svg", tmp_path / "step.svg", "-o", "json").stdout)
    assert told["ranks"] == 1024 and "h200" in told["device"]
    assert (tmp_path / "step.svg").read_text().startswith("<svg")


def test_a_micro_batch_that_cannot_fit_is_told_with_the_largest_that_can(shared_service, tiny):
    spec = tiny(width=256)
    spec["train"].update(global_batch=64, micro_batch=16, lanes=4)
    whole = int(json.loads(plan(shared_service, spec, "-o", "json").stdout)["most_bytes"])
    spec["resources"] = {"memory_bytes": whole - (2 << 20)}  # a host may have fewer threads
    done = plan(shared_service, spec, status=2)
    assert "micro_batch" in done.stderr and "largest" in done.stderr, done.stderr
    refused = shared_service.cli("submit", "-", input=json.dumps(spec), status=2)
    assert "train.micro_batch: 16 needs" in refused.stderr and "largest" in refused.stderr, refused.stderr


def validated(service, spec, *arguments, **more):
    return service.cli("validate", "-", "-o", "json", *arguments, input=json.dumps(spec), **more)


def test_the_controller_says_what_a_job_would_take(shared_service, tiny):
    told = json.loads(validated(shared_service, tiny(data=2)).stdout)
    assert told["plan"]["ranks"] == 2 and int(told["plan"]["most_bytes"]) > 0
    assert "per rank" in shared_service.cli("validate", "-", input=json.dumps(tiny())).stdout


def test_the_controller_says_it_of_a_job_for_gpus_that_nobody_has(shared_service, tiny):
    spec = tiny(data=2)
    spec["resources"] = {"accelerator": "cuda"}
    told = json.loads(validated(shared_service, spec, "--wait-for-hosts").stdout)
    assert told["plan"]["ranks"] == 2 and int(told["plan"]["most_bytes"]) > 0 and "assumed" in told["plan"]["note"]
    assert len(told["unchecked"]) == 1 and "no executor is attached" in told["unchecked"][0]
    done = shared_service.cli("validate", "-", "--wait-for-hosts", input=json.dumps(spec))
    assert "per rank" in done.stdout and "h200 is assumed" in done.stdout and "not checked: data" in done.stderr


def test_the_controller_plans_no_spec_whose_data_it_cannot_see_and_refuses_what_cannot_be(shared_service, tiny):
    spec = tiny()
    spec["resources"] = {"accelerator": "cuda"}  # no host can be asked
    spec["data"]["text"]["files"] = ["file:///nowhere/text.txt"]
    told = json.loads(validated(shared_service, spec, "--wait-for-hosts").stdout)
    assert "plan" not in told and "/nowhere/text.txt" in told["plan_reason"] and told["resolved"]
    spec = tiny()
    spec.update(parallel={"pipeline": 64}, resources={"accelerator": "cuda"})
    told = json.loads(validated(shared_service, spec, "--wait-for-hosts", status=2).stdout)
    assert len(told["problems"]) == 1 and "pipeline" in told["problems"][0]


def test_a_spec_that_is_printed_with_its_defaults_can_be_submitted(shared_service, tiny):
    def validate(text, *arguments):
        return shared_service.cli("validate", "-", "-o", "yaml", *arguments, input=text).stdout
    whole = validate(json.dumps(tiny(steps=3, data=2)))
    assert "weight_decay" in whole and validate(whole) == whole
    assert validate(whole, "--controller", shared_service.address) == whole
    shared_service.wait_end(shared_service.cli("submit", "-", input=whole).stdout.strip())
