"""Who may call what: every RPC by every role, tokens that are wrong, expire or are revoked, and streams that lose theirs."""

import contextlib
import json
import os
import pathlib
import re
import select
import stat
import subprocess
import sys
import tempfile
import threading

import grpc
import pytest
from google.protobuf import descriptor_pb2

from service_fixture import BIN, PATIENCE, ROOT, Database, Service, wait_until

sys.path.append(str(ROOT / "tests" / "rpc"))
from reflect import Reflector, channel, fields, text_field  # noqa: E402

ROLES = {1: "VIEWER", 2: "USER", 3: "ADMIN", 4: "EXECUTOR"}
OPTION_ALLOW = 51700
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
TRAINYARD = "trainyard.v1."


class Controller:
    """A controller of its own that asks for tokens, on a database of its own in the cluster of `up`."""

    def __init__(self, directory, up):
        self.directory, self.socket = directory, f"unix:{directory}/controller.sock"
        self.log, self.environment = directory / "controller.log", up.environment()
        self.database = Database(up, "access")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [BIN / "trainyard-controller", "--database", self.database.conninfo, "--checkpoints", self.directory / "checkpoints",
             "--listen", "127.0.0.1:0", "--listen", self.socket, "--log-level", "debug"],
            stdout=subprocess.PIPE, stderr=open(self.log, "ab"), text=True, env=self.environment)
        ready, _, _ = select.select([self.process.stdout], [], [], 60 * PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("ready "), self.log.read_text()[-2000:]
        self.address = line.split()[1]

    def stop(self):
        self.process.terminate()
        assert self.process.wait(40 * PATIENCE) == 0, self.log.read_text()[-2000:]

    def cli(self, *arguments, token=None, by_socket=False, status=0, **more):
        environment = dict(self.environment, TRAINYARD_CONTROLLER=self.socket if by_socket else self.address, **more)
        if token:
            environment["TRAINYARD_TOKEN"] = token
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], env=environment, capture_output=True, text=True,
                              timeout=120 * PATIENCE)
        assert status is None or done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def token(self, name, role):
        """Its secret. Where PostgreSQL stalls for too long the answer is lost, though not always the token."""
        def create():
            done = self.cli("token", "create", name, "--role", role, by_socket=True, status=None)
            if done.returncode != 0:
                assert done.returncode in (1, 5), done.stderr
                self.cli("token", "revoke", name, by_socket=True, status=None)
            return done.returncode == 0 and done.stdout.strip()
        return wait_until(create, 60, f"a token for {name}")

    @contextlib.contextmanager
    def client(self, token):
        """By reflection; the protos come through the socket, since not every token may read them."""
        with channel(self.address) as calls, channel(self.socket) as protos:
            reflector = Reflector(protos)
            reflector.channel, reflector.metadata = calls, [("authorization", f"Bearer {token}")]
            yield reflector


@pytest.fixture(scope="module")
def controller():
    with tempfile.TemporaryDirectory(prefix="trainyard-access-") as directory:
        directory = pathlib.Path(directory)
        (directory / "up").mkdir()
        up = Service(directory / "up", executors=0).start()
        try:
            controller = Controller(directory, up)
            try:
                yield controller
            finally:
                controller.stop()
        finally:
            up.stop()


@pytest.fixture(scope="module")
def tokens(controller):
    return {role: controller.token(role.lower(), role) for role in ROLES.values()}


def methods(controller):
    """(service, method, role) of every RPC that is served, as the descriptors say."""
    with channel(controller.socket) as protos:
        reflector = Reflector(protos)
        for name in reflector.services():
            proto = descriptor_pb2.ServiceDescriptorProto()
            reflector.service(name).CopyToProto(proto)
            for method in proto.method:
                yield name, method, dict(fields(method.options.SerializeToString())).get(OPTION_ALLOW)


def outcome(controller, service, method, headers):
    """The status of a call with one empty message, which every handler answers or refuses at once. UNAVAILABLE is none:
    PostgreSQL does not answer at the moment."""
    def ask():
        found = one_outcome(controller, service, method, headers)
        return found[0] not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) and found
    return wait_until(ask, 60, f"{service}.{method.name} is answered")


def one_outcome(controller, service, method, headers):
    with channel(controller.address) as open_channel:
        make = getattr(open_channel, ("stream" if method.client_streaming else "unary") +
                       ("_stream" if method.server_streaming else "_unary"))
        call = make(f"/{service}/{method.name}", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        try:
            answer = call(iter([b""]) if method.client_streaming else b"", metadata=headers, timeout=60 * PATIENCE)
            if method.server_streaming:
                for _ in zip(range(1), answer):
                    pass
                answer.cancel()
        except grpc.RpcError as failure:
            return failure.code(), failure.details()
        return grpc.StatusCode.OK, ""


def may(role, rule):
    """As access.proto says it."""
    if role == "EXECUTOR" or rule == "EXECUTOR":
        return role == rule
    order = ["VIEWER", "USER", "ADMIN"]
    return order.index(role) >= order.index(rule)


@pytest.mark.sanitized
def test_every_rpc_may_be_called_by_whom_its_proto_names_and_by_nobody_else(controller, tokens):
    seen = set()
    for service, method, rule in methods(controller):
        ours = service.startswith(TRAINYARD)
        assert ours == (rule is not None), f"{service}.{method.name} has rule {rule}"
        if service == "grpc.health.v1.Health":
            assert outcome(controller, service, method, ())[0] == grpc.StatusCode.OK
            continue
        rule = ROLES[rule] if ours else "VIEWER"
        seen.add(rule)
        code, why = outcome(controller, service, method, ())
        assert code == UNAUTHENTICATED and why.startswith(f"{method.name} needs a token"), (method.name, code, why)
        for role, secret in tokens.items():
            code, why = outcome(controller, service, method, [("authorization", f"Bearer {secret}")])
            if may(role, rule):
                assert code not in (UNAUTHENTICATED, DENIED), (service, method.name, role, code, why)
            else:
                assert code == DENIED, (service, method.name, role, code, why)
                assert why == f"{method.name} needs the role {rule}, and the token '{role.lower()}' has {role}"
    assert seen == set(ROLES.values())


@pytest.mark.parametrize("headers", [
    [("authorization", "")],
    [("authorization", "Bearer")],
    [("authorization", "Bearer ")],
    [("authorization", "Basic dXNlcjpwYXNz")],
    [("authorization", "Bearer two words")],
    [("authorization", "Bearer " + "x" * 513)],
    [("authorization", "Bearer " + "x" * 7000)],
    [("authorization", "Bearer x"), ("authorization", "Bearer x")],
    [("authorization", "Bearer x")],
    [("authorization", "Bearer " + "0" * 64)],
    [("authorization", "Bearer trainyard_" + "0" * 64)],
    [("x-authorization", "Bearer x")],
], ids=lambda headers: ", ".join(value[:20] for _, value in headers))
def test_a_header_that_is_no_good_token_is_refused(controller, headers):
    for service, method, _ in methods(controller):
        if method.name in ("GetJob", "WatchJob", "Attach"):
            code, why = outcome(controller, service, method, headers)
            assert code == UNAUTHENTICATED and why, (headers, code, why)


def test_a_good_token_beside_another_header_is_refused(controller, tokens):
    headers = [("authorization", f"Bearer {tokens['ADMIN']}"), ("authorization", "Bearer x")]
    for service, method, _ in methods(controller):
        if method.name == "ListTokens":
            for both in (headers, headers[::-1]):
                code, why = outcome(controller, service, method, both)
                assert (code, why) == (UNAUTHENTICATED, "the call has more than one authorization header")


def test_headers_larger_than_the_limit_harm_nobody_else(controller, tokens):
    for service, method, _ in methods(controller):
        if method.name == "ListJobs":
            code, _ = outcome(controller, service, method, [("authorization", "Bearer " + "x" * 20000)])
            assert code not in (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED)
            code, why = outcome(controller, service, method, [("authorization", f"Bearer {tokens['VIEWER']}")])
            assert code == grpc.StatusCode.OK, why


def test_the_client_says_in_a_sentence_what_is_missing_and_ends_with_6(controller, tokens, tmp_path):
    def refused(*arguments, **more):
        done = controller.cli(*arguments, status=6, **more)
        assert done.stdout == "" and done.stderr.count("\n") == 1
        return done.stderr
    assert refused("list") == ("trainyard: ListJobs needs a token, and none was sent: set TRAINYARD_TOKEN, or "
                               "TRAINYARD_TOKEN_FILE\n")
    assert refused("list", token="trainyard_wrong") == "trainyard: the token that was sent is not known here\n"
    assert refused("cancel", "1", token=tokens["VIEWER"]) == \
        "trainyard: CancelJob needs the role USER, and the token 'viewer' has VIEWER\n"
    assert "CreateToken needs the role ADMIN" in refused("token", "create", "x", "--role", "VIEWER", token=tokens["USER"])
    assert "ListJobs needs the role VIEWER" in refused("list", token=tokens["EXECUTOR"])
    file = tmp_path / "token"
    file.write_text(tokens["VIEWER"] + "\n")
    assert "jobs" in controller.cli("list", "-o", "json", TRAINYARD_TOKEN_FILE=str(file)).stdout
    assert "jobs" in controller.cli("list", "-o", "json", by_socket=True).stdout  # its mode is the check


def refused_at_last(controller, token):
    """What the client says once it is refused; it is so within seconds."""
    def look():
        done = subprocess.run([BIN / "trainyard", "list"], capture_output=True, text=True, timeout=60 * PATIENCE,
                              env=dict(controller.environment, TRAINYARD_CONTROLLER=controller.address,
                                       TRAINYARD_TOKEN=token))
        assert done.returncode in (0, 6), done.stderr
        return done.returncode == 6 and done.stderr
    return wait_until(look, 60, "the token is refused")


def test_a_revoked_token_is_refused_within_seconds_and_its_name_is_free(controller):
    first = controller.token("gone", "VIEWER")
    controller.cli("list", token=first)  # a new one is good at once
    again = controller.cli("token", "create", "gone", "--role", "USER", by_socket=True, status=1)
    assert "the token 'gone' exists already: revoke it first" in again.stderr
    assert controller.cli("token", "revoke", "gone", by_socket=True).stdout == "tokens/gone REVOKED\n"
    assert refused_at_last(controller, first) == "trainyard: the token 'gone' was revoked\n"
    second = controller.token("gone", "USER")
    assert second != first
    controller.cli("list", token=second)
    assert refused_at_last(controller, first) == "trainyard: the token that was sent is not known here\n"
    assert "there is no token 'nobody'" in controller.cli("token", "revoke", "nobody", by_socket=True, status=4).stderr


def test_an_expired_token_is_refused(controller):
    token = controller.token("old", "VIEWER")
    controller.cli("list", token=token)
    controller.database.sql("UPDATE token SET create_time = now() - interval '2 days', expire_time = now() - interval '1 day' "
                    "WHERE name = 'old'")
    assert refused_at_last(controller, token) == "trainyard: the token 'old' has expired\n"


@pytest.mark.sanitized
@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_stream_ends_with_its_token_and_others_go_on(controller, tokens, how):
    name = f"watcher-{how}"
    token = controller.token(name, "VIEWER")
    spec = ROOT / "docs" / "example.yaml"
    job = controller.cli("submit", spec, "--wait-for-hosts", token=tokens["USER"]).stdout.strip()  # nobody runs it: it stays QUEUED
    with controller.client(token) as mine, controller.client(tokens["VIEWER"]) as other:
        streams = [c.start(TRAINYARD + "JobService", "WatchJob", {"name": f"jobs/{job}"}, timeout=120 * PATIENCE)
                   for c in (mine, other)]
        for stream in streams:
            next(stream)
        if how == "revoked":
            controller.cli("token", "revoke", name, token=tokens["ADMIN"])
        else:
            controller.database.sql(f"UPDATE token SET expire_time = now() + interval '1 second' WHERE name = '{name}'")
        with pytest.raises(grpc.RpcError) as failure:
            for _ in streams[0]:
                pass
        assert failure.value.code() == UNAUTHENTICATED
        assert failure.value.details() == f"the token '{name}' {'was revoked' if how == 'revoked' else 'has expired'}"
        controller.cli("cancel", job, token=tokens["USER"])
        states = [m.job.state for m in streams[1] if m.HasField("job")]
        assert states[-1] == 11, "the other watch saw the job's end"


def test_a_drained_host_says_whose_token_asked_for_it(controller, tokens):
    controller.database.sql("INSERT INTO executor VALUES ('host-1', 1, 2, 'h', 'a', 'v', 1, '', now(), now(), now())")
    assert "DrainExecutor needs the role ADMIN" in controller.cli("drain", "host-1", token=tokens["USER"], status=6).stderr
    drained = json.loads(controller.cli("drain", "host-1", "-o", "json", token=tokens["ADMIN"]).stdout)["drain"]
    assert re.fullmatch(r"admin \(.+@.+\)", drained["requester"])
    controller.cli("undrain", "host-1", token=tokens["ADMIN"])


def test_an_executor_and_its_token_belong_together(controller, tokens):
    def stream(calls, name, token, first):
        """What the service says to a stream whose first message this is, which stays open. Its iterator."""
        stop = threading.Event()
        open_streams.append(stop)

        def messages():
            yield first
            stop.wait(60 * PATIENCE)
        call = calls.stream_stream(f"/{TRAINYARD}DispatchService/{name}", request_serializer=lambda b: b,
                                   response_deserializer=lambda b: b)
        return call(messages(), metadata=[("authorization", f"Bearer {token}")], timeout=60 * PATIENCE)

    def refusal(token, name, first):
        with pytest.raises(grpc.RpcError) as failure:
            next(stream(calls, name, token, first))
        assert failure.value.code() in (DENIED, grpc.StatusCode.UNAVAILABLE), failure.value
        return failure.value.details()

    def hello(executor):
        return text_field(1, text_field(1, executor) + bytes([2 << 3, 1]) + text_field(3, "0") + text_field(4, "host") + text_field(5, "127.0.0.1"))

    open_streams, first, other = [], controller.token("first", "EXECUTOR"), controller.token("second", "EXECUTOR")
    shared = controller.cli("token", "create", "fleet", "--role", "EXECUTOR", "--shared", by_socket=True).stdout.strip()
    with channel(controller.address) as calls:
        try:
            attached = stream(calls, "Attach", first, hello("host-a"))
            next(attached)  # its welcome
            foreign = "executor host-a is attached by the token of another caller than 'second'"
            assert refusal(other, "Attach", hello("host-a")) == foreign
            assert refusal(other, "Report", text_field(1, "host-a") + bytes([3 << 3, 1, 4 << 3, 1])) == foreign
            attached.cancel()
            # No one else speaks for it either when it is away, nor does its token speak for another one.
            wait_until(lambda: refusal(other, "Attach", hello("host-a")) == "executor host-a: the token 'first' speaks for it: revoke that one first",
                       60, "the executor keeps its token")
            wait_until(lambda: refusal(first, "Attach", hello("host-b")) == "executor host-b: the token 'first' speaks for executor host-a only: "
                       "create a token for each executor, or a shared one", 60, "the token keeps its executor")
            for executor in ("host-b", "host-c"):
                next(stream(calls, "Attach", shared, hello(executor)))
        finally:
            for stop in open_streams:
                stop.set()
    listed = {line.split()[0]: line.split()[-1] for line in controller.cli("token", "list", by_socket=True).stdout.splitlines()}
    assert (listed["first"], listed["second"], listed["fleet"], listed["viewer"]) == ("host-a", "-", "any", "-")
    assert "shared" in controller.cli("token", "create", "x", "--role", "USER", "--shared", by_socket=True, status=2).stderr


def test_tokens_are_listed_without_their_secrets(controller, tokens):
    assert controller.cli("token", "create", "dated", "--role", "viewer", "--days", "7", by_socket=True).stdout
    listed = controller.cli("token", "list", token=tokens["ADMIN"]).stdout
    assert [line.split()[:3] for line in listed.splitlines() if line.startswith("dated")] == [["dated", "VIEWER", "GOOD"]]
    for text in (listed, controller.cli("token", "list", "-o", "json", token=tokens["ADMIN"]).stdout):
        assert not any(secret in text for secret in tokens.values())
    for wrong in (["--role", "ROOT"], [], ["--role", "USER", "--days", "0"], ["--role", "USER", "--days", "99999"]):
        controller.cli("token", "create", "x", *wrong, by_socket=True, status=2)
    for wrong in ("", "-x", "a b", "a/b", "x" * 64, "tokens/"):
        done = controller.cli("token", "create", "--role", "USER", "--", wrong, by_socket=True, status=2)
        assert "is not the name of a token" in done.stderr


def test_no_secret_is_in_the_log_or_in_the_database(controller, tokens):
    controller.cli("list", token="trainyard_no_such_secret", status=6)
    log = controller.log.read_text()
    assert "token_created token=admin role=ADMIN " in log
    dump = subprocess.check_output([Database.program("pg_dump"), "-d", controller.database.conninfo], text=True)
    assert "admin" in dump
    for secret in [*tokens.values(), "trainyard_no_such_secret"]:
        plain = secret.removeprefix("trainyard_")
        assert plain not in log and plain not in dump


def test_a_controller_that_is_started_again_knows_its_tokens(controller, tokens):
    controller.stop()
    controller.start()
    controller.cli("list", token=tokens["VIEWER"])


STRANGER, KNOWN, DAEMON = 64321, 64322, 1  # numbers of users: one without a role, one with, and Debian's `daemon`


def as_user(uid, *words, **environment):
    """Runs a client as another user of the machine, who has no rights beyond."""
    return subprocess.run([BIN / "trainyard", *map(str, words)], user=uid, group=uid, extra_groups=[], env=environment,
                          capture_output=True, text=True, cwd="/", timeout=120 * PATIENCE)


@pytest.fixture(scope="module")
def shared_socket(controller):
    """A second controller of the same database, whose socket other users can reach. It stands by."""
    if os.geteuid() != 0:
        pytest.skip("only root can call as another user")
    with tempfile.TemporaryDirectory(prefix="ty-") as directory:
        os.chmod(directory, 0o755)
        socket = f"{directory}/s"
        log = open(f"{directory}/log", "ab")
        process = subprocess.Popen(
            [BIN / "trainyard-controller", "--database", controller.database.conninfo, "--checkpoints", controller.directory / "checkpoints",
             "--listen", f"unix:{socket}", "--socket-role", f"{KNOWN}=USER", "--socket-role", "daemon=VIEWER"],
            stdout=subprocess.DEVNULL, stderr=log, env=controller.environment)
        try:
            wait_until(lambda: os.path.exists(socket), 60, "the socket")
            yield socket
        finally:
            process.terminate()
            process.wait(40 * PATIENCE)
            log.close()


@pytest.mark.sanitized
def test_a_socket_knows_its_callers_and_gives_each_user_its_role(controller, shared_socket, tokens):
    environment = {k: v for k, v in controller.environment.items() if k != "TRAINYARD_CONTROLLER"} | {"TRAINYARD_CONTROLLER": f"unix:{shared_socket}"}
    assert stat.S_IMODE(os.stat(shared_socket).st_mode) == 0o666

    def refused(uid, *words, **more):
        done = as_user(uid, *words, **environment, **more)
        assert done.returncode == 6 and done.stdout == "", done
        return done.stderr
    assert refused(STRANGER, "list") == (f"trainyard: ListJobs needs a token: the user with the number {STRANGER} has no role at this socket "
                                         "(the controller's --socket-role)\n")
    assert as_user(STRANGER, "list", **environment, TRAINYARD_TOKEN=tokens["VIEWER"]).returncode == 0
    assert f"caller      uid:{KNOWN}\n" in as_user(KNOWN, "status", **environment).stdout
    assert "caller      daemon\n" in as_user(DAEMON, "status", **environment).stdout
    assert f"needs the role ADMIN, and the user 'uid:{KNOWN}' has USER" in refused(KNOWN, "token", "list")
    assert "CancelJob needs the role USER, and the user 'daemon' has VIEWER" in refused(DAEMON, "cancel", "1")
    assert "the token 'viewer' has VIEWER" in refused(KNOWN, "cancel", "1", TRAINYARD_TOKEN=tokens["VIEWER"])  # the token alone counts
    assert as_user(0, "token", "list", **environment).returncode == 0


def test_no_other_user_reaches_a_socket_without_roles(controller):
    path = controller.socket.removeprefix("unix:")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_loopback_has_no_administrator_without_a_token(controller):
    for words in (["token", "list"], ["list"], ["drain", "host-1"]):
        assert "needs a token, and none was sent" in controller.cli(*words, status=6).stderr
