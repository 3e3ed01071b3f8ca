"""trainyard-train plan: what a job would take, as table, JSON and picture, and one sentence for what cannot be."""

import json
import re
import resource
import subprocess
import xml.etree.ElementTree

from service_fixture import BIN
from shapes import png


def plan(spec, *arguments, status=0):
    done = subprocess.run([BIN / "trainyard-train", "plan", "-", *arguments], input=json.dumps(spec), text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def as_json(spec, *arguments):
    return json.loads(plan(spec, "--json", *arguments))


def test_the_plan_tells_what_a_job_takes(tiny):
    spec = tiny(data=2)
    table = plan(spec, "--device", "h200")
    for part in ("2 ranks: data 2 x pipeline 1", "8 samples = 4 micro-batches of 2; lanes 4", "it fits",
                 "micro-batches of 2 fit, and 8 samples in 4 lanes cannot be cut into larger ones", "reduce", "s a step"):
        assert part in table, table
    told = as_json(spec, "--device", "h200")
    assert told["ranks"] == 2 and told["device"] == "h200" and told["step_seconds"] > 0
    [rank] = told["memory"]
    assert int(rank["bytes"]) == sum(int(f["bytes"]) for f in rank["families"]) == int(told["most_bytes"])
    assert told["optimizer_bytes_per_parameter"] == 8 and told["weight_bytes_per_parameter"] == 4
    assert told["bubble"] < 0.2 and told["tokens_per_second"] > told["samples_per_second"] > 0


def test_a_plan_for_this_machine_is_measured_here(tiny):
    told = as_json(tiny())
    assert told["device"] == "cpu" and told["device_source"] == "measured here" and int(told["memory_bytes"]) > 1 << 28


def seconds_of_children():
    """The processor's, which a busy machine does not make more of."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_thousand_ranks_are_planned_in_two_seconds(tiny):
    spec = tiny(layers=14, width=64, parallel__pipeline=4, parallel__zero=1)
    began = seconds_of_children()
    told = as_json(spec, "--device", "h100", "--ranks", "1024")
    seconds = seconds_of_children() - began
    print(f"{seconds:.2f} s")
    assert seconds < 2
    assert told["ranks"] == 1024 and told["data"] == 256 and len(told["memory"]) == 4 == len(told["stages"])
    assert "for 1024 ranks" in told["note"]
    assert any(int(link["far_bytes"]) > 0 for link in told["wire"])
    assert sum(int(stage["parameters"]) for stage in told["stages"]) == int(told["parameters"])


def test_sharding_and_recompute_make_it_smaller(tiny):
    def bytes_of(**more):
        return int(as_json(tiny(layers=8, width=64, data=4, **more), "--device", "h200")["most_bytes"])
    plain = bytes_of()
    assert bytes_of(parallel__zero=1) < plain
    assert bytes_of(parallel__zero=3, train__reduce="micro_batch") < bytes_of(parallel__zero=1)


def test_a_plan_says_what_whole_gradients_cost_where_a_rank_could_keep_its_part(tiny):
    """One lane a rank, four micro-batches a lane. With more lanes or whole gradients `step` is the smaller one."""
    def told(lanes, zero, **more):
        spec = tiny(data=2, train__lanes=lanes, train__global_batch=16, parallel__zero=zero, **more)
        return plan(spec, "--device", "h200")
    hint = "train.reduce: micro_batch keeps a rank's part, and sends 4 times as much"
    assert hint in told(2, 2) and hint in told(2, 3)
    for other in (told(4, 3), told(2, 1), told(2, 3, train__reduce="micro_batch")):
        assert "keeps whole gradients" not in other


def test_a_plan_says_why_there_is_no_larger_micro_batch(tiny):
    spec = tiny(train__global_batch=64, train__micro_batch=1, train__lanes=1, width=64)
    room = int(as_json(spec, "--device", "h200")["most_bytes"]) * 2
    table = plan(spec, "--device", "h200", "--memory", str(room))
    largest = int(re.search(r"the largest micro-batch that fits is (\d+)\n", table)[1])
    assert 1 < largest < 64
    told = as_json(spec, "--device", "h200", "--memory", str(room))
    assert told["largest_micro_batch"] == largest and told["larger_exceeds_memory"] is True
    assert as_json(spec, "--device", "h200")["larger_exceeds_memory"] is False


def test_with_an_empty_data_root_no_file_is_read(tiny, text_file):
    spec = tiny(data__text={"files": [f"file://{text_file}"]})
    assert f"'{text_file}' is closed to jobs: no --data-root is given" in plan(spec, "--data-root", "", status=1)
    plan(spec, "--data-root", "", "--data-root", text_file.parent)


def test_one_is_one(tiny):
    spec = tiny(train__global_batch=1, train__micro_batch=1, train__lanes=1)
    assert "batch    1 sample = 1 micro-batch of 1; lanes 1" in plan(spec, "--device", "h200")


def test_weights_that_stages_share_have_a_place_on_the_clock(tmp_path):
    """Ranks of a stage and stages of a column exchange in turn: none waits for ranks that are at another exchange."""
    (tmp_path / "scan.png").write_bytes(png([bytes(range(48))] * 16))
    spec = {"name": "shared", "model": {"unrolled": {"iterations": 4, "channels": 6, "layers": 2, "shared_weights": True}},
            "data": {"reconstruction": {"train": f"file://{tmp_path}"}}, "train": {"steps": 2, "global_batch": 8},
            "parallel": {"data": 2, "pipeline": 2}}
    planned = as_json(spec, "--device", "h200")
    assert planned["ranks"] == 4 and planned["step_seconds"] > 0


def test_the_pipeline_is_drawn(tiny, tmp_path):
    svg = tmp_path / "step.svg"
    spec = tiny(layers=6, parallel__pipeline=2, parallel__pipeline_schedule="1f1b")
    table = plan(spec, "--device", "v100", "--svg", svg)
    assert "stage 0" in table and "bubble" in table
    root = xml.etree.ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg") and len(root) > 20


def families(told):
    [rank] = told["memory"]
    return {family["name"]: int(family["bytes"]) for family in rank["families"]}


def test_the_plan_is_what_a_rank_allocates(tiny, tmp_path):
    spec = tiny(train__precision="bf16")
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    done = subprocess.run([BIN / "trainyard-train", path, "--plan", "--threads", "1"], text=True, capture_output=True,
                          timeout=300, check=True)
    allocated = re.findall(r"^  (\w+) +(\d+) bytes$", done.stdout, re.MULTILINE)
    planned = families(as_json(spec, "--threads", "1"))
    assert {name: int(bytes_) for name, bytes_ in allocated} == planned and len(planned) == 7


def test_a_spec_for_gpus_is_planned_on_a_host_without_one(tiny, tmp_path):
    svg = tmp_path / "step.svg"
    spec = tiny(width=64, data=2, train__precision="bf16", train__micro_batch=4, train__lanes=2, parallel__zero=1,
                resources__accelerator="cuda")
    spec["model"]["gpt"]["context"] = 256
    told = {device: as_json(spec, "--device", device) for device in ("h200", "h100", "a100")}
    table = plan(spec, "--device", "h200", "--svg", svg)
    assert "it fits" in table and "workspace" in table
    assert xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg")
    # Bytes follow from shapes alone: on every device the same. Attention's order of sums takes 2 bytes for each score.
    assert told["h200"]["memory"] == told["h100"]["memory"] == told["a100"]["memory"]
    scores = 4 * 2 * 256 * 256
    assert 2 * scores < families(told["h200"])["workspace"] < 3 * scores
    assert told["h200"]["step_seconds"] < told["a100"]["step_seconds"]
    fast = as_json({**spec, "train": {**spec["train"], "numerics": "fast"}}, "--device", "h200")
    assert families(fast)["workspace"] < families(told["h200"])["workspace"]


def test_a_spec_for_gpus_without_a_device_says_which_is_assumed(tiny):
    spec = tiny(train__precision="bf16", resources__accelerator="cuda")
    told = as_json(spec)
    assert told["device"] == "h200" and "h200 is assumed" in told["note"]
    named = as_json(spec, "--device", "h200")
    assert named["memory"] == told["memory"] and not named["note"]


def test_a_device_decides_whose_kernels_are_planned(tiny):
    gpu, cpu = tiny(resources__accelerator="cuda"), tiny()
    assert as_json(gpu, "--device", "h100")["memory"] == as_json(cpu, "--device", "h100")["memory"]
    assert as_json(gpu, "--device", "cpu")["memory"] == as_json(cpu)["memory"]


def test_what_cannot_be_is_refused_in_one_sentence(tiny):
    for arguments, sentence in (
        (["--device", "h300"], "there is no device profile h300: name one of cpu, v100, a100, h100, h200"),
        (["--ranks", "3"], "--ranks 3: parallel.pipeline 1 times a power of two"),
        (["--set", "parallel.pipeline=9"], "parallel.pipeline: 9"),
        (["--set", "parallel.zero=2", "--set", "parallel.pipeline=2", "--set", "parallel.data=2"], "parallel.zero"),
        (["--memory", "100000"], "train.micro_batch: 2 needs"),
        (["--ranks", "many"], "'many' is not a value"),
    ):
        said = plan(tiny(), *arguments, status=2)
        assert sentence in said and len(said.strip().splitlines()) == 1, said
