"""docs/operate.md, followed to the letter: a CA, certificates, tokens, a controller that all machines reach, an executor."""

import json
import os
import pathlib
import re
import select
import subprocess
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, ROOT, Database, Service, descendants, wait_until


class Operator:
    """Runs the page's commands in one folder, with this machine's names and folders instead of the page's."""

    def __init__(self, directory, environment, **names):
        self.directory, self.names, self.started = directory, names, []
        self.environment = {**environment, "PATH": f"{BIN}:{os.environ['PATH']}"}
        page = (ROOT / "docs" / "operate.md").read_text()
        section = page.split("## Certificates and tokens, step by step\n")[1].split("\n## ")[0]
        self.blocks = re.findall(r"```sh\n(.*?)```", section, re.S)

    def here(self, block):
        for name, value in self.names.items():
            block = block.replace(name, str(value))
        return block

    def run(self, block, status=0, **more):
        done = subprocess.run(["bash", "-euc", self.here(block)], cwd=self.directory, env={**self.environment, **more},
                              text=True, capture_output=True, timeout=120 * PATIENCE)
        assert done.returncode == status, f"exit {done.returncode}, not {status}\n{block}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, block, log):
        """What the page's program says with `ready`."""
        process = subprocess.Popen(["bash", "-euc", "exec " + self.here(block)], cwd=self.directory, text=True,
                                   env=self.environment, stdout=subprocess.PIPE, stderr=open(self.directory / log, "ab"))
        self.started.append(process)
        ready, _, _ = select.select([process.stdout], [], [], 60 * PATIENCE)
        line = process.stdout.readline() if ready else ""
        assert line.startswith("ready "), f"{line!r}\n{(self.directory / log).read_text()[-2000:]}"
        return line.split()[1]

    def stop(self):
        for process in reversed(self.started):
            process.terminate()
            assert process.wait(40 * PATIENCE) == 0


@pytest.fixture(scope="module")
def operator(text_file):
    with tempfile.TemporaryDirectory(prefix="trainyard-operate-") as directory:
        directory = pathlib.Path(directory)
        (directory / "up").mkdir()
        (directory / "run").mkdir()
        up = Service(directory / "up", executors=0).start()
        operator = Operator(directory / "run", up.environment(), **{
            "host=db dbname=trainyard": Database(up, "operate").conninfo, "controller.example.org": "localhost",
            "0.0.0.0:7700": "0.0.0.0:0", "--http 127.0.0.1:7701": "", "--slots 8": "--slots 1",
            "/run/trainyard": directory, "/shared/trainyard": directory, "/var/lib/trainyard": directory,
            "10.0.0.12": "127.0.0.1", "--data-root /data": f"--data-root {text_file.parent}"})
        try:
            yield operator
            operator.stop()
        finally:
            for process in operator.started:
                process.kill()
            up.stop()


@pytest.fixture(scope="module")
def service(operator):
    """The page from its first command to its last."""
    ca, certificates, folder, controller, tokens, executor, person, project = operator.blocks
    operator.run(ca)
    operator.run(certificates)
    operator.run(folder)
    address = operator.start(controller, "controller.log")
    operator.names["localhost:7700"] = f"localhost:{address.rpartition(':')[2]}"
    operator.run(tokens)
    operator.start(executor, "executor.log")
    listed = operator.run(person).stdout
    assert "ATTACHED" in listed and "ci " in listed and "gpu-1 " in listed
    operator.person = "".join(line + "\n" for line in person.splitlines() if line.startswith("export"))
    operator.run(operator.person + project)
    return operator


def test_a_job_trains_on_the_service_that_the_page_makes(service, tiny):
    (service.directory / "spec.json").write_text(json.dumps(tiny(steps=3)))
    job = service.run(service.person + "trainyard submit spec.json").stdout.strip()
    service.run(service.person + f"trainyard watch {job}")


def test_only_a_certificate_and_a_token_together_let_anybody_in(service):
    person = service.person
    assert "ListJobs needs a token" in service.run(person + "unset TRAINYARD_TOKEN_FILE; trainyard list", status=6).stderr
    service.run(person + "unset TRAINYARD_CERT TRAINYARD_KEY; trainyard list", status=5)
    service.run(person + "export TRAINYARD_TOKEN_FILE=ci.token; trainyard list")
    denied = service.run(person + "export TRAINYARD_TOKEN_FILE=ci.token; trainyard token list", status=6).stderr
    assert denied == "trainyard: ListTokens needs the role ADMIN, and the token 'ci' has USER\n"
    denied = service.run(person + "export TRAINYARD_TOKEN_FILE=gpu-1.token; trainyard executors", status=6).stderr
    assert denied == "trainyard: ListExecutors needs the role VIEWER, and the token 'gpu-1' has EXECUTOR\n"


@pytest.mark.parametrize("name, other, sentence", [
    ("gpu-1.token", "ann.token", "Attach needs the role EXECUTOR, and the token 'ann' has ADMIN"),
    ("gpu-1.pem --tls-key gpu-1.key", "ann.pem --tls-key ann.key",
     "the token 'gpu-1' has the role EXECUTOR and belongs to the certificate of that name; this call came with that of 'ann'"),
])
def test_what_is_not_a_hosts_own_does_not_attach(service, name, other, sentence):
    assert name in service.blocks[5]
    block = service.here(service.blocks[5].replace(name, other).replace("trainyard/executor", "trainyard/other"))

    def dial():
        """Why it is not attached: it says so once. Another reason is one of this machine's, which stalls."""
        process = subprocess.Popen(["bash", "-euc", "exec " + block], cwd=service.directory, text=True,
                                   env=service.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            said = next((line for line in process.stderr if "detached" in line), "it ended without a word")
        finally:
            process.terminate()
            out, _ = process.communicate(timeout=40 * PATIENCE)
        assert "ready" not in out
        return said and sentence in said
    wait_until(dial, 60, "it is refused for that")


def test_no_command_line_and_no_log_has_a_secret(service):
    secrets = [path.read_text().strip() for path in service.directory.glob("*.token")]
    assert len(secrets) == 4 and all(len(secret) == 74 for secret in secrets)
    seen = "".join(line for process in service.started for line in
                   (pathlib.Path(f"/proc/{process.pid}/cmdline").read_text(), *descendants(process.pid).values()))
    seen += "".join((service.directory / log).read_text() for log in ("controller.log", "executor.log"))
    assert "trainyard-executor" in seen and not any(secret in seen for secret in secrets)
    assert all(path.stat().st_mode & 0o077 == 0 for path in service.directory.glob("*.token"))


def test_off_loopback_nothing_starts_without_mutual_tls(service):
    whole = service.blocks[3].replace("--listen unix:/run/trainyard/controller.sock", "")
    for part in ("--tls-ca ca.pem --tls-cert controller.pem --tls-key controller.key", "--tls-ca ca.pem"):
        done = service.run(whole.replace(part, ""), status=1)
        assert "can be reached by other machines: it needs a TLS certificate with its key, and the CA" in done.stderr


def test_a_revoked_executor_is_lost(service):
    service.run(service.person + "trainyard token revoke gpu-1")
    wait_until(lambda: "LOST" in service.run(service.person + "trainyard executors").stdout, 60, "the executor is lost")
    log = (service.directory / "executor.log").read_text()
    assert "the token 'gpu-1' was revoked" in log
