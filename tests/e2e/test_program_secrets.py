"""Secrets of programs: who gets a value, what a missing one or a missing key does, and where no clear value may be: in the
service's folder, in PostgreSQL's files, dumps and logs, in answers, events, logs and other processes' memory."""

import base64
import hashlib
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import textwrap

import pytest

from service_fixture import BIN, ROOT, Database, descendants, make_service, wait_until
from terminals import fork_terminal

sys.path.append(str(ROOT / "tests" / "rpc"))
from reflect import Reflector, channel  # noqa: E402

V1 = "trainyard.v1."


def value(n=24):
    """A value that occurs nowhere by chance."""
    return "s3cr3t-" + secrets.token_hex(n // 2)


def set_secret(service, name, text, status=0):
    return service.cli("secret", "set", name, input=text, status=status)


def spec(command, ranks=1, name="secretive", **more):
    return {"name": name, "program": {"command": command, **more.pop("program", {})}, "parallel": {"data": ranks}, **more}


def python(code, ranks=1, **more):
    return spec([sys.executable, "-c", textwrap.dedent(code)], ranks, **more)


def lines(service, job, stream="stdout"):
    text = service.cli("logs", job, "-o", "json").stdout
    pages = [json.loads(page) for page in text.splitlines()]
    return [line["text"] for page in pages for line in page["lines"] if line["stream"] == stream]


def refused(service, job_spec, tmp_path, *arguments):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job_spec))
    return service.cli("submit", path, *arguments, status=2).stderr


def files_with(needle, *folders):
    """Paths of files that contain the bytes, also those of PostgreSQL, which may vanish meanwhile."""
    found = []
    for folder in folders:
        for path in (pathlib.Path(at) / name for at, _, names in os.walk(folder) for name in names):
            try:
                if path.is_file() and not path.is_symlink() and needle in path.read_bytes():
                    found.append(str(path))
            except OSError:
                continue
    return found


def conninfo(service):
    found = [line for line in descendants(service.up.pid).values() if "trainyard-controller --database" in line]
    return re.search("--database (host=[^ ]+ user=[^ ]+ dbname=[^ ]+)", found[0])[1]


def sql(service, text):
    return subprocess.run([Database.program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo(service), "-c", text],
                          check=True, text=True, capture_output=True).stdout.strip()


def state_folders(service):
    """The folder of `up`, PostgreSQL's files, which root keeps elsewhere, and the folders of agents and ranks in TMPDIR."""
    data = sql(service, "SHOW data_directory")
    temporary = pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
    return [service.directory, pathlib.Path(data), *temporary.glob("trainyard-*")]


@pytest.fixture(scope="module")
def host():
    yield from make_service(executors=1, slots=4)


@pytest.fixture
def own_host():
    yield from make_service(executors=1, slots=2)


@pytest.mark.sanitized
def test_every_rank_gets_the_value_in_its_environment_and_its_log_shows_a_mark_in_its_place(host):
    text = value()
    assert set_secret(host, "TOKEN_A", text + "\n").stdout == "secrets/TOKEN_A is set\n"
    job = host.submit(python("""
        import hashlib, os, sys
        v = os.environ["HUB_TOKEN"]
        print("digest", hashlib.sha256(v.encode()).hexdigest())
        print("value", v, "end", flush=True)
        print("on stderr:" + v, file=sys.stderr)
        """, ranks=2, program={"secrets": {"HUB_TOKEN": "TOKEN_A"}}))
    host.wait_end(job)
    out = lines(host, job)
    assert out.count("digest " + hashlib.sha256(text.encode()).hexdigest()) == 2
    assert out.count("value *** end") == 2
    assert lines(host, job, "stderr").count("on stderr:***") == 2
    for command in (["get", job, "-o", "yaml"], ["get", job, "-o", "json"], ["events", job, "-o", "json"], ["explain", job]):
        assert text not in host.cli(*command).stdout
    assert "HUB_TOKEN: TOKEN_A" in host.cli("get", job, "-o", "yaml").stdout


def test_a_list_has_names_sizes_creators_times_and_keys_and_pages_and_no_call_returns_a_value(host):
    texts = {f"PAGE_{i}": value() for i in range(3)}
    for name, text in texts.items():
        set_secret(host, name, text)
    listed = {s["name"]: s for s in host.json("secret", "list")["secrets"]}
    for name, text in texts.items():
        row = listed["secrets/" + name]
        assert int(row["bytes"]) == len(text) and row["create_time"] and row["update_time"] and len(row["key"]) == 16
        assert set(row) <= {"name", "bytes", "creator", "create_time", "update_time", "key"}
    with channel(host.address) as calls:
        client = Reflector(calls)
        page = client.call(V1 + "SecretService", "ListSecrets", {"page_size": 1})
        names = [page["secrets"][0]["name"]]
        while page.get("next_page_token"):
            page = client.call(V1 + "SecretService", "ListSecrets", {"page_size": 1, "page_token": page["next_page_token"]})
            names += [s["name"] for s in page.get("secrets", [])]
        assert names == sorted(names) and set(names) == {s["name"] for s in host.json("secret", "list")["secrets"]}
        answer = client.call(V1 + "SecretService", "SetSecret",
                             {"name": "PAGE_0", "value": base64.b64encode(b"another-value").decode()})
        assert "value" not in answer and "another-value" not in json.dumps(answer)
    table = host.cli("secret", "list").stdout
    assert table.splitlines()[0].split() == ["SECRET", "BYTES", "CREATOR", "CREATED", "SET", "KEY"]
    assert not any(text in table for text in texts.values())
    assert host.cli("secret", "delete", "PAGE_1").stdout == "secrets/PAGE_1 is deleted\n"
    assert "PAGE_1" not in host.cli("secret", "list").stdout
    assert "there is no secret 'PAGE_1'" in host.cli("secret", "delete", "PAGE_1", status=4).stderr


@pytest.mark.parametrize("name, text, sentence", [
    ("A-B", "x", "'A-B' is not the name of a secret: 1 to 128 letters, digits and '_', the first no digit"),
    ("1A", "x", "'1A' is not the name of a secret"),
    ("A" * 129, "x", "is not the name of a secret"),
    ("EMPTY", "", "value: is empty"),
    ("EMPTY", "\n", "value: is empty"),
    ("LARGE", "x" * 65537, "value: has 65537 bytes, at most 65536 are allowed"),
    ("ZERO", "a\0b", "value: has a zero byte, which an environment variable cannot have"),
])
def test_a_wrong_name_or_value_is_refused_with_a_sentence(host, name, text, sentence):
    assert sentence in set_secret(host, name, text, status=2).stderr


def test_the_largest_value_and_bytes_that_are_no_text_arrive_whole(host, tmp_path):
    data = bytes(1 + i % 255 for i in range(65536))
    (tmp_path / "value").write_bytes(data)
    host.cli("secret", "set", "BYTES", "--file", tmp_path / "value")
    job = host.submit(python("""
        import hashlib, os
        print(hashlib.sha256(os.environb[b"BYTES"]).hexdigest())
        """, program={"secrets": {"BYTES": "BYTES"}}))
    host.wait_end(job)
    assert lines(host, job) == [hashlib.sha256(data).hexdigest()]


def test_a_job_that_names_a_missing_secret_is_refused_with_the_fields_path_before_it_has_a_slot(host, tmp_path):
    said = refused(host, spec(["true"], program={"secrets": {"HF_TOKEN": "NOBODY_HAS_IT"}}), tmp_path)
    assert ("program.secrets.HF_TOKEN: there is no secret 'NOBODY_HAS_IT': set it with 'trainyard secret set NOBODY_HAS_IT'"
            in said)
    path = tmp_path / "job.json"
    assert "program.secrets.HF_TOKEN: there is no secret" in host.cli("validate", path, status=2).stderr


def test_all_values_of_a_job_have_a_limit_together(host, tmp_path):
    (tmp_path / "value").write_text("x" * 65536)
    for i in range(17):
        host.cli("secret", "set", f"BIG_{i}", "--file", tmp_path / "value")
    named = {f"BIG_{i}": f"BIG_{i}" for i in range(17)}
    said = refused(host, spec(["true"], program={"secrets": named}), tmp_path)
    assert "program.secrets: the values have 1114112 bytes together, at most 1048576 are allowed" in said
    del named["BIG_16"]
    job = host.submit(python("import os; print(sum(len(v) for k, v in os.environ.items() if k[:4] == 'BIG_'))",
                             ranks=2, program={"secrets": named}))
    host.wait_end(job)
    assert lines(host, job) == ["1048576"] * 2


@pytest.mark.parametrize("program, sentence", [
    ({"secrets": {"A-B": "X"}}, "program.secrets: 'A-B' is not 1 to 128 letters, digits and '_'"),
    ({"secrets": {"TRAINYARD_X": "X"}}, "program.secrets.TRAINYARD_X: names that begin with TRAINYARD_ are the service's"),
    ({"secrets": {"X": "no-name"}}, "program.secrets.X: 'no-name' is not the name of a secret"),
    ({"secrets": {"X": "Y"}, "environment": {"X": "z"}}, "program.secrets.X: is also in program.environment"),
    ({"secrets": {f"X{i}": "Y" for i in range(65)}}, "program.secrets"),
])
def test_wrong_fields_are_refused_with_their_paths(host, tmp_path, program, sentence):
    assert sentence in refused(host, spec(["true"], program=program), tmp_path)


def test_an_attempt_gets_the_value_that_is_set_when_it_starts_and_fails_with_a_sentence_without_one(host):
    set_secret(host, "ROTATED", first := value())
    code = """
        import os, pathlib, time
        print("length", len(os.environ["R"]), flush=True)
        go = pathlib.Path(os.environ["GO"])
        while not go.exists():
            time.sleep(0.02)
        """
    go = host.directory / "go"
    job = host.submit(python(code, program={"secrets": {"R": "ROTATED"}, "environment": {"GO": str(go)}}))
    wait_until(lambda: lines(host, job) == [f"length {len(first)}"], 60, "the first attempt has the first value")
    set_secret(host, "ROTATED", second := value(40))
    host.cli("pause", job, "--wait")
    host.cli("resume", job)
    wait_until(lambda: lines(host, job)[1:] == [f"length {len(second)}"], 60, "the next attempt has the second value")
    host.cli("pause", job, "--wait")
    host.cli("secret", "delete", "ROTATED")
    host.cli("resume", job)
    ended = host.wait_end(job, "FAILED")
    sentence = "program.secrets.R: there is no secret 'ROTATED': set it with 'trainyard secret set ROTATED'"
    assert ended["reason"] == sentence
    assert ended["attempt"] == 3 and len(lines(host, job)) == 2, "a third attempt has started"
    go.touch()
    set_secret(host, "ROTATED", value(60))
    host.cli("retry", job)
    host.wait_end(job)
    assert lines(host, job)[2:] == [f"length {len(value(60))}"]


def test_a_fork_gets_the_secrets_of_its_spec(host):
    set_secret(host, "FORKED", value())
    job = host.submit(python("""
        import os
        folder = os.environ["TRAINYARD_CHECKPOINTS"]
        open(folder + "/step-1.tmp", "w").write("state")
        os.rename(folder + "/step-1.tmp", folder + "/step-1")
        print(len(os.environ["F"]), bool(os.environ["TRAINYARD_RESUME"]))
        """, program={"secrets": {"F": "FORKED"}}))
    host.wait_end(job)
    set_secret(host, "FORKED", value(50))
    fork = host.cli("submit", "--fork", job, "--wait-for-hosts").stdout.strip()
    host.wait_end(fork)
    assert lines(host, fork) == [f"{len(value(50))} True"]


@pytest.mark.parametrize("middle", ["", "\tand\x01"])
def test_nothing_that_a_program_says_about_a_value_leaves_its_host(host, middle):
    """Reasons, events, names of metrics, parameters of trackers, stacks, torch's error file. They have the printable form of
    control characters; names of metrics have another one, and quoted JSON escapes them, so that these are not tried."""
    text = value()
    text = text[:12] + middle + text[12:]
    set_secret(host, "SAID", text)
    job = host.submit(python("""
        import json, os, time, urllib.request
        v = os.environ["V"]
        name = v if v.isprintable() else "name"
        open(os.environ["TRAINYARD_METRICS"], "w").write(json.dumps({"step": 1, "loss-" + name: 1}) + "\\n" + v + "\\n")
        request = urllib.request.Request(os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/create", b"{}",
                                         {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"],
                                          "Content-Type": "application/json"})
        run = json.load(urllib.request.urlopen(request))["run"]["info"]["run_id"]
        for what, body in (("log-parameter", {"run_id": run, "key": "token", "value": v}),
                           ("set-tag", {"run_id": run, "key": "note", "value": "has " + v}),
                           ("log-metric", {"run_id": run, "key": "m-" + name, "value": 1.0, "timestamp": 1, "step": 2})):
            urllib.request.urlopen(urllib.request.Request(
                os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + what, json.dumps(body).encode(),
                {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"], "Content-Type": "application/json"}))
        open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write(json.dumps({"message": {
            "message": "OSError: cannot log in with " + v + " at the hub " + "x" * 150 + v,
            "extraInfo": {"timestamp": "1", "py_callstack": "Traceback (most recent call last):\\n  File "
                          "'/x.py', line 3, in f\\nOSError: cannot log in with " + v + "\\n"}}}))
        raise OSError("cannot log in with " + v)
        """, program={"secrets": {"V": "SAID"}}, retry={"max_restarts": 0}))
    ended = host.wait_end(job, "FAILED")
    assert "cannot log in with ***" in ended["reason"], ended["reason"]
    events = host.json("events", job)["events"]
    kinds = {e["kind"] for e in events}
    assert {"parameters", "tags", "metric_refused"} <= kinds, kinds
    everything = json.dumps([ended, events, host.json("logs", job), host.json("metrics", job)])

    for part in (text, text[:12], text[-12:]):
        assert part not in everything
    assert "token" in everything and "***" in everything


def test_a_sentence_that_is_cut_within_a_value_has_no_part_of_it(host):
    """Torch's error file has the whole value; the reason ends within its first bytes."""
    def reason(code):
        job = host.submit(python(f"""
            import json, os
            message = "OSError: " + {code}
            open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write(json.dumps({{"message": {{
                "message": message, "extraInfo": {{"timestamp": "1", "py_callstack": ""}}}}}}))
            raise SystemExit(1)
            """, program={"secrets": {"V": "CUT"}}, retry={"max_restarts": 0}))
        return host.wait_end(job, "FAILED")["reason"]
    set_secret(host, "CUT", text := value(60))
    shown = reason("'y' * 400").count("y")
    assert shown > 50
    said = reason(f"'y' * {shown - 6} + os.environ['V'] * 5")
    assert "yyy***" in said and text[:4] not in said, said


def test_stacks_of_a_hanging_program_have_no_value(host):
    text = value()
    set_secret(host, "STACKED", text)
    job = host.submit(spec(["sh", "-c", 'exec sh -c "sleep 600" "$V"'],
                           program={"secrets": {"V": "STACKED"}, "progress": {"timeout": 5}}, retry={"max_restarts": 0}))
    host.wait_end(job, "FAILED")
    logged = host.json("logs", job)["lines"]
    stacks = [line["text"] for line in logged if line["stream"] == "stacks"]
    assert any("***" in line for line in stacks), stacks
    assert not any(text in line["text"] for line in logged)


def test_a_value_is_found_wherever_the_program_divides_its_output(host, tmp_path):
    key = "-----BEGIN KEY-----\n" + "\n".join(secrets.token_hex(24) for _ in range(30)) + "\n-----END KEY-----\n"
    (tmp_path / "key").write_text(key)
    host.cli("secret", "set", "SPLIT_KEY", "--file", tmp_path / "key")
    text = value(100)
    set_secret(host, "SPLIT", text)
    job = host.submit(python("""
        import os, sys, time
        v, key = os.environ["V"], os.environ["KEY"]
        for at in range(1, len(v)):                                 # two writes
            os.write(1, b"<" + v[:at].encode())
            if at % 10 == 0:
                time.sleep(0.02)
            os.write(1, v[at:].encode() + b">\\n")
        for n in (16 << 10, 64 << 10, 128 << 10):                   # around the limits of reads, pipes and lines
            for off in range(-3, 4):
                os.write(1, b"." * (n - len(v) // 2 + off) + v.encode() + b"\\n")
        for line in key.splitlines():
            os.write(2, b"prefix: " + line.encode() + b"\\n")
        os.write(2, key.encode())
        """, program={"secrets": {"V": "SPLIT", "KEY": "SPLIT_KEY"}}))
    host.wait_end(job)
    logged = host.json("logs", job)["lines"]
    out = [line["text"] for line in logged if line["stream"] == "stdout"]
    assert out.count("<***>") == len(text) - 1
    err = [line["text"] for line in logged if line["stream"] == "stderr"]
    assert err.count("prefix: ***") == 32
    everything = "\n".join(out + err)
    assert text[:20] not in everything and text[-20:] not in everything
    assert not any(line in everything for line in key.splitlines()[1:-1])


def test_no_clear_value_is_on_disk_or_in_another_process_whatever_is_killed(own_host):
    """kill -9 of the controller and of the agent while a job with a secret runs; then the whole of the service's folder,
    PostgreSQL's files and log with every statement, the controller's log, a dump of the database."""
    service, text = own_host, value(60)
    needle = text.encode()
    sql(service, "ALTER SYSTEM SET log_statement = 'all'")
    sql(service, "SELECT pg_reload_conf()")
    set_secret(service, "DEEP", text)
    job = service.submit(python("""
        import os, time
        print(os.environ["DEEP"], flush=True)
        time.sleep(600)
        """, program={"secrets": {"DEEP": "DEEP"}}))
    wait_until(lambda: lines(service, job), 60, "the program runs")
    for program in ("trainyard-controller", "trainyard-executor"):
        pid = service.pid_of(program)
        if os.geteuid() == 0:  # who else could look
            assert needle not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        assert needle not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    old = lines(service, job)
    os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
    wait_until(lambda: service.cli("get", job, status=None).returncode == 0, 60, "a controller answers again")
    os.kill(service.pid_of("trainyard-executor"), signal.SIGKILL)
    wait_until(lambda: len(lines(service, job)) > len(old), 120, "the next attempt runs")
    assert set(lines(service, job)) == {"***"}
    mine = [pid for pid, line in descendants(service.up.pid).items() if needle in environ_of(pid)]
    commands = [descendants(service.up.pid).get(pid, "") for pid in mine]
    assert commands, "no process has the value: the search finds none"
    assert all(sys.executable in line for line in commands), commands
    for pid in mine:
        assert pathlib.Path(f"/proc/{pid}/environ").stat().st_mode & 0o077 == 0
    sql(service, "CHECKPOINT")
    assert files_with(needle, *state_folders(service)) == []
    assert files_with(base64.b64encode(needle), service.directory) == []
    dump = subprocess.run([Database.program("pg_dump"), "-d", conninfo(service)], check=True, capture_output=True).stdout
    assert b"DEEP" in dump and needle not in dump and needle.hex().encode() not in dump
    logged = [p for p in pathlib.Path(service.directory, "logs").iterdir()]
    assert any(b"secret_set" in p.read_bytes() for p in logged), "PostgreSQL logs no statements"
    assert not any(needle.hex().encode() in p.read_bytes() for p in logged)
    service.cli("cancel", job)


def environ_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class OwnController:
    """A controller that a test starts itself, on a database of its own in the cluster of `up`, with its own keys."""

    def __init__(self, service, name, folder):
        self.service, self.folder, self.database = service, folder, Database(service, name)
        self.socket, self.process = f"unix:{folder}/c.sock", None

    def key(self, name):
        path = self.folder / name
        subprocess.run([BIN / "trainyard-controller", "make-secret-key", path], check=True)
        assert path.stat().st_mode & 0o777 == 0o600
        return path

    def start(self, *keys):
        self.log = self.folder / "controller.log"
        arguments = [w for key in keys for w in ("--secret-key-file", str(key))]
        self.process = subprocess.Popen(
            [BIN / "trainyard-controller", "--database", self.database.conninfo, "--listen", self.socket, "--checkpoints",
             str(self.folder / "checkpoints"), "--log-level", "debug", *arguments],
            stdout=subprocess.PIPE, stderr=open(self.log, "wb"), env=self.service.environment(), text=True)
        assert self.process.stdout.readline().startswith("ready "), self.log.read_text()
        return self

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.process.stdout.close()

    def cli(self, *arguments, status=0, input=None):
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], text=True, input=input, capture_output=True,
                              env={**self.service.environment(), "TRAINYARD_CONTROLLER": self.socket}, timeout=120)
        assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def keys(self):
        return {s["name"]: s["key"] for s in json.loads(self.cli("secret", "list", "-o", "json").stdout).get("secrets", [])}

    def events(self, name):
        return [line for line in self.log.read_text().splitlines() if name in line]


@pytest.fixture
def controller(host, tmp_path, request):
    own = OwnController(host, "own" + secrets.token_hex(4), tmp_path)
    yield own
    if own.process and own.process.poll() is None:
        own.stop()


def test_without_a_key_a_secret_cannot_be_set_and_the_sentence_says_what_to_do(controller):
    controller.start()
    said = controller.cli("secret", "set", "A", input="some value", status=1).stderr
    assert "make one with 'trainyard-controller make-secret-key FILE'" in said and "--secret-key-file FILE" in said


def test_keys_are_rotated_without_a_restart_of_jobs_and_the_old_key_can_then_be_removed(controller):
    old, new = controller.key("old"), controller.key("new")
    controller.start(old)
    with channel(controller.socket) as calls:
        client = Reflector(calls)
        for i in range(150):  # more than one page
            client.call(V1 + "SecretService", "SetSecret",
                        {"name": f"S{i}", "value": base64.b64encode(value().encode()).decode()})
    before = set(controller.keys().values())
    assert len(before) == 1 and len(controller.keys()) == 150
    controller.stop()
    controller.start(new, old)
    wait_until(lambda: before.isdisjoint(controller.keys().values()), 60, "all are encrypted with the new key")
    assert controller.events("secrets_encrypted_again")
    assert len(set(controller.keys().values())) == 1 and len(controller.keys()) == 150
    controller.stop()
    controller.start(new)
    wait_until(lambda: controller.events("leading"), 60, "it leads")
    assert not controller.events("secrets_unreadable")


def test_a_missing_key_is_reported_at_the_start_and_by_the_job_that_needs_it(controller, tmp_path):
    controller.start(controller.key("lost"))
    controller.cli("secret", "set", "LOST", input=value())
    lost = controller.keys()["secrets/LOST"]
    controller.stop()
    controller.start(controller.key("other"))
    said = wait_until(lambda: controller.events("secrets_unreadable"), 60, "the report")[0]
    assert lost in said and "LOST" in said and "--secret-key-file" in said
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec(["true"], program={"secrets": {"L": "LOST"}})))
    said = controller.cli("submit", path, "--wait-for-hosts", status=2).stderr
    assert f"program.secrets.L: the secret 'LOST' is encrypted with the key {lost}, which this controller does not have" in said
    controller.cli("secret", "set", "LOST", input=value())  # the way out
    controller.cli("submit", path, "--wait-for-hosts")


def test_a_value_that_was_changed_or_moved_in_the_database_is_refused(controller, tmp_path):
    key = controller.key("key")
    controller.start(key)
    for name in ("A", "B"):
        controller.cli("secret", "set", name, input=value())
    controller.database.sql("UPDATE secret SET ciphertext = (SELECT ciphertext FROM secret WHERE name = 'B') WHERE name = 'A'")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(spec(["true"], program={"secrets": {"X": "A"}})))
    said = controller.cli("submit", path, "--wait-for-hosts", status=2).stderr
    assert "program.secrets.X: the secret 'A' has changed in the database since it was set: set it again" in said
    controller.stop()
    controller.start(controller.key("new"), key)
    reported = wait_until(lambda: controller.events("secret_damaged"), 60, "a report of the secret")
    assert len(reported) == 1 and "secrets=1 for_example=A" in reported[0] and "has changed in the database" in reported[0]
    assert controller.keys()["secrets/A"] != controller.keys()["secrets/B"], "the other one has the new key"


@pytest.mark.parametrize("make, sentence", [
    (lambda path: (path.write_text("trainyard_key_" + "0" * 64 + "\n"), path.chmod(0o640)), "others than its owner may use the key"),
    (lambda path: (path.write_text("trainyard_" + "0" * 64 + "\n"), path.chmod(0o600)), "holds no key for secrets"),
    (lambda path: (path.write_text("trainyard_key_" + "0" * 63 + "\n"), path.chmod(0o600)), "holds no key for secrets"),
    (lambda path: (path.write_text("trainyard_key_" + "0" * 65 + "\n"), path.chmod(0o600)), "holds no key for secrets"),
    (lambda path: (path.write_text("trainyard_key_" + "G" * 64 + "\n"), path.chmod(0o600)), "holds no key for secrets"),
    (lambda path: (path.touch(), path.chmod(0o600)), "holds no key for secrets"),
    (lambda path: path.mkdir(), "is not a file"),
    (lambda path: os.mkfifo(path, 0o600), "is not a file"),
    (lambda path: None, "No such file"),
])
def test_a_wrong_key_file_stops_the_start_with_a_sentence(tmp_path, make, sentence):
    path = tmp_path / "key"
    make(path)
    done = subprocess.run([BIN / "trainyard-controller", "--database", "host=/nowhere", "--listen", f"unix:{tmp_path}/s",
                           "--checkpoints", str(tmp_path), "--secret-key-file", str(path)],
                          text=True, capture_output=True, timeout=60)
    assert done.returncode == 1 and "--secret-key-file: " in done.stderr and sentence in done.stderr, done.stderr


def test_a_key_is_never_replaced(tmp_path):
    make = [BIN / "trainyard-controller", "make-secret-key", tmp_path / "key"]
    subprocess.run(make, check=True)
    before = (tmp_path / "key").read_text()
    assert re.fullmatch("trainyard_key_[0-9a-f]{64}\n", before)
    done = subprocess.run(make, text=True, capture_output=True)
    assert done.returncode == 1 and "is there already: a key is never replaced" in done.stderr
    assert (tmp_path / "key").read_text() == before and list(tmp_path.iterdir()) == [tmp_path / "key"]
    assert subprocess.run(make[:2], capture_output=True).returncode == 2


def type_secret(host, name, data):
    """What a terminal shows, the rest that its next reader would get, and the exit status."""
    import fcntl, termios, threading
    pid, fd = fork_terminal()
    if pid == 0:
        # the shell: the client, and then whoever reads the terminal next
        status = subprocess.run([BIN / "trainyard", "secret", "set", name], env=host.environment()).returncode
        left = len(os.read(0, 100)) if fcntl.ioctl(0, termios.FIONREAD, b"\0" * 4) != b"\0" * 4 else 0
        os.write(1, f"<left {left}>".encode())
        os._exit(status)
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(fd, 1000)
    writer = threading.Thread(target=os.write, args=(fd, data))  # may block until it is read
    writer.start()
    try:
        while more := os.read(fd, 1000):
            shown += more
    except OSError:
        pass
    writer.join()
    return shown, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("n", [24, 60000])
def test_a_terminal_does_not_show_the_value_and_does_not_cut_it(host, n):
    text = value(n)
    shown, status = type_secret(host, "TYPED", text.encode() + b"\n")
    assert status == 0 and text.encode() not in shown and b"secrets/TYPED is set" in shown, shown[-500:]
    assert {s["name"]: int(s["bytes"]) for s in host.json("secret", "list")["secrets"]}["secrets/TYPED"] == len(text)


def test_a_typed_value_can_be_corrected_before_enter(host):
    shown, status = type_secret(host, "CORRECTED", b"wrong\x15four\xc3\xa9\x7f5\n")
    assert status == 0, shown
    assert {s["name"]: int(s["bytes"]) for s in host.json("secret", "list")["secrets"]}["secrets/CORRECTED"] == 5


@pytest.mark.parametrize("text, sentence", [
    (b"-----BEGIN KEY-----\n" + b"rm -rf everything\n" * 50, b"several lines: use --file or stdin"),
    (b"x" * 65537 + b"\n", b"the value has more than 65536 bytes"),
], ids=["lines", "bytes"])
def test_a_pasted_value_of_several_lines_or_too_many_bytes_is_refused_and_the_shell_gets_none_of_it(host, text, sentence):
    shown, status = type_secret(host, "PASTED", text)
    assert status == 2 and sentence in shown and b"<left 0>" in shown, shown[-500:]
    assert "PASTED" not in host.cli("secret", "list").stdout


def test_a_file_and_stdin_lose_one_newline_at_their_end(host, tmp_path):
    (tmp_path / "value").write_text("two lines\nand two\n\n")
    host.cli("secret", "set", "FROM_FILE", "--file", tmp_path / "value")
    host.cli("secret", "set", "FROM_STDIN", input="two lines\nand two\n\n")
    sizes = {s["name"]: int(s["bytes"]) for s in host.json("secret", "list")["secrets"]}
    assert sizes["secrets/FROM_FILE"] == sizes["secrets/FROM_STDIN"] == len("two lines\nand two\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every process")
def test_no_process_of_the_same_user_reads_the_controller_the_agent_or_the_ranks_own_process(host):
    """Neither /proc/PID/mem nor a core dump: the processes are not dumpable, so that their files in /proc are root's."""
    set_secret(host, "UNREAD", value())
    job = host.submit(spec(["sh", "-c", "echo runs; sleep 600"], program={"secrets": {"U": "UNREAD"}}))
    wait_until(lambda: lines(host, job), 60, "the program runs")
    for program in ("trainyard-controller", "trainyard-executor", "trainyard-program"):
        pid = host.pid_of(program)
        assert pathlib.Path(f"/proc/{pid}/coredump_filter").stat().st_uid == 0
        with pytest.raises(PermissionError):
            open(f"/proc/{pid}/mem", "rb")
    host.cli("cancel", job)
