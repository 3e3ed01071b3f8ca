"""Bad input gets one clear sentence and a fitting exit code; nothing crashes and nothing is lost."""

import json


def test_a_wrong_spec_is_refused_with_the_path_and_the_reason(shared_service, tiny):
    spec = tiny()
    spec["model"]["gpt"]["heads"] = 5
    (shared_service.directory / "bad.json").write_text(json.dumps(spec))
    for command in ("submit", "validate"):
        done = shared_service.cli(command, shared_service.directory / "bad.json", status=2)
        assert "model.gpt.heads: 5 does not divide width 32" in done.stderr, done.stderr


def test_an_unknown_field_is_refused(shared_service, tiny):
    spec = tiny()
    spec["train"]["stepz"] = 3
    (shared_service.directory / "bad.json").write_text(json.dumps(spec))
    done = shared_service.cli("submit", shared_service.directory / "bad.json", status=2)
    assert "train.stepz" in done.stderr


def test_an_unknown_job_is_not_found(shared_service):
    for command in ("get", "watch", "events", "cancel", "retry", "metrics", "logs", "checkpoints"):
        done = shared_service.cli(command, "999999", status=4)
        assert "999999" in done.stderr, (command, done.stderr)


def test_a_second_cancel_is_refused(shared_service, tiny):
    job = shared_service.submit(tiny(steps=5))
    shared_service.wait_end(job)
    done = shared_service.cli("cancel", job, status=1)
    assert "SUCCEEDED" in done.stderr or "ended" in done.stderr, done.stderr


def test_retry_of_a_job_that_did_not_fail_is_refused(shared_service, tiny):
    job = shared_service.submit(tiny(steps=5))
    shared_service.wait_end(job)
    done = shared_service.cli("retry", job, status=1)
    assert "FAILED" in done.stderr, done.stderr


def test_a_missing_data_file_fails_the_job_without_a_retry(shared_service, tiny):
    spec = tiny()
    spec["data"]["text"]["files"] = ["file:///nowhere/text.txt"]
    job = shared_service.submit(spec)
    ended = shared_service.wait_end(job, "FAILED")
    assert "/nowhere/text.txt" in ended["reason"] and ended["attempt"] == 1


def test_a_text_too_short_fails_the_job_with_what_it_needs(shared_service, tiny):
    short = shared_service.directory / "short.txt"
    short.write_text("too short")
    spec = tiny()
    spec["data"]["text"]["files"] = [f"file://{short}"]
    ended = shared_service.wait_end(shared_service.submit(spec), "FAILED")
    assert "context" in ended["reason"] or "tokens" in ended["reason"], ended["reason"]


def test_a_diverging_loss_ends_the_job_with_the_step(shared_service, tiny):
    spec = tiny(steps=200)
    spec["train"]["optimizer"]["adamw"]["lr"] = 1e30
    spec["train"]["learning_rate_schedule"] = {"constant": {}}
    ended = shared_service.wait_end(shared_service.submit(spec), "FAILED")
    assert "step" in ended["reason"] and ended["attempt"] == 1, ended["reason"]


def test_an_unreachable_controller_is_told_with_its_address(shared_service, tmp_path):
    done = shared_service.cli("list", "--controller", f"unix:{tmp_path}/nobody.sock", status=5)
    assert "nobody.sock" in done.stderr


def test_wrong_usage_exits_2(shared_service):
    for arguments in (["nonsense"], ["get"], ["submit"], ["metrics", "1", "--since", "x"]):
        shared_service.cli(*arguments, status=2)


def test_help_has_a_page_for_all_that_it_lists(shared_service):
    listed = shared_service.cli("help").stdout.split("Commands\n")[1].split("\n\n")[0].splitlines()
    assert len(listed) > 15
    for name in (line.split()[0] for line in listed):
        assert shared_service.cli("help", name).stdout.startswith("trainyard "), name
    assert "there is no command 'train'" in shared_service.cli("help", "train", status=2).stderr
