"""Python environments of programs: built once on each host from the requirements, found again by their digest, whole after
the death of whoever builds, out of the reach of jobs, and refused with the installer's own sentence. The packages are
wheels that the tests make: nothing is downloaded."""

import base64
import contextlib
import ctypes
import hashlib
import http.server
import json
import os
import pathlib
import pwd
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import zipfile

import pytest

from service_fixture import BIN, PATIENCE, Service, descendants, make_service, process_start_time, remove_tree, wait_until
from test_program_code import log_lines, submit, write_files

if subprocess.run(["python3", "-c", "import ensurepip, venv"], capture_output=True).returncode != 0:
    pytest.skip("python3 cannot make environments: python3-venv is not installed", allow_module_level=True)

# The version of Landlock that the kernel has: landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION).
ABI = ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)
SHOW = "import sys, trainpkg; print(trainpkg.VALUE); print(sys.prefix)\n"


def make_wheel(folder, name="trainpkg", version="1.0", value="one", requires=(), pad=0):
    """Returns the SHA-256 of the wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {f"{name}/__init__.py": f"VALUE = {value!r}\n".encode(),
             f"{info}/METADATA": (f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" +
                                  "".join(f"Requires-Dist: {r}\n" for r in requires)).encode(),
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             f"{info}/entry_points.txt": f"[console_scripts]\n{name}-run = {name}:main\n".encode()}
    files[f"{name}/__init__.py"] += "def main():\n    print('run', VALUE)\n".encode()
    if pad:
        files[f"{name}/pad.bin"] = os.urandom(pad)
    record = "".join(f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
                     for path, data in files.items()) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        for name_in, data in {**files, f"{info}/RECORD": record.encode()}.items():
            z.writestr(zipfile.ZipInfo(name_in, (2024, 1, 1, 0, 0, 0)), data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def job(command=("python3", "show.py"), ranks=1, requirements="requirements.txt", python=None, **more):
    return {"name": "python", "program": {"command": list(command), "code": {"folder": "."},
                                          "python": {"requirements": requirements, **(python or {})}},
            "parallel": {"data": ranks}, **more}


@pytest.fixture
def folder(tmp_path):
    make_wheel(tmp_path / "wheels")
    write_files(tmp_path, {"show.py": SHOW, "requirements.txt": "--no-index\n--find-links wheels\ntrainpkg==1.0\n"})
    return tmp_path


@pytest.fixture(scope="module")
def two_hosts():
    yield from make_service(executors=2, slots=2)


@pytest.fixture
def own_host():
    yield from make_service(executors=1, slots=4)


def cache(service):
    return service.directory / "environments"


def environments(service):
    return sorted(path for path in cache(service).glob("*-*") if path.is_dir())


def events(service, number, kind):
    return [e["message"] for e in service.json("events", number)["events"] if e["kind"] == kind]


def test_ranks_of_two_hosts_share_one_environment_and_the_next_job_finds_it(two_hosts, folder):
    (folder / ".trainyardignore").write_text("job.json\n")  # else the other number of ranks is other code
    first = submit(two_hosts, folder, job(ranks=4))
    two_hosts.wait_end(first)
    lines = log_lines(two_hosts, first)
    (built,) = environments(two_hosts)
    assert lines.count("one") == 4 and lines.count(str(built / "env")) == 4
    second = submit(two_hosts, folder, job(ranks=2))
    two_hosts.wait_end(second)
    assert log_lines(two_hosts, second).count("one") == 2 and environments(two_hosts) == [built]


# ---- a package that is built from its sources, by a backend of its own: setuptools need not be there ----

BACKEND = """
import zipfile
def get_requires_for_build_wheel(config_settings=None):
    return []
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    {hook}
    name = 'source-1.0-py3-none-any.whl'
    with zipfile.ZipFile(wheel_directory + '/' + name, 'w') as z:
        z.writestr('source.py', 'VALUE = 1')
        z.writestr('source-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: source\\nVersion: 1.0\\n')
        z.writestr('source-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        z.writestr('source-1.0.dist-info/RECORD', '')
    return name
"""


def add_source(folder, hook):
    write_files(folder, {"source/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
                         "[project]\nname = 'source'\nversion = '1.0'\n",
                         "source/backend.py": BACKEND.format(hook=hook),
                         "requirements.txt": "--no-index\n--find-links wheels\ntrainpkg==1.0\n./source\n",
                         ".trainyardignore": "job.json\nhold*\n"})


@pytest.fixture
def held(folder):
    """A build that waits until something is written to the FIFO."""
    os.mkfifo(folder / "hold")
    add_source(folder, f"open({str(folder / 'hold')!r}).read()")
    return folder


def release(held):
    """Whoever reads the FIFO now goes on."""
    fd = os.open(held / "hold", os.O_WRONLY)
    os.close(fd)


def builders(service, name="trainyard-environment"):
    return [pid for pid, line in descendants(service.up.pid).items() if os.path.basename(line.split(" ")[0]) == name]


def until_building(service):
    """The processes of a backend. (Opening its FIFO would release it.)"""
    return wait_until(lambda: [pid for pid, line in descendants(service.up.pid).items() if "_in_process.py" in line], 60,
                      "a build that waits")


def test_a_warm_environment_costs_little_from_submit_to_the_first_line(own_host, folder):
    write_files(folder, {"first.sh": "#!/bin/sh\ndate +%s%N\n"})
    path = folder / "job.json"
    (folder / ".trainyardignore").write_text("job.json\n")
    path.write_text(json.dumps(job(["./first.sh"])))
    own_host.wait_end(submit(own_host, folder, job(["./first.sh"])))
    times = []
    for _ in range(15):
        begin = time.time_ns()
        number = own_host.cli("submit", path).stdout.strip()
        own_host.wait_end(number)
        times.append((int(log_lines(own_host, number)[0]) - begin) / 1e6)
    assert len(environments(own_host)) == 1
    print(f"\nwarm environment: submit to first line p50 {statistics.median(times):.0f} ms, max {max(times):.0f} ms")
    assert statistics.median(times) < 500 * PATIENCE


def test_jobs_that_start_at_once_share_one_build(own_host, held):
    spec = job(["python3", "-c", "import source, trainpkg; print(trainpkg.VALUE)"])
    numbers = [submit(own_host, held, spec) for _ in range(3)]
    wait_until(lambda: len(builders(own_host)) == 3, 60, "three attempts that need the environment")
    wait_until(lambda: sum(len(events(own_host, n, "environment_building")) for n in numbers) == 3, 60, "their events")
    told = [message for n in numbers for message in events(own_host, n, "environment_building")]
    assert sum(message.endswith("is built") for message in told) == 1, told
    assert sum(message.endswith("is being built for another attempt") for message in told) == 2, told
    assert len(environments(own_host)) == 1
    release(held)
    for number in numbers:
        own_host.wait_end(number)
        assert log_lines(own_host, number) == ["one"]
        assert "is ready after" in events(own_host, number, "environment_ready")[0]
    assert len(environments(own_host)) == 1


@pytest.mark.parametrize("victim", ["trainyard-environment", "trainyard-executor"])
def test_a_build_whose_builder_or_agent_is_killed_is_done_again(own_host, held, victim):
    number = submit(own_host, held, job(["python3", "-c", "import source; print('done')"]))
    waiting = until_building(own_host)
    (half,) = environments(own_host)
    os.kill(own_host.pid_of(victim), signal.SIGKILL)
    for pid in waiting:
        wait_until(lambda pid=pid: process_start_time(pid) is None, 20, "the end of what was building")
    wait_until(lambda: [path for path in environments(own_host) if path != half], 60, "another build")
    until_building(own_host)
    release(held)
    own_host.wait_end(number)
    assert log_lines(own_host, number) == ["done"]
    assert not half.exists() and len(environments(own_host)) == 1


def test_a_cancelled_job_ends_its_build(own_host, held):
    number = submit(own_host, held, job())
    waiting = until_building(own_host)
    own_host.cli("cancel", number)
    own_host.wait_end(number, "CANCELLED")
    for pid in waiting:
        wait_until(lambda pid=pid: process_start_time(pid) is None, 20, "the end of what was building")
    wait_until(lambda: not builders(own_host), 20, "the end of trainyard-environment")


def test_requirements_that_do_not_resolve_end_the_job_in_its_first_attempt(two_hosts, folder):
    write_files(folder, {"requirements.txt": "--no-index\n--find-links wheels\ntrainpkg==9\n"})
    number = submit(two_hosts, folder, job(retry={"max_restarts": 3}))
    ended = two_hosts.wait_end(number, "FAILED")
    assert "program.python: No matching distribution found for trainpkg==9" in ended["reason"] and ended["attempt"] == 1, ended
    log = json.loads(two_hosts.cli("logs", number, "-o", "json").stdout)["lines"]
    assert any(line["stream"] == "environment" and "trainpkg==9" in line["text"] for line in log)


def test_an_index_that_refuses_is_tried_again(two_hosts, folder):
    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as index:
        threading.Thread(target=index.serve_forever, daemon=True).start()
        write_files(folder, {"requirements.txt": f"-i http://127.0.0.1:{index.server_port}/simple\ntrainpkg==1.0\n"})
        ended = two_hosts.wait_end(submit(two_hosts, folder, job(retry={"max_restarts": 1})), "FAILED")
        index.shutdown()
    assert "No matching distribution found for trainpkg==1.0" in ended["reason"] and ended["attempt"] == 2, ended


def test_conflicts_and_other_hashes_are_refused(two_hosts, folder):
    digest = make_wheel(folder / "wheels")
    write_files(folder, {"requirements.txt": f"--no-index\n--find-links wheels\ntrainpkg==1.0 \\\n    --hash=sha256:{'0' * 64}\n"})
    ended = two_hosts.wait_end(submit(two_hosts, folder, job()), "FAILED")
    assert "DO NOT MATCH THE HASHES" in ended["reason"] and ended["attempt"] == 1, ended
    write_files(folder, {"requirements.txt": f"--no-index\n--find-links wheels\ntrainpkg==1.0 --hash=sha256:{digest}\n"})
    two_hosts.wait_end(submit(two_hosts, folder, job()))
    make_wheel(folder / "wheels", "other", requires=["trainpkg==2.0"])
    write_files(folder, {"requirements.txt": "--no-index\n--find-links wheels\ntrainpkg==1.0\nother\n"})
    ended = two_hosts.wait_end(submit(two_hosts, folder, job()), "FAILED")
    assert "ResolutionImpossible" in ended["reason"] and ended["attempt"] == 1, ended


@pytest.mark.parametrize("files, sentence", [
    ({"requirements.txt": "trainpkg==1.0\nthis is no requirement\n"}, "line 2: 'this is no requirement' is not a requirement of pip"),
    ({"requirements.txt": "-r more/base.txt\n"}, "'more/base.txt': is not among the"),
    ({"requirements.txt": "-r ../base.txt\n"}, "includes '../base.txt', which is outside of the folder"),
    ({"requirements.txt": "-r https://example.org/x.txt\n"}, "which is not the path of a file"),
    ({"requirements.txt": "-e ./source\n"}, "line 1: '-e ./source' installs a folder that other jobs do not have"),
])
def test_requirements_that_cannot_be_right_are_refused_by_submit(two_hosts, folder, files, sentence):
    write_files(folder, files)
    assert sentence in submit(two_hosts, folder, job(), status=2)


def test_what_a_host_lacks_is_reported_by_submit(two_hosts, folder, tmp_path):
    refused = submit(two_hosts, folder, job(python={"version": "3.99"}), status=2)
    assert "program.python.version: this host has no program 'python3.99'" in refused
    spec = {"name": "absent", "program": {"command": ["python3", "-V"], "python": {"requirements": str(tmp_path / "absent.txt")}}}
    assert "absent.txt': No such file or directory" in submit(two_hosts, folder, spec, status=2)
    assert "is not an absolute path" in submit(two_hosts, folder, {**spec, "program": {**spec["program"], "python": {
        "requirements": "requirements.txt"}}}, status=2)
    assert "program.python.requirements: 'gone.txt'" in submit(two_hosts, folder, job(requirements="gone.txt"), status=2)


def test_requirements_of_the_host_and_included_files_decide_which_environment_is_used(own_host, folder):
    write_files(folder, {"requirements.txt": f"--no-index\n--find-links {folder / 'wheels'}\n-r sub/more.txt\n",
                         "sub/more.txt": "trainpkg\n-c ../limits.txt\n", "limits.txt": "trainpkg==1.0\n"})
    make_wheel(folder / "wheels", version="2.0", value="two")
    spec = {"name": "host", "program": {"command": ["python3", str(folder / "show.py")],
                                        "python": {"requirements": str(folder / "requirements.txt")}}}
    for value, limit, count in [("one", "trainpkg==1.0\n", 1), ("two", "trainpkg==2.0\n", 2), ("one", "trainpkg==1.0\n", 2)]:
        write_files(folder, {"limits.txt": limit})
        number = own_host.submit(spec)
        own_host.wait_end(number)
        assert log_lines(own_host, number)[0] == value and len(environments(own_host)) == count


def test_the_environment_comes_first_for_the_command_and_its_programs_need_not_be_on_the_host(own_host, folder):
    (folder / ".trainyardignore").write_text("job.json\n")
    number = submit(own_host, folder, job(["trainpkg-run"]))
    own_host.wait_end(number)
    (built,) = environments(own_host)
    assert log_lines(own_host, number) == ["run one"]
    number = submit(own_host, folder, job(["sh", "-c", "command -v python3; echo $VIRTUAL_ENV; touch $VIRTUAL_ENV/x || echo closed; "
                                           "stat -c %a $VIRTUAL_ENV $VIRTUAL_ENV/pyvenv.cfg"]))
    own_host.wait_end(number)
    lines = log_lines(own_host, number)
    assert lines[:2] == [str(built / "env" / "bin" / "python3"), str(built / "env")] and lines[-2:] == ["555", "444"]


def test_an_environment_that_was_changed_by_hand_is_built_again(own_host, folder):
    own_host.wait_end(submit(own_host, folder, job()))
    (built,) = environments(own_host)
    (module,) = built.glob("env/lib/python3*/site-packages/trainpkg/__init__.py")
    stat = module.stat()
    module.chmod(0o644)
    module.write_text(module.read_text().replace("one", "bad"))
    os.utime(module, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    module.chmod(0o444)
    number = submit(own_host, folder, job())
    own_host.wait_end(number)
    assert log_lines(own_host, number)[0] == "one"
    assert events(own_host, number, "environment_building")[0].endswith("is built again, because its files have changed")
    remove_tree(environments(own_host)[-1])
    number = submit(own_host, folder, job())
    own_host.wait_end(number)
    assert log_lines(own_host, number)[0] == "one"


def test_a_project_file_gives_its_dependencies_and_itself_only_if_that_is_asked(own_host, folder):
    write_files(folder, {"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n[project]\n"
                         f"name = 'source'\nversion = '1.0'\ndependencies = ['trainpkg @ file://{folder}/wheels/trainpkg-1.0-py3-none-any.whl']\n",
                         "backend.py": BACKEND.format(hook="pass")})
    find = ["python3", "-c", "import importlib.util as u; print([u.find_spec(n) is not None for n in ('trainpkg', 'pip')], "
            "any('site-packages' in str(u.find_spec(n).origin) for n in ('source',) if u.find_spec(n)))"]
    number = submit(own_host, folder, job(find, requirements="pyproject.toml"))
    own_host.wait_end(number)
    assert log_lines(own_host, number) == ["[True, True] False"]
    number = submit(own_host, folder, job(find, requirements="pyproject.toml", python={"project": True}))
    own_host.wait_end(number)
    assert log_lines(own_host, number)[0].endswith("True")


INTRUDER = ("import pathlib, sys\n"
            "for path in pathlib.Path(sys.prefix).glob('lib/python3*/site-packages'):\n"
            "    (path / 'poison.py').write_text('')\n")


@pytest.mark.parametrize("files", [
    {"requirements.txt": "--no-index\npip\n"}, {"requirements.txt": "--no-index\n--find-links wheels\ntrainpkg\n"},
    {"pyproject.toml": "[project]\nname = 'x'\nversion = '1'\ndependencies = ['pip']\n"}], ids=["names", "paths", "project"])
def test_modules_of_the_code_do_not_run_instead_of_pip_in_an_environment_of_other_jobs(own_host, folder, files):
    write_files(folder, {**files, ".trainyardignore": "job.json\n"})
    (requirements,) = files
    modules = ["pip", "logging", "ensurepip", "venv", "tomllib"]
    for module in modules:
        write_files(folder, {f"{module}/__init__.py": INTRUDER, f"{module}/__main__.py": INTRUDER})
    spec = job(["python3", "-I", "-c", "import importlib.util as u; print(u.find_spec('poison'))"], requirements=requirements)
    for intruder in (True, False):
        for module in modules if not intruder else ():
            shutil.rmtree(folder / module)
        number = submit(own_host, folder, spec)
        own_host.wait_end(number)
        assert log_lines(own_host, number) == ["None"], "the code has changed the environment"


def test_what_a_project_file_names_is_a_package_and_no_option_of_pip(own_host, folder):
    for line in ("-r requirements.txt", "./source"):
        write_files(folder, {"pyproject.toml": f"[project]\nname = 'x'\nversion = '1'\ndependencies = [{line!r}]\n"})
        ended = own_host.wait_end(submit(own_host, folder, job(requirements="pyproject.toml")), "FAILED")
        assert f"pyproject.toml: {line!r} is not the name of a package" in ended["reason"] and ended["attempt"] == 1, ended


# ---- an executor with options of its own ----

@contextlib.contextmanager
def executor(*options, within=None, before=(), user=None, token_file=None):
    """A service whose only executor has these options; a folder that every user reaches. The executor's token is in
    token_file, or in its environment."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-python-", dir=within))
    place.chmod(0o755)
    (place / "service").mkdir()
    (place / "checkpoints").mkdir(mode=0o777)
    service = Service(place / "service", executors=0).start()
    if user:  # the agent's: it makes its folder and the cache, and dials a socket of root's
        os.chown(place, user.pw_uid, -1)
        (place / "environments").mkdir()
        os.chown(place / "environments", user.pw_uid, -1)
        socket = pathlib.Path(service.address.removeprefix("unix:"))
        socket.parent.chmod(0o711)
        socket.chmod(0o666)
    token = service.cli("token", "create", "agent", "--role", "EXECUTOR").stdout.strip()  # another user needs one
    if token_file:
        token_file.write_text(token + "\n")
        token_file.chmod(0o600)
        options += ("--token-file", token_file)
    process = subprocess.Popen(
        [*before, BIN / "trainyard-executor", "--controller", service.address, "--directory", place / "state", "--slots", "2",
         "--checkpoint-root", place / "checkpoints", "--allow-programs", "--environment-cache",
         place / "environments" if user else place / "service" / "environments",
         *options], stdout=subprocess.PIPE, stderr=open(place / "log", "wb"),
        env=service.environment() | ({} if token_file else {"TRAINYARD_TOKEN": token}), text=True)
    try:
        assert process.stdout.readline().startswith("ready "), (place / "log").read_text()
        yield service
    finally:
        process.terminate()
        process.wait(40 * PATIENCE)
        process.stdout.close()
        service.stop()
        remove_tree(place)


def test_a_full_cache_loses_what_was_not_used_for_longest_and_nothing_in_use(folder):
    (folder / ".trainyardignore").write_text("job.json\nhold\n")
    for version in ("1.0", "2.0", "3.0"):
        make_wheel(folder / "wheels", version=version, value=version, pad=12 << 20)

    def spec(version, command=("python3", "show.py")):
        write_files(folder, {"requirements.txt": f"--no-index\n--find-links wheels\ntrainpkg=={version}\n"})
        return job(command)
    with executor("--environment-cache-mib", "80") as service:
        os.mkfifo(folder / "hold")
        holding = submit(service, folder, spec("1.0", ["sh", "-c", f"echo begun; cat {folder}/hold; exec python3 show.py"]))
        wait_until(lambda: log_lines(service, holding) == ["begun"], 60, "the first program")
        (first,) = environments(service)
        for version in ("2.0", "3.0"):
            number = submit(service, folder, spec(version))
            service.wait_end(number)
            assert log_lines(service, number)[0] == version
        kept = environments(service)
        assert first in kept and len(kept) == 2, "the second one made space for the third"
        with open(folder / "hold", "w"):
            pass
        service.wait_end(holding)
        assert log_lines(service, holding)[1] == "1.0"


def test_an_environment_that_is_larger_than_the_cache_is_refused(folder):
    make_wheel(folder / "wheels", pad=24 << 20)
    with executor("--environment-cache-mib", "16") as service:
        ended = service.wait_end(submit(service, folder, job(retry={"max_restarts": 0})), "FAILED")
        assert "--environment-cache-mib" in ended["reason"] and not environments(service), ended


def test_a_build_that_takes_too_long_is_ended(held):
    with executor("--environment-timeout", "1") as service:
        ended = service.wait_end(submit(service, held, job(retry={"max_restarts": 0})), "FAILED")
        assert "the build took more than 1 s (--environment-timeout" in ended["reason"], ended
        assert not environments(service)


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
def test_a_package_that_is_built_as_another_user_reads_no_token_and_jobs_cannot_change_its_environment(folder):
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-python-src-"))
    place.chmod(0o755)
    token = place / "token"
    hook = (f"import os, pwd, sys; print('builder', pwd.getpwuid(os.getuid()).pw_name, file=sys.stderr)\n"
            f"    try:\n        print('stolen', open({str(token)!r}).read(), file=sys.stderr)\n"
            f"    except PermissionError: print('refused', file=sys.stderr)\n"
            "    try: os.kill(os.getppid(), 0)\n    except OSError: pass\n"
            "    raise SystemExit('no wheel')")
    try:
        with executor("--worker-user", "nobody", "--environment-user", "daemon", token_file=token) as service:
            add_source(folder, hook)
            number = submit(service, folder, job(retry={"max_restarts": 0}))
            service.wait_end(number, "FAILED")
            log = [line["text"] for line in json.loads(service.cli("logs", number, "-o", "json").stdout)["lines"]]
            assert any("builder daemon" in line for line in log) and any("refused" in line for line in log), log
            assert not any(token.read_text().strip() in line or "stolen" in line for line in log)
            write_files(folder, {"requirements.txt": "--no-index\n--find-links wheels\ntrainpkg==1.0\n"})
            attack = ("id -un; touch $VIRTUAL_ENV/x || echo no; chmod -R u+w $VIRTUAL_ENV 2>/dev/null || echo no; "
                      "ls -a $VIRTUAL_ENV/../../.state || echo no; stat -c %U $VIRTUAL_ENV $VIRTUAL_ENV/bin; python3 show.py")
            number = submit(service, folder, job(["sh", "-c", attack]))
            service.wait_end(number)
            lines = log_lines(service, number)
            assert lines[:6] == ["nobody", "no", "no", "no", "root", "root"] and lines[6] == "one", lines
    finally:
        remove_tree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
def test_an_agent_that_is_no_root_needs_the_right_to_own_what_another_user_built(folder):
    agent = pwd.getpwnam("games")
    as_agent = ["setpriv", f"--reuid={agent.pw_uid}", f"--regid={agent.pw_gid}", "--clear-groups"]
    if subprocess.run([*as_agent, "test", "-x", BIN / "trainyard-environment"]).returncode != 0:
        pytest.skip("the programs lie where other users do not reach")
    three, four = "+setuid,+setgid,+kill", "+setuid,+setgid,+kill,+chown"
    users = ("--worker-user", "nobody", "--environment-user", "daemon")
    with executor(*users, user=agent, before=[*as_agent, f"--inh-caps=-all,{three}", f"--ambient-caps=-all,{three}"]) as service:
        assert "which needs CAP_CHOWN" in submit(service, folder, job(), status=2)
    with executor(*users, user=agent, before=[*as_agent, f"--inh-caps=-all,{four}", f"--ambient-caps=-all,{four}"]) as service:
        show = ["sh", "-c", "id -un; stat -c %U $VIRTUAL_ENV $VIRTUAL_ENV/bin/python $VIRTUAL_ENV/pyvenv.cfg; python3 show.py"]
        for _ in range(2):
            number = submit(service, folder, job(show))
            service.wait_end(number)
            assert log_lines(service, number)[:5] == ["nobody", "games", "games", "games", "one"], log_lines(service, number)


@pytest.fixture
def outside_of_shm():
    """Programs in a sandbox may use all of /dev/shm, where TMPDIR may be."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-python-", dir="/var/tmp"))
    yield place
    remove_tree(place)


@pytest.mark.skipif(ABI < 1, reason="this kernel has no Landlock")
def test_a_build_in_a_sandbox_reads_no_token_and_writes_to_no_other_environment(folder, outside_of_shm):
    token = outside_of_shm / "token"
    with executor("--sandbox", "available", token_file=token, within=outside_of_shm) as service:
        number = submit(service, folder, job())
        service.wait_end(number)
        assert log_lines(service, number)[0] == "one"
        (first,) = environments(service)
        other = first / "env" / "bin" / "python"
        add_source(folder, "import os, sys\n"
                   f"    for name, what in (('token', lambda: open({str(token)!r}).read()), ('other', lambda: os.unlink({str(other)!r})),\n"
                   f"                       ('state', lambda: open({str(cache(service) / '.state' / first.name[:32])!r}).read()),\n"
                   "                       ('own', lambda: open(wheel_directory + '/x', 'w').close())):\n"
                   "        try: print(name, 'allowed', what(), file=sys.stderr)\n"
                   "        except OSError as e: print(name, 'refused', file=sys.stderr)\n"
                   "    raise SystemExit('no wheel')")
        number = submit(service, folder, job(retry={"max_restarts": 0}))
        service.wait_end(number, "FAILED")
        log = [line["text"].strip() for line in json.loads(service.cli("logs", number, "-o", "json").stdout)["lines"]]
        assert {"token refused", "other refused", "state refused", "own allowed None"} <= set(log), log
        spec = {"name": "leak", "program": {"command": ["true"], "python": {"requirements": str(token)}}, "retry": {"max_restarts": 0}}
        number = service.submit(spec, "--skip-check")
        reason = service.wait_end(number, "FAILED")["reason"]
        assert "Permission denied" in reason and token.read_text().strip() not in reason, reason


@pytest.mark.skipif(ABI < 1, reason="this kernel has no Landlock")
def test_a_package_of_the_code_that_writes_beside_its_sources_is_built_in_a_sandbox(folder, outside_of_shm):
    add_source(folder, "open('source.egg-info', 'w').close()")
    with executor("--sandbox", "available", within=outside_of_shm) as service:
        number = submit(service, folder, job(["python3", "-c", "import source, trainpkg; print(source.VALUE, trainpkg.VALUE)"]))
        service.wait_end(number)
        assert log_lines(service, number) == ["1 one"]


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
def test_an_executor_whose_worker_user_reaches_no_cache_refuses_such_jobs(folder, tmp_path_factory):
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-python-"))
    place.chmod(0o755)
    (place / "service").mkdir()
    service = Service(place / "service", executors=0).start()
    process = subprocess.Popen([BIN / "trainyard-executor", "--controller", service.address, "--directory", place / "state",
                                "--checkpoint-root", place, "--allow-programs", "--worker-user", "nobody"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=service.environment(), text=True)
    try:
        assert process.stdout.readline().startswith("ready ")
        assert "started without --environment-cache" in submit(service, folder, job(), status=2)
    finally:
        process.terminate()
        process.wait(40 * PATIENCE)
        process.stdout.close()
        service.stop()
        remove_tree(place)


UV = shutil.which("uv")
LOCKED = ("[project]\nname = 'locked'\nversion = '1.0'\nrequires-python = '>=3.9'\ndependencies = ['trainpkg==1.0']\n"
          "[tool.uv]\nno-index = true\nfind-links = ['wheels']\n")


@pytest.mark.skipif(not UV, reason="uv is not installed; Debian has no package of it")
def test_a_uv_lock_is_installed_as_it_is(own_host, folder):
    write_files(folder, {"pyproject.toml": LOCKED})
    subprocess.run([UV, "lock", "--project", folder, "--python", "python3", "--no-python-downloads"], check=True, timeout=60 * PATIENCE)
    number = submit(own_host, folder, job(requirements="uv.lock"))
    own_host.wait_end(number)
    (built,) = environments(own_host)
    assert log_lines(own_host, number) == ["one", str(built / "env")]


@pytest.mark.skipif(not UV, reason="uv is not installed; Debian has no package of it")
def test_the_folders_that_a_uv_lock_names_decide_which_environment_is_used(own_host, folder):
    add_source(folder, "pass")
    write_files(folder, {"pyproject.toml": LOCKED.replace("['trainpkg==1.0']", "['source']") + "[tool.uv.sources]\nsource = {path = 'source'}\n",
                         "uv.toml": "link-mode = 'symlink'\nno-index = true\n"})
    subprocess.run([UV, "lock", "--project", folder, "--python", "python3", "--no-python-downloads"], check=True, timeout=60 * PATIENCE)
    backend = (folder / "source/backend.py").read_text()
    for value in ("1", "2"):
        write_files(folder, {"source/backend.py": backend.replace("VALUE = 1", f"VALUE = {value}")})
        number = submit(own_host, folder, job(["python3", "-c", "import source; print(source.VALUE)"], requirements="uv.lock"))
        own_host.wait_end(number)
        assert log_lines(own_host, number) == [value]


@pytest.mark.skipif(bool(UV), reason="uv is installed")
def test_a_uv_lock_without_uv_is_refused_by_submit_with_what_to_install(two_hosts, folder):
    write_files(folder, {"pyproject.toml": LOCKED, "uv.lock": "version = 1\n"})
    assert "needs the program uv, which is not on this host: install uv" in submit(two_hosts, folder, job(requirements="uv.lock"), status=2)
    (folder / "pyproject.toml").unlink()
    assert "'pyproject.toml': is not among the" in submit(two_hosts, folder, job(requirements="uv.lock"), status=2)
