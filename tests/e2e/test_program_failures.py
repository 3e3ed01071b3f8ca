"""Why a program failed, in one sentence: from torch.distributed.elastic's file, from the last exception on stderr, or
from the exit status; which rank's sentence becomes the job's; and which failures are not retried."""

import json
import sys

import pytest

from service_fixture import SANITIZED

METRIC = "open(os.environ['TRAINYARD_METRICS'], 'w').write('{\"step\": 1, \"loss\": 1}\\n')\n"
GLOO = "RuntimeError('[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31415')"


def script(service, name, text):
    """The path of a script of the user's."""
    path = service.files / name
    path.write_text("import os, sys\nrank = int(os.environ['RANK'])\n" + text)
    return path


def run(service, path, ranks=1, state="FAILED", **more):
    job = service.submit({"name": "failure", "program": {"command": [sys.executable, str(path)]},
                          "parallel": {"data": ranks}, **more})
    return service.wait_end(job, state), job


@pytest.mark.sanitized
def test_the_reason_is_the_exception_and_the_last_frame_in_the_users_own_code(shared_service):
    path = script(shared_service, "parse.py", "import json\ndef step():\n    json.loads('nonsense')\nstep()\n")
    ended, job = run(shared_service, path)
    assert ended["reason"] == (f"rank 0: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0), "
                               f"at {path}:5 in step (exit status 1 before it reported a metric)")
    lines = [line["text"] for line in shared_service.json("logs", job)["lines"] if line["stream"] == "stderr"]
    assert lines[0] == "Traceback (most recent call last):" and lines[-1].startswith("json.decoder.JSONDecodeError")


def test_a_failure_after_the_first_metric_is_retried_with_its_sentence(shared_service):
    path = script(shared_service, "later.py", METRIC + "raise ValueError('é' * 3000 + 'no end')\n")
    ended, _ = run(shared_service, path, retry={"max_restarts": 1})
    assert ended["attempt"] == 2 and "ValueError: ééé" in ended["reason"]
    assert f"..., at {path}:4 (exit status 1) (after 1 of 1 restarts)" in ended["reason"]


def test_the_file_of_torch_elastic_is_preferred_to_stderr(shared_service):
    data = {"message": {"message": "OSError: from the file", "extraInfo": {"timestamp": "1", "py_callstack":
            'Traceback (most recent call last):\n  File "/x/own.py", line 3, in f\nOSError: from the file\n'}}}
    path = script(shared_service, "recorded.py", METRIC + f"text = {json.dumps(data)!r}\n"
                  "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(text)\nraise ValueError('on stderr')\n")
    ended, _ = run(shared_service, path, retry={"max_restarts": 0})
    assert "rank 0: OSError: from the file, at /x/own.py:3 in f (exit status 1)" in ended["reason"]


@pytest.mark.parametrize("what", ["fifo", "link", "long", "deep", "text"])
def test_a_wrong_error_file_harms_nothing(shared_service, what):
    make = {"fifo": "os.mkfifo(path)", "link": "os.symlink('/dev/zero', path)",
            "long": "open(path, 'w').write('{\"message\": \"' + 'x' * (2 << 20) + '\"}')",
            "deep": "open(path, 'w').write('[' * 100000)", "text": "open(path, 'wb').write(b'\\xff\\0')"}[what]
    path = script(shared_service, "wrong.py", f"path = os.environ['TORCHELASTIC_ERROR_FILE']\n{make}\n1 / 0\n")
    ended, _ = run(shared_service, path)
    assert f"ZeroDivisionError: division by zero, at {path}:5 (exit status 1" in ended["reason"]


@pytest.mark.parametrize("text, reason", [
    ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module', at {path}:4 (exit status 1)"),
    ("from os import nothing", "ImportError: cannot import name 'nothing' from 'os'"),
    ("exec('def f(:')", "SyntaxError: invalid syntax, at <string>:1"),
    ("raise MemoryError", "MemoryError, at {path}:4 (exit status 1)"),
    ("class OutOfMemoryError(RuntimeError): __module__ = 'torch'\nraise OutOfMemoryError('CUDA out of memory. Tried')",
     "torch.OutOfMemoryError: CUDA out of memory. Tried, at {path}:5 (exit status 1)"),
])
def test_what_a_retry_would_repeat_is_not_retried_even_after_a_metric(shared_service, text, reason):
    path = script(shared_service, "repeats.py", METRIC + text + "\n")
    ended, _ = run(shared_service, path)
    assert ended["attempt"] == 1 and int(ended.get("restarts", 0)) == 0
    assert "rank 0: " + reason.format(path=path) in ended["reason"]


def test_a_script_that_is_no_python_is_not_retried(shared_service):
    path = script(shared_service, "syntax.py", "def f(\n")
    ended, _ = run(shared_service, path)
    assert ended["attempt"] == 1 and f"SyntaxError: '(' was never closed, at {path}:3" in ended["reason"]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("early", [False, True])
def test_the_rank_that_raised_wins_over_one_that_lost_it_and_ended_sooner(two_hosts, first, early):
    """The rank that raised takes long to end; the other one raises what Gloo does when a peer closes its connections."""
    path = script(two_hosts, "peers.py", f"""{'' if early else METRIC}
import atexit, time
raised = {str(two_hosts.files / 'raised')!r}
def teardown():
    open(raised, 'w').close()
    time.sleep(3600)
if rank == {first}:
    atexit.register(teardown)
    raise KeyError('column')
while not os.path.exists(raised):
    time.sleep(0.01)
raise {GLOO}
""")
    ended, _ = run(two_hosts, path, ranks=2, retry={"max_restarts": 0})
    assert ended["reason"].startswith(f"rank {first}: KeyError: 'column', at {path}:"), ended["reason"]


@pytest.mark.skipif(SANITIZED, reason="a sanitizer prints its own report of the crash")
def test_a_crash_in_a_library_names_the_line_of_python(shared_service):
    path = script(shared_service, "crash.py", METRIC + "import ctypes\ndef read():\n    ctypes.string_at(1)\nread()\n")
    ended, _ = run(shared_service, path, retry={"max_restarts": 0})
    assert (f"rank 0: Fatal Python error: Segmentation fault, at {path}:6 in read "
            "(signal 11 (Segmentation fault))") in ended["reason"]


def test_all_that_a_program_writes_last_is_in_the_log_and_nothing_is_changed(shared_service):
    path = script(shared_service, "much.py", """
for i in range(300):
    print(i, 'x' * 100)
    print(i, 'é\\tü', file=sys.stderr)
sys.stdout.flush()
sys.stderr.write('no newline at the end')
sys.stderr.flush()
os._exit(0)
""")
    _, job = run(shared_service, path, state="SUCCEEDED")
    lines = shared_service.json("logs", job)["lines"]
    of = {stream: [line["text"] for line in lines if line["stream"] == stream] for stream in ("stdout", "stderr")}
    assert of["stdout"] == [f"{i} " + "x" * 100 for i in range(300)]
    assert of["stderr"] == [f"{i} é\tü" for i in range(300)] + ["no newline at the end"]


DDP = METRIC + """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for step in range(100):
    model(torch.ones(2, 4)).square().mean().backward()
    if step == 50 and rank == int(sys.argv[1]):
        raise KeyError("column")
"""


@pytest.mark.parametrize("first", [0, 1])
def test_the_rank_of_ddp_that_raised_is_named_and_not_those_whose_connections_it_closed(two_hosts, first):
    pytest.importorskip("torch", reason=f"{sys.executable} has no PyTorch")
    path = script(two_hosts, "ddp.py", DDP)
    for _ in range(3):
        job = two_hosts.submit({"name": "ddp", "program": {"command": [sys.executable, str(path), str(first)]},
                                "parallel": {"data": 2}, "retry": {"max_restarts": 0}})
        reason = two_hosts.wait_end(job, "FAILED")["reason"]
        assert reason.startswith(f"rank {first}: KeyError: 'column', at {path}:"), reason


@pytest.mark.parametrize("handled, end", [
    ("ImportError('no flash_attn')", "os.kill(os.getpid(), 9)"),
    ("MemoryError('caught')", "sys.stderr.write('\\n'.join('line %d' % i for i in range(100)) + '\\n'); sys.exit(3)")])
def test_an_exception_that_the_program_handled_forbids_no_retry(shared_service, handled, end):
    path = script(shared_service, f"handled_{handled[:3]}.py", METRIC + "import traceback\ntry:\n"
                  f"    raise {handled}\nexcept Exception:\n    traceback.print_exc()\n{end}\n")
    ended, _ = run(shared_service, path, retry={"max_restarts": 1})
    assert ended["attempt"] == 2, ended
