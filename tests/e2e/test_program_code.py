"""The code of a program job: a folder of the client becomes the read-only working directory of its ranks, uploaded once,
fetched once by each host, and intact after the death of any part of the service."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, Database, descendants, make_service, wait_until

HELLO = "#!/bin/sh\ncat message\n"


def write_files(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if name.endswith(".sh"):
            path.chmod(0o755)


def coded(command=("./train.sh",), ranks=1, folder=".", **more):
    return {"name": "coded", "program": {"command": list(command), "code": {"folder": folder}},
            "parallel": {"data": ranks}, **more}


def submit(service, folder, spec=None, *arguments, status=0):
    """A client's folder has its spec in it. The id of the job, or with another status the sentences on stderr."""
    path = folder / "job.json"
    path.write_text(json.dumps(spec or coded()))
    done = service.cli("submit", path, "--wait-for-hosts", *arguments, status=status)
    return done.stdout.strip() if status == 0 else done.stderr


def log_lines(service, job):
    """Lines of its programs so far; nothing before the first one."""
    text = service.cli("logs", job, "-o", "json").stdout
    return [line["text"] for line in json.loads(text)["lines"] if line["stream"] == "stdout"] if text else []


def archive_of(service, job):
    return service.json("get", job)["spec"]["program"]["code"]["archive"]


def cached(service):
    return sorted(service.directory.glob("executors/*/code/cache/*.tar"))


def copies(service):
    roots = [pathlib.Path(record.read_text()) for record in service.directory.glob("executors/*/code/copies")]
    return [path for root in roots for path in root.iterdir()]


def sql(service, text):
    """In the database of `up`, also while its controller starts again."""
    def conninfo():
        lines = [line for line in descendants(service.up.pid).values() if "trainyard-controller --database" in line]
        return lines and re.search("--database (host=[^ ]+ user=[^ ]+ dbname=[^ ]+)", lines[0])[1]
    conninfo = wait_until(conninfo, 20, "a controller")
    return subprocess.run([Database.program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-c", text], check=True,
                          timeout=60 * PATIENCE, text=True, capture_output=True).stdout.strip()


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path, {"train.sh": HELLO, "message": "hello"})
    return tmp_path


@pytest.fixture(scope="module")
def one_host():
    yield from make_service(executors=1, slots=4)


@pytest.fixture
def own_host():
    yield from make_service(executors=1, slots=2)


@pytest.mark.sanitized
def test_the_ranks_run_in_a_copy_of_the_folder_that_they_cannot_change_and_the_stored_spec_names_no_path(one_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\npwd; echo $TRAINYARD_CODE; echo $TRAINYARD_WORK; stat -c '%a %n' . * sub/*; cat sub/größe.py link; "
                                     "test -w $TRAINYARD_WORK && echo writable", "sub/größe.py": "print(1)\n"})
    (folder / "link").symlink_to("sub/größe.py")
    job = submit(one_host, folder, coded(ranks=2))
    one_host.wait_end(job)
    lines = log_lines(one_host, job)
    rank = lines[:len(lines) // 2] if lines[0] == lines[1] else lines
    path = rank[0]
    assert path == lines[1] and path != lines[2] and "trainyard-code-" in path and f"/{job}-1-" in path
    assert lines.count(path) == 4, "both ranks have the same folder"
    assert {"555 .", "555 train.sh", "444 message", "444 job.json", "777 link", "555 sub", "444 sub/größe.py"} <= set(lines)
    assert lines.count("print(1)") == 4 and lines.count("writable") == 2
    spec = one_host.json("get", job)["spec"]
    assert set(spec["program"]["code"]) == {"archive"} and str(folder) not in json.dumps(spec)
    wait_until(lambda: not os.path.exists(path), 20, "the removal of the copy")


def test_a_folder_is_uploaded_once_and_fetched_once_by_a_host(one_host, folder):
    first = submit(one_host, folder)
    one_host.wait_end(first)
    kept = {path: path.stat().st_ino for path in cached(one_host)}
    second = submit(one_host, folder, None)
    one_host.wait_end(second)
    assert archive_of(one_host, first) == archive_of(one_host, second)
    assert log_lines(one_host, second) == ["hello"]
    name = f"{archive_of(one_host, first)}.tar"
    found = [path for path in cached(one_host) if path.name == name]
    assert len(found) == 1 and found[0].stat().st_ino == kept[found[0]], "it was not fetched again"
    assert hashlib.sha256(found[0].read_bytes()).hexdigest() == archive_of(one_host, first)


def test_a_changed_file_gives_another_archive_and_the_new_file_runs(one_host, folder):
    first = submit(one_host, folder)
    write_files(folder, {"message": "changed"})
    second = submit(one_host, folder)
    one_host.wait_end(first)
    one_host.wait_end(second)
    assert log_lines(one_host, first) == ["hello"] and log_lines(one_host, second) == ["changed"]
    assert archive_of(one_host, first) != archive_of(one_host, second)


def test_the_folder_is_relative_to_the_spec_and_the_option_to_the_working_directory(one_host, folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_files(folder, {"inner/train.sh": HELLO, "inner/message": "inner"})
    job = submit(one_host, folder, coded(folder="inner"))
    one_host.wait_end(job)
    assert log_lines(one_host, job) == ["inner"]
    path = elsewhere / "job.json"
    path.write_text(json.dumps({"name": "coded", "program": {"command": ["sh", "train.sh"]}}))
    done = subprocess.run([BIN / "trainyard", "submit", path, "--code", "inner"], cwd=folder, text=True,
                          env=one_host.environment(), capture_output=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done.stderr
    one_host.wait_end(done.stdout.strip())
    assert log_lines(one_host, done.stdout.strip()) == ["inner"]


def test_files_that_git_or_the_ignore_file_ignores_are_left_out(one_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\nfind . -type f | sort", ".gitignore": "*.log\n", "a.log": "x", "data/big": "x",
                         "data/keep.py": "x", "src/a.py": "", "src/a.tmp": "", ".trainyardignore": "data/\n*.tmp\n"})
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "add", "src/a.py", "train.sh"], check=True)
    job = submit(one_host, folder)
    one_host.wait_end(job)
    assert log_lines(one_host, job) == ["./.gitignore", "./.trainyardignore", "./job.json", "./message", "./src/a.py", "./train.sh"]
    shutil.rmtree(folder / ".git")
    job = submit(one_host, folder)
    one_host.wait_end(job)
    assert "./a.log" in log_lines(one_host, job), "without git its file says nothing"


def test_submodules_and_repositories_within_the_folder_are_packed_whole(one_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\nfind . -type f | sort", ".trainyardignore": "*.out\n"})
    for path in (folder, folder / "tracked", folder / "other"):
        write_files(path, {"a.py": "", ".gitignore": "*.log\n", "a.log": "", "a.out": ""})
        subprocess.run(["git", "init", "-q", path], check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", folder / "tracked", *identity, "commit", "-q", "--allow-empty", "-m", "t"], check=True)
    subprocess.run(["git", "-C", folder, "add", "tracked"], check=True, stderr=subprocess.DEVNULL)  # as a submodule is
    job = submit(one_host, folder)
    one_host.wait_end(job)
    of_one = [".gitignore", "a.log", "a.py"]
    assert set(log_lines(one_host, job)) == {
        *(f"./{name}" for name in [".gitignore", ".trainyardignore", "a.py", "job.json", "message", "train.sh"]),
        *(f"./{inner}/{name}" for inner in ("tracked", "other") for name in of_one)}


def all_ignored(folder):
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".git" / "info" / "exclude").write_text("*\n")


@pytest.mark.parametrize("prepare, command, sentence", [
    (lambda f: None, ["./absent.sh"], "'./absent.sh' is not among the 3 files"),
    (lambda f: None, ["./message"], "'./message' is not executable: run chmod +x"),
    (lambda f: None, ["../train.sh"], "'../train.sh' is not a path in the folder of the code"),
    (lambda f: (f / "out").symlink_to("/etc/passwd"), ["./train.sh"], "the link 'out' does not stay in the folder"),
    (lambda f: (f / "up").symlink_to("../x"), ["./train.sh"], "the link 'up' does not stay in the folder"),
    (lambda f: os.mkfifo(f / "pipe"), ["./train.sh"], "'pipe' is neither a file, a folder nor a link"),
    (lambda f: os.truncate(f / "message", 600 << 20), ["./train.sh"],
     "600 MiB are more than the maximum of 512 MiB; the largest are 'message' (600.0 MiB)"),
    (lambda f: (f / ".trainyardignore").write_text("*"), ["./train.sh"], "has no file to pack\n"),
    (lambda f: all_ignored(f), ["./train.sh"], "has no file to pack: git ignores all files that are in it\n"),
])
def test_a_folder_or_command_that_cannot_work_is_refused_by_the_client(one_host, folder, prepare, command, sentence):
    prepare(folder)
    before = len(one_host.json("list")["jobs"])
    refused = submit(one_host, folder, coded(command), status=2)
    assert sentence in refused and "Traceback" not in refused
    assert sentence in one_host.cli("validate", folder / "job.json", status=2).stderr
    assert len(one_host.json("list")["jobs"]) == before


def test_too_many_files_are_refused_with_the_folder_that_has_most(one_host, folder):
    (folder / "cache").mkdir()
    for i in range(65536):
        (folder / "cache" / str(i)).touch()
    refused = submit(one_host, folder, status=2)
    assert "more than 65536 files" in refused and "'cache/' (65" in refused


def test_a_spec_with_a_folder_that_no_client_packed_is_refused(one_host, folder):
    """As a client of another kind sends it."""
    path = folder / "raw.json"
    for code, sentence in [({"archive": "x"}, "program.code.archive: is not a SHA-256"),
                           ({"archive": "0" * 64}, "the controller does not have this archive"),
                           ({}, "program.code: needs a folder, or a commit")]:
        path.write_text(json.dumps({"name": "raw", "program": {"command": ["true"], "code": code}}))
        assert sentence in one_host.cli("submit", path, status=None).stderr


@pytest.fixture
def repository(folder):
    """The folder's files in a commit, and other files in the work tree."""
    def git(*words):
        return subprocess.check_output(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], text=True).strip()
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")
    write_files(folder, {"message": "second"})
    git("commit", "-q", "-a", "-m", "second")
    write_files(folder, {"message": "changed"})
    return folder, commit, git("rev-parse", "HEAD")


def test_a_commit_of_git_is_fetched_by_the_client_and_hosts_need_no_git(one_host, repository, tmp_path_factory, monkeypatch):
    folder, first, second = repository
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))  # of the client
    place = tmp_path_factory.mktemp("spec")
    for commit, message in [(second, "second"), (first, "hello")]:  # the first one is the head of no branch
        spec = coded()
        spec["program"]["code"] = {"git": {"url": f"file://{folder}", "commit": commit}}
        job = submit(one_host, place, spec)
        one_host.wait_end(job)
        assert log_lines(one_host, job) == [message]
        stored = one_host.json("get", job)["spec"]["program"]["code"]
        assert stored["git"] == {"url": f"file://{folder}", "commit": commit} and len(stored["archive"]) == 64
        again = submit(one_host, place, {**spec, "program": {**spec["program"], "code": stored}})
        one_host.wait_end(again)
        assert archive_of(one_host, again) == stored["archive"]
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("git, sentence", [
    ({"commit": "main"}, "program.code.git.commit: is not the full hash of a commit"),
    ({"commit": "0" * 40}, "program.code.git: "),
    ({"url": "/nowhere"}, "program.code.git: fetch '/nowhere': git ended with status 128"),
    ({"url": "--upload-pack=touch /tmp/x"}, "program.code.git: fetch '--upload-pack=touch /tmp/x': git ended with status 128"),
    ({"url": "https://me:secret@host/x", "archive": "0" * 64}, "program.code.git.url: must not contain a password"),
    ({"folder": "."}, "program.code: give a folder or a commit of git, not both"),
])
def test_a_commit_that_cannot_be_had_is_refused_by_the_client(one_host, repository, git, sentence, tmp_path_factory, monkeypatch):
    folder, first, _ = repository
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))  # of the client
    code = {"git": {"url": f"file://{folder}", "commit": first}}
    for key, value in git.items():
        (code if key in ("folder", "archive") else code["git"])[key] = value
    spec = coded()
    spec["program"]["code"] = code
    assert sentence in submit(one_host, folder, spec, status=None)
    assert not list(temporary.iterdir())


def test_pause_resume_and_retry_run_the_same_code(one_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\necho attempt $TRAINYARD_ATTEMPT; echo '{\"step\": 1, \"a\": 1}' > $TRAINYARD_METRICS; "
                                     "test $TRAINYARD_ATTEMPT = 1 && sleep 100; test $TRAINYARD_ATTEMPT = 3 || exit 7"})
    job = submit(one_host, folder, coded(retry={"max_restarts": 0}))
    wait_until(lambda: log_lines(one_host, job), 30, "its first line")
    one_host.cli("pause", job)
    wait_until(lambda: one_host.json("get", job)["state"] == "PAUSED", 30, "the pause")
    write_files(folder, {"train.sh": "#!/bin/sh\necho other code"})
    one_host.cli("resume", job)
    one_host.wait_end(job, "FAILED")
    one_host.cli("retry", job)
    one_host.wait_end(job)
    assert log_lines(one_host, job) == ["attempt 1", "attempt 2", "attempt 3"]
    spec = one_host.cli("get", job, "-o", "yaml").stdout
    assert archive_of(one_host, job) in spec


def test_a_fork_runs_the_code_of_its_origin_or_its_own(one_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\ncat message; step=${TRAINYARD_RESUME##*step-}; next=$((${step:-0} + 1)); echo from ${step:-0}; "
                                     "mkdir $TRAINYARD_CHECKPOINTS/new && echo $next > $TRAINYARD_CHECKPOINTS/new/state && "
                                     "mv $TRAINYARD_CHECKPOINTS/new $TRAINYARD_CHECKPOINTS/step-$next"})
    first = submit(one_host, folder)
    one_host.wait_end(first)
    write_files(folder, {"message": "other\n"})
    same = one_host.cli("submit", "--fork", first, "--wait-for-hosts").stdout.strip()
    one_host.wait_end(same)
    assert archive_of(one_host, same) == archive_of(one_host, first)
    assert log_lines(one_host, same) == ["hellofrom 1"]
    own = one_host.cli("submit", "--fork", first, "--code", folder, "--wait-for-hosts").stdout.strip()
    one_host.wait_end(own)
    assert log_lines(one_host, own) == ["other", "from 1"]


def test_a_killed_agent_leaves_no_copy_and_the_job_continues(own_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\npwd; test $TRAINYARD_ATTEMPT = 1 && sleep 100; cat message"})
    job = submit(own_host, folder)
    path = wait_until(lambda: log_lines(own_host, job), 30, "its first line")[0]
    os.kill(own_host.pid_of("trainyard-executor"), signal.SIGKILL)
    own_host.wait_end(job)
    assert log_lines(own_host, job)[-1] == "hello"
    wait_until(lambda: not os.path.exists(os.path.dirname(path)), 30, "the removal of the killed agent's copies")


def test_a_damaged_archive_in_the_cache_is_fetched_again(own_host, folder):
    own_host.wait_end(submit(own_host, folder))
    (path,) = cached(own_host)
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    job = submit(own_host, folder)
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
