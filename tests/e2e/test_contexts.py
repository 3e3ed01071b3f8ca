"""`trainyard login` and `context`: several controllers, which of them a command uses, and what protects the tokens."""

import os
import select
import stat
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, ROOT, Database
from terminals import fork_terminal


class Home:
    """A user's home folder, and commands that run there."""

    def __init__(self, folder, service):
        self.folder, self.service = folder, service
        self.file = folder / ".config" / "trainyard" / "contexts.yaml"
        (folder / "work").mkdir()

    def environment(self, **more):
        base = {k: v for k, v in self.service.environment().items() if k not in ("TRAINYARD_CONTROLLER", "XDG_CONFIG_HOME")}
        return {**base, "HOME": str(self.folder), **more}

    def cli(self, *arguments, status=0, input="", cwd="work", **more):
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], env=self.environment(**more), cwd=self.folder / cwd, text=True, input=input,
                              capture_output=True, timeout=120 * PATIENCE)
        assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def controller(self, *arguments, **more):
        """The address that `status` uses."""
        return self.cli("status", *arguments, **more).stdout.splitlines()[0].split()[1].rstrip(",")


@pytest.fixture
def home(shared_service, tmp_path):
    return Home(tmp_path, shared_service)


@pytest.fixture(scope="module")
def secured(shared_service, tmp_path_factory):
    """A controller with TLS that asks for tokens: its address, the folder of the certificates, and a token."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["sh", ROOT / "tests" / "rpc" / "certificates.sh", folder], check=True, capture_output=True, timeout=60 * PATIENCE)
    database = Database(shared_service, "contexts")
    process = subprocess.Popen(
        [BIN / "trainyard-controller", "--database", database.conninfo, "--checkpoints", folder / "checkpoints", "--listen", "127.0.0.1:0",
         "--listen", f"unix:{folder}/c.sock", "--tls-cert", folder / "server.pem", "--tls-key", folder / "server.key"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=shared_service.environment())
    try:
        ready, _, _ = select.select([process.stdout], [], [], 60 * PATIENCE)
        line = process.stdout.readline() if ready else ""
        assert line.startswith("ready 127.0.0.1:"), line
        address = line.split()[1]
        token = subprocess.run([BIN / "trainyard", "token", "create", "ada", "--role", "USER", "--controller", f"unix:{folder}/c.sock"], check=True,
                               env=shared_service.environment(), capture_output=True, text=True, timeout=120 * PATIENCE).stdout.strip()
        yield address, folder, token
    finally:
        process.terminate()
        process.wait(40 * PATIENCE)


def test_a_login_stores_what_later_commands_need(home, secured):
    address, tls, token = secured
    (home.folder / "token").write_text(token + "\n")
    os.symlink(tls / "good.pem", home.folder / "work" / "ca.pem")
    done = home.cli("login", "lab", address, "--ca", "ca.pem", "--token-file", home.folder / "token")
    assert done.stdout == f"lab is the current context: {address}, as ada\n"
    assert stat.S_IMODE(home.file.stat().st_mode) == 0o600 and stat.S_IMODE(home.file.parent.stat().st_mode) == 0o700
    assert home.controller(cwd=".") == address  # the path of the CA is absolute
    assert "caller      ada\n" in home.cli("status").stdout
    shown = home.cli("context", "list").stdout
    assert [line.split() for line in shown.splitlines()] == [["CURRENT", "NAME", "CONTROLLER", "TLS", "TOKEN"], ["*", "lab", address, "yes", "yes"]]
    assert token not in shown
    # A token of the environment is for the controller that the environment names.
    assert "caller      ada\n" in home.cli("status", TRAINYARD_TOKEN="wrong").stdout


def test_a_token_is_typed_on_a_terminal_and_not_shown(home, secured):
    address, tls, token = secured
    pid, terminal = fork_terminal()
    if pid == 0:
        os.execvpe(BIN / "trainyard", ["trainyard", "login", "typed", address, "--ca", str(tls / "good.pem")], home.environment(TERM="dumb"))
    screen, sent = b"", False
    try:
        while select.select([terminal], [], [], 60 * PATIENCE)[0]:
            screen += os.read(terminal, 4096)
            if not sent and b"end with Enter): " in screen:
                sent = True
                os.write(terminal, token.encode() + b"\n")
    except OSError:  # the command has ended
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, screen
    assert token.encode() not in screen and b"typed is the current context" in screen


def test_a_login_that_fails_stores_nothing(home, secured):
    address, tls, token = secured
    error = home.cli("login", "lab", address, "--ca", tls / "good.pem", "--token-file", "/dev/null", status=2).stderr
    assert "is not a regular file" in error or "the token is empty" in error
    assert home.cli("login", "lab", address, "--ca", tls / "good.pem", input="wrong\n", status=6).stderr.count("\n") == 1
    assert "cannot be reached" in home.cli("login", "lab", "127.0.0.1:1", status=5).stderr
    assert "--ca: 'nothing': No such file" in home.cli("login", "lab", address, "--ca", "nothing", status=4).stderr
    assert "--cert and --key belong together" in home.cli("login", "lab", address, "--cert", tls / "good.pem", status=2).stderr
    assert "'a b' is no name of a context" in home.cli("login", "a b", address, status=2).stderr
    assert not home.file.exists()


def test_the_flag_the_variable_the_file_and_the_context_come_in_this_order(home, secured):
    address, tls, token = secured
    here = home.service.address
    home.cli("login", "lab", address, "--ca", tls / "good.pem", TRAINYARD_TOKEN=token)
    home.cli("login", "here", here)
    assert home.controller() == here
    assert home.controller("--context", "lab") == address
    home.cli("context", "use", "lab")
    assert home.controller() == address
    (home.folder / "work" / ".trainyard").mkdir()
    (home.folder / "work" / ".trainyard" / "address").write_text(here + "\n")
    assert home.controller() == here
    assert home.controller("--context", "lab") == address
    assert "127.0.0.1:1 cannot be reached" in home.cli("status", status=5, TRAINYARD_CONTROLLER="127.0.0.1:1").stderr
    assert home.controller("--context", "lab", TRAINYARD_CONTROLLER="127.0.0.1:1") == address
    assert home.controller("--controller", here, TRAINYARD_CONTROLLER="127.0.0.1:1") == here
    assert "give one of them" in home.cli("status", "--controller", here, "--context", "lab", status=2).stderr


def test_contexts_are_selected_and_forgotten(home):
    here = home.service.address
    assert "there is no context 'lab': 'trainyard login' makes one" in home.cli("context", "use", "lab", status=4).stderr
    home.cli("login", "a", here)
    home.cli("login", "b", here)
    assert "there is no context 'c'; contexts are a, b" in home.cli("status", "--context", "c", status=4).stderr
    assert home.cli("context", "delete", "b").stdout == "b is deleted; no context is current\n"
    assert home.cli("context", "delete", "b", status=4) and home.cli("context", "use", "a").stdout == f"a is the current context: {here}\n"
    assert "usage: trainyard context list" in home.cli("context", "list", "a", status=2).stderr
    assert "'ls' is not one of: list, use, delete" in home.cli("context", "ls", status=2).stderr
    assert [line.partition("\t")[0] for line in home.cli("complete", "context", "use", "").stdout.splitlines()] == ["a"]
    assert [line.partition("\t")[0] for line in home.cli("complete", "list", "--context", "").stdout.splitlines()] == ["a"]


@pytest.mark.parametrize("text, mode, problem", [
    ("current: a\n", 0o640, "contains tokens and is accessible to other users: run chmod 600 on it"),
    ("current: \"a\n", 0o600, "line "), ("contexts: 7\n", 0o600, "contexts: "), ("token: x\n", 0o600, "token: unknown field"),
    ("contexts: [{name: a}]\n", 0o600, "context a has no controller"), ("contexts: [{controller: 'x:1'}]\n", 0o600, "'' is no name of a context"),
    ("current: gone\n", 0o600, "there is no context 'gone'")])
def test_a_file_that_is_wrong_gets_one_sentence(home, text, mode, problem):
    home.file.parent.mkdir(parents=True)
    home.file.write_text(text)
    home.file.chmod(mode)
    done = subprocess.run([BIN / "trainyard", "list"], env=home.environment(), cwd=home.folder / "work", text=True, capture_output=True, timeout=60 * PATIENCE)
    assert done.returncode != 0 and problem in done.stderr and done.stderr.count("\n") == 1, done.stderr
    # A command that names its controller does not read the file.
    home.cli("list", TRAINYARD_CONTROLLER=home.service.address)


def test_the_configuration_may_be_elsewhere(home, tmp_path):
    home.cli("login", "a", home.service.address, XDG_CONFIG_HOME=str(tmp_path / "xdg"))
    assert (tmp_path / "xdg" / "trainyard" / "contexts.yaml").exists() and not home.file.exists()
    assert "neither XDG_CONFIG_HOME nor HOME is an absolute path" in home.cli("context", "list", status=1, HOME="", XDG_CONFIG_HOME="relative").stderr


def test_a_user_who_cannot_have_contexts_gets_the_default_address(home):
    def default(*prefix, **more):
        done = subprocess.run([*prefix, BIN / "trainyard", "status"], env=home.environment(**more), cwd=home.folder / "work", text=True,
                              capture_output=True, timeout=120 * PATIENCE)
        return "127.0.0.1:7700" in done.stdout + done.stderr

    assert default(HOME="")
    home.file.parent.mkdir(parents=True)
    home.file.touch()
    home.file.chmod(0)
    caps = "-dac_override,-dac_read_search"
    assert default(*(["setpriv", "--inh-caps", caps, "--bounding-set", caps] if os.geteuid() == 0 else []))


def test_commands_that_change_contexts_at_once_lose_none(home):
    names = [f"c{i}" for i in range(20)]
    home.file.parent.mkdir(parents=True)
    home.file.touch(0o600)
    home.file.write_text("contexts: [" + ", ".join(f"{{name: {name}, controller: 'x:1'}}" for name in ["kept", *names]) + "]\n")
    running = [subprocess.Popen([BIN / "trainyard", "context", "delete", name], env=home.environment(), stdout=subprocess.DEVNULL) for name in names]
    assert [process.wait(60 * PATIENCE) for process in running] == [0] * len(names)
    assert [line.split()[0] for line in home.cli("context", "list").stdout.splitlines()[1:]] == ["kept"]
