"""The systemd units, as far as they can be judged without systemd running."""

import re
import shutil
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, ROOT

UNITS = ("trainyard-controller.service", "trainyard-executor.service")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_units_are_understood(tmp_path):
    for name in UNITS:
        (tmp_path / name).write_text((ROOT / "deploy" / name).read_text().replace("/usr/bin/", f"{BIN}/"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in UNITS)], capture_output=True,
                          text=True, timeout=60 * PATIENCE)
    # It loads what these want, too, whose own faults are told with other names.
    complaints = [line for line in done.stderr.splitlines() if "trainyard" in line]
    assert not complaints, complaints


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit, highest", zip(UNITS, (2.0, 3.0)))
def test_the_units_can_do_little_else(unit, highest):
    """The executor's figure is higher because of what its jobs need: deploy/README.md lists it."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", ROOT / "deploy" / unit], capture_output=True,
                          text=True, timeout=60 * PATIENCE)
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure and float(exposure[1]) <= highest, done.stdout + done.stderr


def test_the_units_leave_openat2_to_the_programs():
    """RestrictSUIDSGID takes it away, and then no checkpoint is written or deleted."""
    assert all("RestrictSUIDSGID=" not in (ROOT / "deploy" / unit).read_text() for unit in UNITS)


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="systemd-sysusers is not installed")
def test_controller_agent_and_workers_are_different_users(tmp_path):
    (tmp_path / "etc").mkdir()
    files = [ROOT / "deploy" / name.replace(".service", ".sysusers") for name in UNITS]
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", *files], check=True, capture_output=True, timeout=60 * PATIENCE)
    uids = {line.split(":")[0]: line.split(":")[2] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()}
    text = "".join((ROOT / "deploy" / name).read_text() for name in UNITS)
    users = re.findall(r"^User=(.+)$", text, re.M) + re.findall(r"--(?:worker|environment)-user (\S+)", text)
    assert len(users) == 4 and len({uids[user] for user in users}) == 4, (users, uids)
    group = next(line for line in (tmp_path / "etc" / "group").read_text().splitlines() if line.startswith("trainyard:"))
    assert set(group.split(":")[3].split(",")) == {"trainyard-controller", "trainyard-worker"}


def test_the_units_pass_only_options_that_the_programs_have():
    for name in UNITS:
        commands = re.findall(r"^Exec(?:Start|StartPre)=/usr/bin/(\S+) ((?:.*\\\n)*.*)$", (ROOT / "deploy" / name).read_text(),
                              re.M)
        assert commands
        for program, arguments in commands:
            known = subprocess.check_output([BIN / program, "--help"], text=True, timeout=60 * PATIENCE)
            options = re.findall(r"--[a-z-]+", arguments)
            assert options and all(option in known for option in options), (options, known)


def test_the_unit_gives_the_executor_all_the_time_that_its_end_may_take():
    """core/stop.c, orphans.c and cgroups.c wait for at most 5 s each."""
    waits = [re.search(rf"\b{name} = (\d+)", (ROOT / "executor" / "agent" / file).read_text())[1]
             for name, file in (("LEAVE_MAX_MS", "core/stop.c"), ("CLOSE_MS", "orphans.c"), ("CLOSE_MS", "cgroups.c"))]
    timeout_s = int(re.search(r"^TimeoutStopSec=(\d+)$", (ROOT / "deploy" / UNITS[1]).read_text(), re.M)[1])
    assert timeout_s * 1000 >= 2 * sum(int(ms) for ms in waits), "systemd kills it, and the unit is failed"


def test_the_units_never_give_up_and_reload_by_sighup():
    for name in UNITS:
        unit, service = (ROOT / "deploy" / name).read_text().split("[Service]")
        assert "\nStartLimitIntervalSec=0\n" in unit, "five starts within ten seconds are the last ones"
        assert "\nRestart=always\n" in service and "\nExecReload=/bin/kill -HUP $MAINPID\n" in service


def test_the_watchdog_waits_for_the_longest_statement_of_a_healthy_controller():
    """Its signs of life come between the statements that a new leader reads its rows with."""
    unit = (ROOT / "deploy" / UNITS[0]).read_text()
    longest_ms = int(re.search(r"STORE_RECOVERY_TIMEOUT_MS (\d+)", (ROOT / "service/store/store.h").read_text())[1])
    assert re.search("^Type=notify$", unit, re.M)
    assert int(re.search(r"^WatchdogSec=(\d+)$", unit, re.M)[1]) * 1000 >= 2 * longest_ms


def test_the_unit_gives_a_migration_all_the_time_that_it_needs():
    unit = (ROOT / "deploy" / UNITS[0]).read_text()
    assert re.search(r"^ExecStartPre=/usr/bin/trainyard-controller migrate .*--wait 60$", unit, re.M)
    assert re.search(r"^TimeoutStartSec=infinity$", unit, re.M), "systemd's own limit, 90 s, kills ExecStartPre"
