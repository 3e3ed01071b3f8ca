"""An agent that is stopped or killed gets no more ranks at once: what is submitted then runs elsewhere, in its first attempt."""

import os
import select
import signal
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, Service, wait_until


class Agents:
    """Executors that nobody starts again."""

    def __init__(self, service, directory, text_file):
        self.service, self.directory, self.started = service, directory, {}
        self.data_root = text_file.parent

    def start(self, slots):
        process = subprocess.Popen(
            [BIN / "trainyard-executor", "--controller", self.service.address, "--slots", str(slots),
             "--directory", self.directory / f"agent-{len(self.started)}", "--data-root", self.data_root,
             "--checkpoint-root", self.service.directory / "checkpoints"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.service.environment(), text=True)
        ready, _, _ = select.select([process.stdout], [], [], 60 * PATIENCE)
        assert ready, "the executor does not attach"
        executor = process.stdout.readline().split()[1]
        self.started[executor] = process
        return executor

    def row(self, executor):
        return next(x for x in self.service.json("executors")["executors"] if x["name"].endswith(executor))

    def state(self, executor):
        return self.row(executor)["state"]

    def stop(self):
        for process in self.started.values():
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def agents(tmp_path_factory, text_file):
    directory = tmp_path_factory.mktemp("leaving")
    (directory / "service").mkdir()
    service = Service(directory / "service", executors=0).start()
    agents = Agents(service, directory, text_file)
    try:
        yield agents
    finally:
        agents.stop()
        service.stop()


def test_what_is_submitted_after_an_agents_end_runs_elsewhere(agents, tiny):
    stays = agents.start(slots=2)
    for number in signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL:
        leaves = agents.start(slots=1)  # which a job of one rank fits best
        os.kill(agents.started[leaves].pid, number)
        status = agents.started[leaves].wait(60 * PATIENCE)
        assert status == (-9 if number == signal.SIGKILL else 0)
        wait_until(lambda: agents.state(leaves) != "ATTACHED", 60, "the end is told")
        row = agents.row(leaves)
        # Not by its lease, which is over 10 s after the last heartbeat even when nothing is told.
        if row["state"] == "LOST":
            assert row["reason"] == "its agent was stopped", row
        else:
            assert row["state"] == ("DISCONNECTED" if number == signal.SIGKILL else "LEAVING"), row
        job = agents.service.submit(tiny(steps=3))
        agents.service.wait_end(job)
        got = agents.service.json("get", job)
        assert got["attempt"] == 1, got
        assert [p["executor"] for p in got["attempts"][0]["placements"]] == [f"executors/{stays}"]
    agents.started[stays].terminate()
    assert agents.started[stays].wait(60 * PATIENCE) == 0


def test_a_job_moves_with_sigterm_in_one_attempt_more(agents, tiny):
    first = agents.start(slots=1)
    job = agents.service.submit(tiny(steps=1_000_000, every=10, train__learning_rate_schedule={"constant": {}}))
    with agents.service.watch(job) as watch:
        watch.until_step(1)
        second = agents.start(slots=1)
        agents.started[first].send_signal(signal.SIGTERM)
        watch.until(lambda u: u.get("event", {}).get("attempt") == 2 and u["event"].get("state") == "RUNNING", 60,
                    "the second attempt runs")
    got = agents.service.json("get", job)
    assert got["attempt"] == 2 and got["attempts"][1]["placements"][0]["executor"] == f"executors/{second}"
    assert got["restarts"] == 0, "it counts as none"
    agents.service.cli("cancel", job)
    agents.service.wait_end(job, "CANCELLED")


def test_a_job_moves_with_sigusr1_without_losing_a_step(agents, tiny):
    """Also if the controller is killed and the agent must ask the next one."""
    agents.stop()  # those of other tests
    endless = tiny(steps=1_000_000, every=1_000_000, train__learning_rate_schedule={"constant": {}})
    first = agents.start(slots=1)
    job = agents.service.submit(endless)
    with agents.service.watch(job) as watch:
        watch.until_step(1)
        second = agents.start(slots=1)
        seen = int(agents.service.json("get", job)["step"])
        agents.started[first].send_signal(signal.SIGUSR1)
        assert agents.started[first].wait(60 * PATIENCE) == 0
        assert agents.state(first) in ("LEAVING", "LOST") and "drain" not in agents.row(first)
        watch.until(lambda u: u.get("event", {}).get("attempt") == 2 and u["event"].get("state") == "RUNNING", 60,
                    "the second attempt runs")
    got = agents.service.json("get", job)
    assert got["attempts"][1]["placements"][0]["executor"] == f"executors/{second}" and got["restarts"] == 0
    assert int(got["attempts"][1]["from_step"]) >= seen
    os.kill(agents.service.pid_of("trainyard-controller"), signal.SIGKILL)
    agents.started[second].send_signal(signal.SIGUSR1)
    assert agents.started[second].wait(60 * PATIENCE) == 0
    got = agents.service.json("get", job)
    assert got["state"] == "QUEUED" and got["restarts"] == 0
    kept = [int(c["step"]) for c in agents.service.json("checkpoints", job)["checkpoints"]]
    assert len(kept) == 2 and max(kept) > int(got["attempts"][1]["from_step"])
    agents.service.cli("cancel", job)
    agents.service.wait_end(job, "CANCELLED")


def test_a_drain_ends_with_sigterm_and_an_idle_agent_drains_at_once(agents, tiny):
    agents.stop()
    idle = agents.start(slots=1)
    agents.started[idle].send_signal(signal.SIGUSR1)
    assert agents.started[idle].wait(60 * PATIENCE) == 0
    busy = agents.start(slots=1)
    job = agents.service.submit(tiny(steps=1_000_000, every=10, train__learning_rate_schedule={"constant": {}}))
    with agents.service.watch(job) as watch:
        watch.until_step(1)
    worker = agents.service.worker_pids(job)[0][0]
    os.kill(worker, signal.SIGSTOP)  # it writes no checkpoint
    agents.started[busy].send_signal(signal.SIGUSR1)
    wait_until(lambda: agents.service.json("get", job)["state"] == "PREEMPTING", 60, "the job is asked to leave")
    agents.started[busy].send_signal(signal.SIGTERM)
    assert agents.started[busy].wait(60 * PATIENCE) == 0
    assert not os.path.exists(f"/proc/{worker}")
    agents.service.cli("cancel", job)
    agents.service.wait_end(job, "CANCELLED")
