"""The access log: one line for each call, whose id the client gave or gets back, and never a token."""

import json
import os
import pwd
import re
import socket

import grpc
import pytest

from monitored import Monitored
from service_fixture import PATIENCE, wait_until

ME = pwd.getpwuid(os.geteuid()).pw_name  # over a unix socket


@pytest.fixture(scope="module")
def logged(shared_service, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logged")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        tcp = f"127.0.0.1:{s.getsockname()[1]}"
    c = Monitored(shared_service, folder, "logged", ["--listen", tcp, "--access-log", folder / "access"])
    c.start().tcp = tcp
    yield c
    c.stop()


def lines(c):
    return [json.loads(line) for line in (c.directory / "access").read_text().splitlines()]


def call(c, method, *metadata):
    """Status and the id that came back, of an empty request."""
    with grpc.insecure_channel(c.tcp) as channel:
        rpc = channel.unary_unary(method)
        try:
            _, done = rpc.with_call(b"", metadata=metadata, timeout=30 * PATIENCE)
        except grpc.RpcError as e:
            done = e
        return done.code().name, dict(done.trailing_metadata()).get("x-request-id")


def line_of(c, request_id):
    return wait_until(lambda: [x for x in lines(c) if x["request_id"] == request_id], 30, "the line")[0]


def test_a_call_has_a_line_with_its_caller_its_end_and_its_id(logged):
    token = logged.cli("token", "create", "ann", "--role", "VIEWER").stdout.strip().splitlines()[-1]
    bearer = ("authorization", f"Bearer {token}")
    status, made = call(logged, "/trainyard.v1.JobService/ListJobs", bearer)
    assert status == "OK" and re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", made)
    found = line_of(logged, made)
    assert (found["service"], found["method"], found["caller"], found["status"]) == ("JobService", "ListJobs", "ann", "OK")
    assert found["peer"].startswith("ipv4:127.0.0.1:") and 0 < found["milliseconds"] < 60000 and re.fullmatch(r"[\d-]+T[\d:.]+Z", found["time"])
    assert call(logged, "/trainyard.v1.JobService/ListJobs", bearer, ("x-request-id", "build-7_a.b")) == ("OK", "build-7_a.b")
    assert line_of(logged, "build-7_a.b")["caller"] == "ann"
    assert call(logged, "/trainyard.v1.JobService/CancelJob", bearer, ("x-request-id", "no")) == ("PERMISSION_DENIED", "no")
    assert line_of(logged, "no")["status"] == "PERMISSION_DENIED"
    assert token not in (logged.directory / "access").read_text() + logged.log()


def test_refused_and_unknown_calls_have_lines_without_a_caller(logged):
    assert call(logged, "/trainyard.v1.JobService/ListJobs", ("authorization", "Bearer trainyard_secret"), ("x-request-id", "refused")) \
        == ("UNAUTHENTICATED", "refused")
    assert line_of(logged, "refused")["caller"] == ""
    assert call(logged, "/no.Such/Method", ("x-request-id", "unknown")) == ("UNIMPLEMENTED", "unknown")
    assert (line_of(logged, "unknown")["service"], line_of(logged, "unknown")["method"]) == ("", "")
    assert "trainyard_secret" not in (logged.directory / "access").read_text()


@pytest.mark.parametrize("given", ["x" * 65, "a b", 'a"b', "a/b", ""])
def test_an_id_that_could_forge_a_line_is_replaced(logged, given):
    _, got = call(logged, "/grpc.health.v1.Health/Check", ("x-request-id", given))
    assert got != given and re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", got) and line_of(logged, got)["method"] == "Check"


def test_the_calls_of_a_command_have_one_id(logged):
    """A second command has another one. `top` asks for the status and for the jobs."""
    def ids(*command):
        before = len(lines(logged))
        logged.cli(*command)
        def calls():
            return [x for x in lines(logged)[before:] if x["caller"] == ME and x["service"] != "Health"]
        return {x["request_id"] for x in wait_until(lambda: len(calls()) >= 2 and calls(), 30, "the lines")}
    first, second = ids("top"), ids("top")
    uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert len(first) == len(second) == 1 and first != second and all(re.fullmatch(uuid, x) for x in first | second)


def test_an_unexpected_error_names_the_id_under_which_the_access_log_has_the_call(logged):
    logged.database.sql("ALTER TABLE secret RENAME TO gone")
    try:
        failed = logged.cli("secret", "list", status=1)
    finally:
        logged.database.sql("ALTER TABLE gone RENAME TO secret")
    found = line_of(logged, re.search(r"\(request (\S+)\)$", failed.stderr.strip())[1])
    assert (found["service"], found["method"], found["status"]) == ("SecretService", "ListSecrets", "INTERNAL")


def test_the_access_log_may_be_the_log(shared_service, tmp_path):
    c = Monitored(shared_service, tmp_path, "to_log", ["--access-log", "-"]).start()
    c.cli("get", "1", status=4)
    wait_until(lambda: re.search(rf"info call service=JobService method=GetJob caller={ME} peer=\"unix:uid={os.geteuid()}\" status=NOT_FOUND milliseconds=", c.log()),
               30, "the line")
    c.stop()
