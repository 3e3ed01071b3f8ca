"""The audit log: each change and each refusal has an entry that nothing changes, and that outlives its object."""

import json
import re
import socket

import grpc
import pytest

from monitored import Monitored
from service_fixture import PATIENCE, ROOT, wait_until

JOBS = "/trainyard.v1.JobService/"


@pytest.fixture(scope="module")
def audited(shared_service, tmp_path_factory):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        tcp = f"127.0.0.1:{s.getsockname()[1]}"
    c = Monitored(shared_service, tmp_path_factory.mktemp("audited"), "audited", ["--listen", tcp])
    c.start().tcp = tcp
    c.tokens = {name: c.cli("token", "create", name, "--role", role).stdout.strip().splitlines()[-1]
                for name, role in (("ann", "USER"), ("eve", "VIEWER"), ("boss", "ADMIN"))}
    yield c
    c.stop()


def by(c, name, *arguments, **more):
    return c.cli(*arguments, TRAINYARD_CONTROLLER=c.tcp, TRAINYARD_TOKEN=c.tokens[name], **more)


def entries(c, *options):
    return json.loads(c.cli("audit", "-o", "json", *options).stdout).get("entries", [])


def entry(c, *options, **fields):
    """The newest entry with these fields. Failures get theirs a moment after the answer."""
    def find():
        return [x for x in entries(c, *options) if all(x.get(k, "") == v for k, v in fields.items())]
    return wait_until(find, 30, f"an entry {fields}")[0]


def call(c, method, *metadata):
    with grpc.insecure_channel(c.tcp) as channel:
        with pytest.raises(grpc.RpcError) as failure:
            channel.unary_unary(method)(b"", metadata=metadata, timeout=30 * PATIENCE)
        return failure.value.code().name


@pytest.mark.sanitized
def test_a_change_has_an_entry_that_outlives_its_object(audited):
    job = by(audited, "ann", "submit", ROOT / "docs" / "example.yaml", "--wait-for-hosts").stdout.strip()
    by(audited, "ann", "cancel", job)
    by(audited, "ann", "get", job)
    by(audited, "ann", "delete", job, "--yes")
    wait_until(lambda: audited.cli("get", job, status=None).returncode == 4, 60, "the job is gone")
    found = entries(audited, "--job", job)
    assert [x["method"] for x in found] == [f"JobService.{m}Job" for m in ("Delete", "Cancel", "Create")]
    assert {(x["caller"], x["object"], x["result"]) for x in found} == {("ann", f"jobs/{job}", "OK")}
    assert all(x["address"].startswith("ipv4:127.0.0.1:") and re.fullmatch(r"[0-9a-f-]{36}", x["request_id"]) for x in found)
    assert found == entries(audited, "--job", job, "--user", "ann", "--since", "1h")
    assert [] == entries(audited, "--job", job, "--user", "eve") == entries(audited, "--job", job, "--failed")
    assert len(entries(audited, "--job", job, "--limit", "2")) == 2
    table = audited.cli("audit", "--job", job).stdout.splitlines()
    assert table[0].split() == ["TIME", "CALLER", "ADDRESS", "CALL", "OBJECT", "RESULT", "MESSAGE"] and len(table) == 4


def test_refused_and_failed_calls_have_entries_with_the_reason(audited):
    assert call(audited, JOBS + "CancelJob", ("authorization", f"Bearer {audited.tokens['eve']}"), ("x-request-id", "role")) == "PERMISSION_DENIED"
    found = entry(audited, "--failed", request_id="role")
    assert (found["caller"], found["method"], found["result"]) == ("eve", "JobService.CancelJob", "PERMISSION_DENIED")
    assert found["message"] == "CancelJob needs the role USER, and the token 'eve' has VIEWER" and not found.get("object")
    for metadata in ([], [("authorization", "Bearer trainyard_secret")]):  # also of a call that only reads
        assert call(audited, JOBS + "ListJobs", *metadata, ("x-request-id", f"none-{len(metadata)}")) == "UNAUTHENTICATED"
        found = entry(audited, request_id=f"none-{len(metadata)}")
        assert (found.get("caller", ""), found["result"]) == ("", "UNAUTHENTICATED")
    by(audited, "ann", "cancel", "123456", status=4)
    found = entry(audited, "--job", "123456", result="NOT_FOUND")
    assert (found["caller"], found["object"]) == ("ann", "jobs/123456") and found["message"]


def test_changes_of_secrets_tokens_hosts_and_sweeps_are_recorded_without_secrets(audited):
    audited.database.sql("INSERT INTO executor VALUES ('host-1', 1, 2, 'h', 'a', 'v', 1, '', now(), now(), now())")
    token = by(audited, "boss", "token", "create", "later", "--role", "VIEWER").stdout.strip().splitlines()[-1]
    by(audited, "boss", "token", "revoke", "later")
    by(audited, "boss", "drain", "host-1")
    by(audited, "boss", "undrain", "host-1")
    by(audited, "ann", "secret", "delete", "NOTHING", status=4)
    found = [(x["method"], x["object"], x["result"]) for x in entries(audited, "--user", "boss")]
    assert found == [("ExecutorService.UndrainExecutor", "executors/host-1", "OK"), ("ExecutorService.DrainExecutor", "executors/host-1", "OK"),
                     ("TokenService.RevokeToken", "tokens/later", "OK"), ("TokenService.CreateToken", "tokens/later", "OK")]
    assert entry(audited, method="SecretService.DeleteSecret")["object"] == "secrets/NOTHING"
    for secret in (token, *audited.tokens.values()):
        assert secret.removeprefix("trainyard_") not in json.dumps(entries(audited))


def test_reads_and_checks_have_no_entries(audited):
    before = len(entries(audited, "--limit", "1000"))
    for arguments in (["list"], ["status"], ["executors"], ["token", "list"], ["audit"], ["validate", ROOT / "docs" / "example.yaml", "--wait-for-hosts"]):
        by(audited, "boss", *arguments, status=None)
    assert len(entries(audited, "--limit", "1000")) == before


def test_only_an_admin_reads_the_log(audited):
    for name in ("ann", "eve"):
        assert "ListAuditEntries needs the role ADMIN" in by(audited, name, "audit", status=6).stderr
    assert "names" in audited.cli("audit", "-o", "name", status=2).stderr
    assert "--since" in audited.cli("audit", "--since", "yesterday", status=2).stderr
    assert "--limit" in audited.cli("audit", "--limit", "0", status=2).stderr
    assert "no-such-job" in audited.cli("audit", "--job", "no-such-job", status=4).stderr


@pytest.mark.sanitized
def test_a_change_without_an_entry_is_not_acknowledged(audited):
    """The client repeats the call, which changes nothing more, until its entry can be stored."""
    audited.database.sql("ALTER TABLE audit RENAME TO away")
    try:
        failed = audited.cli("token", "create", "unrecorded", "--role", "VIEWER", status=None)
    finally:
        audited.database.sql("ALTER TABLE away RENAME TO audit")
    assert failed.returncode != 0 and failed.stdout == "", failed
    assert "audit_not_written" in audited.log()
    audited.cli("token", "revoke", "unrecorded")
    assert entry(audited, object="tokens/unrecorded", result="OK")["method"] == "TokenService.RevokeToken"
