"""Tokens of a project: what they may call, whose jobs they see, and what belongs to the jobs that they submit."""

import json

import grpc
import pytest

from service_fixture import ROOT, wait_until
from test_access import DENIED, TRAINYARD, controller, methods  # noqa: F401 (a fixture)

SPEC = ROOT / "docs" / "example.yaml"
# What a token of a project may call without naming a job.
WITHOUT_JOB = {"CreateJob", "ValidateJob", "ListJobs", "GetArchive", "UploadChunk"}
NAMES_A_JOB = ("name", "job", "parent")


@pytest.fixture(scope="module")
def secrets(controller):  # noqa: F811
    """By name: the secret of a token, of a project or of none."""
    def create(name, role, *project):
        def once():
            done = controller.cli("token", "create", name, "--role", role, *project, by_socket=True, status=None)
            if done.returncode != 0:
                controller.cli("token", "revoke", name, by_socket=True, status=None)
            return done.returncode == 0 and done.stdout.strip()
        return wait_until(once, 60, f"a token for {name}")
    return {"all": create("all", "USER"), "vision": create("vision", "USER", "--project", "vision"),
            "speech": create("speech", "USER", "--project", "speech"),
            "reader": create("reader", "VIEWER", "--project", "vision")}


@pytest.fixture(scope="module")
def jobs(controller, secrets):  # noqa: F811
    """A job of each project, which stays QUEUED: there is no executor."""
    return {name: controller.cli("submit", SPEC, "--wait-for-hosts", token=secrets[name]).stdout.strip()
            for name in ("all", "vision", "speech")}


def outcome(client, service, method, content):
    """The status and the sentence of a call; of a stream, of its first answer."""
    def ask():
        try:
            answer = client.start(service, method, content, timeout=60)
            if hasattr(answer, "cancel"):
                next(iter(answer), None)
                answer.cancel()
        except grpc.RpcError as failure:
            if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return None
            return failure.code(), failure.details()
        return grpc.StatusCode.OK, ""
    return wait_until(ask, 60, f"{method} is answered")


@pytest.mark.sanitized
def test_every_rpc_refuses_a_token_of_another_project(controller, secrets, jobs):  # noqa: F811
    about_jobs, refused = set(), set()
    for name in ("all", "vision"):  # jobs of no project and of another project
        with controller.client(secrets["speech"]) as client:
            for service, method, rule in methods(controller):
                if not service.startswith(TRAINYARD) or rule not in (1, 2) or method.name in WITHOUT_JOB:
                    continue
                descriptor = client.service(service).methods_by_name[method.name].input_type
                field = next((f for f in NAMES_A_JOB if f in descriptor.fields_by_name), None)
                plain = field and service not in (TRAINYARD + "SweepService", TRAINYARD + "SecretService")
                code, why = outcome(client, service, method.name, {field: f"jobs/{jobs[name]}"} if plain else {})
                assert code == DENIED and "the project 'speech'" in why, (method.name, code, why)
                (about_jobs if "is of another project" in why else refused).add(method.name)
                if "is of another project" in why:
                    assert why == (f"jobs/{jobs[name]} is of another project: {method.name} needs a role in it, and the token "
                                   "'speech' is for the project 'speech'")
    assert len(about_jobs) >= 20 and not about_jobs & refused
    assert {"ListSecrets", "ListExecutors", "GetStatus", "ListSweeps"} <= refused


@pytest.mark.sanitized
def test_a_project_sees_its_own_jobs_only(controller, secrets, jobs):  # noqa: F811
    def listed(token, *options):
        found = json.loads(controller.cli("list", "-o", "json", *options, token=secrets[token]).stdout)["jobs"]
        return {job["name"].removeprefix("jobs/"): job["project"] for job in found}
    assert listed("vision") == listed("reader") == {jobs["vision"]: "vision"}
    assert listed("speech") == {jobs["speech"]: "speech"}
    assert listed("all") == {jobs["all"]: "default", jobs["vision"]: "vision", jobs["speech"]: "speech"}
    with controller.client(secrets["all"]) as client:
        answer = client.call(TRAINYARD + "JobService", "ListJobs", {"project": "speech"})
        assert [job["name"] for job in answer["jobs"]] == [f"jobs/{jobs['speech']}"]
    with controller.client(secrets["vision"]) as client:
        code, why = outcome(client, TRAINYARD + "JobService", "ListJobs", {"project": "speech"})
        assert (code, why) == (DENIED, "project: the token 'vision' is for the project 'vision' only")
        assert client.call(TRAINYARD + "JobService", "GetJob", {"name": jobs["vision"]})["project"] == "vision"
        code, why = outcome(client, TRAINYARD + "JobService", "GetJob", {"name": "jobs/999"})
        assert (code, why) == (grpc.StatusCode.NOT_FOUND, "jobs/999 does not exist")


def test_the_role_holds_within_the_project(controller, secrets, jobs):  # noqa: F811
    job = controller.cli("submit", SPEC, "--wait-for-hosts", token=secrets["vision"]).stdout.strip()
    refused = controller.cli("cancel", job, token=secrets["reader"], status=6).stderr
    assert refused == "trainyard: CancelJob needs the role USER, and the token 'reader' has VIEWER\n"

    def recorded():
        refused = controller.cli("cancel", job, token=secrets["speech"], status=6).stderr
        assert f"jobs/{job} is of another project: CancelJob needs a role in it" in refused
        found = json.loads(controller.cli("audit", "--job", job, "--failed", "-o", "json", by_socket=True).stdout)
        return ("speech", "JobService.CancelJob") in {(x["caller"], x["method"]) for x in found.get("entries", [])}
    wait_until(recorded, 60, "an entry of a refused call")  # the log leaves out some of many failures at once
    controller.cli("cancel", job, token=secrets["vision"])
    controller.cli("delete", job, token=secrets["vision"])


def test_a_job_begins_with_nothing_of_another_project(controller, secrets, jobs, tmp_path):  # noqa: F811
    with controller.client(secrets["all"]) as client:
        spec = client.call(TRAINYARD + "JobService", "GetJob", {"name": jobs["vision"]})["spec"]
    weights = dict(spec, train=dict(spec["train"], init_from=f"jobs/{jobs['vision']}/checkpoints/1"))
    program = {"name": "p", "program": {"command": ["true"], "secrets": {"KEY": "KEY"}}}
    requests = [({"spec": spec, "fork": f"jobs/{jobs['vision']}"}, "fork: jobs/"),
                ({"spec": spec, "fork": f"{jobs['vision']}@300"}, "fork: jobs/"),
                ({"spec": weights}, "train.init_from: jobs/"),
                ({"spec": program}, "secrets belong to the whole cluster")]
    for method in ("CreateJob", "ValidateJob"):
        for request, sentence in requests:
            with controller.client(secrets["speech"]) as client:
                code, why = outcome(client, TRAINYARD + "JobService", method, request)
            assert code == DENIED and why.startswith(sentence) and "'speech'" in why, (request, code, why)


def test_a_request_id_shows_no_job_of_another_project(controller, secrets):  # noqa: F811
    request_id = "5d0ce8e6-6a4b-4d2e-9e0c-3b0f0a1d2c3b"
    with controller.client(secrets["all"]) as client:
        spec = client.call(TRAINYARD + "JobService", "ListJobs", {})["jobs"][0]["spec"]
        request = {"spec": spec, "request_id": request_id, "wait_for_hosts": True}
        first = client.call(TRAINYARD + "JobService", "CreateJob", request)
        assert client.call(TRAINYARD + "JobService", "CreateJob", request)["name"] == first["name"]
    with controller.client(secrets["speech"]) as client:
        code, why = outcome(client, TRAINYARD + "JobService", "CreateJob", request)
    assert (code, why) == (grpc.StatusCode.ALREADY_EXISTS,
                           "request_id: it was already used outside of the project 'speech'")


def test_a_project_is_a_name_and_goes_with_two_roles(controller, secrets):  # noqa: F811
    def refused(*options):
        return controller.cli("token", "create", "x", *options, by_socket=True, status=2).stderr
    for role in ("ADMIN", "EXECUTOR"):
        assert "only a token of role VIEWER or USER can be for a project" in refused("--role", role, "--project", "p")
    assert "project: " in refused("--role", "USER", "--project", "a b")
    assert "--project" in refused("--join", "--project", "p")
    rows = {line.split()[0]: line.split()[-2] for line in controller.cli("token", "list", by_socket=True).stdout.splitlines()}
    assert (rows["vision"], rows["all"]) == ("vision", "-")
