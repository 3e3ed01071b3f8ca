"""Wrong command lines of the programs without a terminal: one sentence that names the option, and status 2."""

import subprocess

import pytest

from service_fixture import BIN


@pytest.mark.parametrize("program, needed", [
    ("trainyard-controller", ["--database", "d", "--listen", "127.0.0.1:0", "--checkpoints", "/c"]),
    ("trainyard-executor", ["--controller", "c:1", "--directory", "/d", "--checkpoint-root", "/c"]),
])
def test_a_wrong_option_is_named(program, needed):
    def sentence(*arguments):
        done = subprocess.run([BIN / program, *needed, *arguments], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        return done.stderr
    assert "'--chekpoints' is not an option" in sentence("--chekpoints", "/x")
    assert "'--help=me' is not an option" in sentence("--help=me")
    assert "--tls-ca needs a value" in sentence("--tls-ca")
    assert "'loudly'" in sentence("--log-level", "loudly")
    assert "'extra'" in sentence("extra")
