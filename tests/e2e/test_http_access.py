"""The pages of --http on an address that other machines can reach: TLS, and a token for /metrics."""

import http.client
import re
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from monitored import Monitored
from service_fixture import PATIENCE, wait_until


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("pair")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def guarded(shared_service, tmp_path_factory, pair):
    c = Monitored(shared_service, tmp_path_factory.mktemp("guarded"), "guarded", ["--tls-cert", pair[0], "--tls-key", pair[1]],
                  http="0.0.0.0:0").start()
    c.trust = ssl.create_default_context(cafile=str(pair[0]))
    yield c
    c.stop()


def get(c, path, token=None):
    """Status and text."""
    request = urllib.request.Request(f"https://127.0.0.1:{c.http.rsplit(':', 1)[1]}{path}",
                                     headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30 * PATIENCE, context=c.trust) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def new_token(c, name, role):
    return c.cli("token", "create", name, "--role", role).stdout.strip().splitlines()[-1]


def start_fails(c):
    """The log of a controller that does not start."""
    with pytest.raises(AssertionError):
        c.start()
    assert c.process.wait(60 * PATIENCE) == 1
    c.process.stdout.close()
    return c.log()


def test_without_tls_the_controller_refuses_an_address_that_other_machines_reach(shared_service, tmp_path):
    assert re.search("'0.0.0.0:0' can be reached by other machines: it needs TLS, --tls-cert and --tls-key",
                     start_fails(Monitored(shared_service, tmp_path, "open", http="0.0.0.0:0")))


def test_metrics_need_a_token_whose_role_may_read(guarded):
    status, text = get(guarded, "/metrics")
    assert status == 401 and "Authorization: Bearer" in text
    assert get(guarded, "/metrics", "trainyard_" + "0" * 64) == (401, "the token that was sent is not known here\n")
    status, text = get(guarded, "/metrics", new_token(guarded, "host-1", "EXECUTOR"))
    assert status == 403 and text == "/metrics needs the role VIEWER, and the token 'host-1' has EXECUTOR\n"
    status, text = get(guarded, "/metrics", new_token(guarded, "prometheus", "VIEWER"))
    assert status == 200 and "trainyard_leader 1\n" in text


def test_a_revoked_token_is_refused_soon(guarded):
    token = new_token(guarded, "revoked", "ADMIN")
    assert get(guarded, "/metrics", token)[0] == 200
    guarded.cli("token", "revoke", "revoked")
    wait_until(lambda: get(guarded, "/metrics", token)[0] == 401, 10, "the refusal")
    assert token not in guarded.log()


def test_probes_need_no_token_but_tls(guarded):
    assert get(guarded, "/healthz") == (200, "leading\n") and get(guarded, "/livez") == (200, "alive\n")
    plain = http.client.HTTPConnection("127.0.0.1", int(guarded.http.rsplit(":", 1)[1]), timeout=30 * PATIENCE)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.request("GET", "/healthz")
        plain.getresponse()


def test_files_that_are_no_pair_are_one_sentence(shared_service, tmp_path, pair):
    (tmp_path / "empty.pem").write_text("")
    c = Monitored(shared_service, tmp_path, "unpaired", ["--tls-cert", pair[0], "--tls-key", tmp_path / "empty.pem"], http="0.0.0.0:0")
    assert "--tls-cert and --tls-key" in start_fails(c)


def test_a_token_of_a_project_does_not_see_the_metrics_of_the_cluster(guarded):
    token = guarded.cli("token", "create", "speech", "--role", "USER", "--project", "speech").stdout.strip().splitlines()[-1]
    status, text = get(guarded, "/metrics", token)
    assert status == 403 and "/metrics is about the whole cluster" in text and "speech" in text, (status, text)
