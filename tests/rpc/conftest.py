"""The echo server as a process of its own."""

import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("TRAINYARD_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))


class EchoServer:
    def __init__(self, *addresses, **environment):
        self.process = subprocess.Popen([BUILD / "tests" / "rpc_echo_server", *addresses], stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **environment})
        self.addresses = [self.process.stdout.readline().removeprefix("ready ").strip() for _ in addresses]

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """One server for a file of tests: whoever crashes it is told by the tests that follow, and by the end."""
    directory = tmp_path_factory.mktemp("echo")
    server = EchoServer("127.0.0.1:0", f"unix:{directory}/echo")
    yield server
    assert server.alive(), f"the server is gone: {server.process.returncode}"
    assert server.stop() == 0
    assert not list(directory.iterdir()), "the socket or its lock was left behind"
