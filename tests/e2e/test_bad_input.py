"""Bad input gets one clear sentence and a fitting exit code; nothing crashes and nothing is lost."""

import json
import os
import subprocess

from service_fixture import BIN


def test_a_wrong_spec_is_refused_with_the_path_and_the_reason(shared_service, tiny):
    spec = tiny()
    spec["model"]["gpt"]["heads"] = 5
    (shared_service.directory / "bad.json").write_text(json.dumps(spec))
    spec["train"]["steps"] = -1
    bad = shared_service.directory / "bad.json"
    bad.write_text(json.dumps(spec))
    told = [shared_service.cli(command, bad, status=2).stderr for command in ("submit", "validate")]
    assert told[0] == told[1] and len(told[0].splitlines()) == 2, told
    assert f"trainyard: {bad}: model.gpt.heads: 5 does not divide width 32\n" in told[0]


def test_more_ranks_than_all_hosts_have_are_refused_unless_the_job_may_wait_for_hosts(shared_service, tiny):
    spec = shared_service.directory / "wide.json"
    spec.write_text(json.dumps(tiny(data=4)))
    told = {shared_service.cli(command, spec, status=2).stderr for command in ("submit", "validate")}
    assert told == {f"trainyard: {spec}: parallel: needs 4 cpu slots, more than the 2 of all attached executors; "
                    "add --wait-for-hosts to let the job wait for more\n"}
    shared_service.cli("validate", spec, "--wait-for-hosts")
    job = shared_service.cli("submit", spec, "--wait-for-hosts").stdout.strip()
    shared_service.cli("cancel", job)


def validated(arguments, spec, directory, status, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
    done = subprocess.run([BIN / "trainyard", "validate", "-", *arguments], cwd=directory, env={**clean, **environment},
                          input=json.dumps(spec), text=True, capture_output=True, timeout=120)
    assert done.returncode == status, done
    return done


def test_validate_says_what_it_has_not_checked_and_fails_where_a_named_controller_is_away(tiny, tmp_path):
    away = f"unix:{tmp_path}/nobody.sock"
    done = validated(["--offline"], tiny(), tmp_path, 0, TRAINYARD_CONTROLLER=away)
    assert "is valid" in done.stdout and "not checked: data, memory and hosts (--offline)" in done.stderr
    assert "nobody.sock" in validated([], tiny(), tmp_path, 5, TRAINYARD_CONTROLLER=away).stderr
    (tmp_path / ".trainyard").mkdir()
    (tmp_path / ".trainyard" / "address").write_text(away + "\n")
    assert "nobody.sock" in validated([], tiny(), tmp_path, 5).stderr


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
    assert shared_service.cli("help", "--help").stdout == shared_service.cli("help").stdout
    assert "there is no command 'train'" in shared_service.cli("help", "train", status=2).stderr
    for word, meant in (("submitt", "submit"), ("lsit", "list"), ("ps", "list")):
        assert shared_service.cli(word, status=2).stderr == \
            f"trainyard: there is no command '{word}': '{meant}' may be meant; see 'trainyard help'\n"


def test_a_series_rank_or_attempt_that_a_job_does_not_have_is_told(shared_service, tiny):
    job = shared_service.submit(tiny(steps=10, data=2))
    shared_service.wait_end(job)
    said = shared_service.cli("metrics", job, "loss", "nosuch", status=4).stderr
    assert said.startswith(f"trainyard: jobs/{job} has no series 'nosuch'; it has: ") and ", loss, " in said
    assert shared_service.json("metrics", job, "loss", "--since", "10") is not None, "it has that, and no points there"
    for command in ("metrics", "logs"):
        assert shared_service.cli(command, job, "--rank", 2, status=4).stderr == \
            f"trainyard: jobs/{job} has no rank 2: it has ranks 0 to 1\n"
    assert shared_service.cli("logs", job, "--rank", 1).stdout
    assert "has no attempt 7: it has had 1" in shared_service.cli("logs", job, "--attempt", 7, status=4).stderr
    for command in ("retry", "resume"):
        assert f"trainyard submit --fork {job}" in shared_service.cli(command, job, status=1).stderr
    waits = shared_service.submit(tiny(steps=10**6, data=4))
    assert "has no series 'nosuch' so far" in shared_service.cli("metrics", waits, "nosuch").stderr
    shared_service.cli("cancel", waits)


def test_states_are_taken_in_any_case_and_all_are_listed(shared_service):
    assert shared_service.cli("list", "--state", "succeeded").returncode == 0
    assert "PAUSED" in shared_service.cli("list", "--state", "asleep", status=2).stderr


def test_the_address_of_up_is_told_and_may_be_given_as_its_file(shared_service, tmp_path):
    assert f"Commands find the service after:\nexport TRAINYARD_CONTROLLER={shared_service.address}\n" in shared_service.tail()
    assert shared_service.cli("list", "--controller", shared_service.directory / "address").returncode == 0
    said = shared_service.cli("list", "--controller", tmp_path / "nothing", status=5).stderr
    assert f"'{tmp_path}/nothing' contains no address of a controller" in said
