"""A client that nobody here wrote (grpcio, by reflection alone) creates, watches, queries and cancels on a real service."""

import uuid

import grpc
import pytest
from google.protobuf import descriptor_pb2
from reflect import Reflector, as_dict, channel, fields

V1 = "trainyard.v1."
SERVICES = {"JobService", "MetricService", "LogService", "CheckpointService", "ExecutorService", "QueueService",
            "TokenService", "CodeService", "ArtifactService", "ImportService", "SecretService", "StatusService",
            "SweepService", "DispatchService", "AuditService"}


@pytest.fixture(params=["v1", "v1alpha"])
def client(shared_service, request):
    with channel(shared_service.address) as open_channel:
        yield Reflector(open_channel, request.param)


def reason_of(failure):
    status = dict(fields(dict(failure.trailing_metadata())["grpc-status-details-bin"]))
    info = dict(fields(dict(fields(status[3]))[2]))
    assert info[2] == b"trainyard"
    return info[1].decode()


def watch_until(client, job, condition):
    watch = client.start(V1 + "JobService", "WatchJob", {"name": job}, timeout=120)
    for update in map(as_dict, watch):
        if condition(update):
            watch.cancel()
            return update
    raise AssertionError("the watch ended before")


def test_all_services_are_listed(client):
    listed = client.services()
    assert {name.removeprefix(V1) for name in listed if name.startswith(V1)} == SERVICES
    assert "grpc.health.v1.Health" in listed
    assert client.call("grpc.health.v1.Health", "Check", {})["status"] == "SERVING"


def test_every_method_is_there_and_refuses_nonsense_with_a_sentence(client):
    for name in SERVICES:
        service = client.service(V1 + name)
        proto = descriptor_pb2.ServiceDescriptorProto()
        service.CopyToProto(proto)
        for method in proto.method:
            try:
                answer = client.start(service.full_name, method.name, [] if method.client_streaming else {}, timeout=20)
                if method.server_streaming:
                    for _ in zip(range(1), answer):
                        pass
                    answer.cancel()
            except grpc.RpcError as failure:
                assert failure.code() not in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL,
                                              grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE,
                                              grpc.StatusCode.DEADLINE_EXCEEDED), (method.name, failure)
                assert failure.details(), method.name
                reason_of(failure)


def test_a_job_is_created_watched_and_queried(client, tiny):
    job = client.call(V1 + "JobService", "CreateJob", {"spec": tiny(steps=20, data=2, every=10)})
    name = job["name"]
    last = watch_until(client, name, lambda update: update.get("job", {}).get("state") == "SUCCEEDED")
    assert len(last["job"]["weights_sha256"]) == 64
    events = client.call(V1 + "JobService", "ListEvents", {"name": name})["events"]
    assert [int(e["number"]) for e in events] == list(range(1, len(events) + 1))
    series = client.call(V1 + "MetricService", "QueryMetrics", {"job": name, "names": ["loss"]})["series"]
    assert [int(s) for s in series[0]["step"]] == list(range(1, 21))
    checkpoints = client.call(V1 + "CheckpointService", "ListCheckpoints", {"parent": name})["checkpoints"]
    assert checkpoints[0]["state"] == "COMMITTED" and int(checkpoints[0]["step"]) == 20
    assert client.call(V1 + "CheckpointService", "GetCheckpoint", {"name": checkpoints[0]["name"]}) == checkpoints[0]
    assert name in [j["name"] for j in client.call(V1 + "JobService", "ListJobs", {})["jobs"]]
    sample = client.start(V1 + "CheckpointService", "Sample", {"name": name, "prompt": "the ", "tokens": 5}, timeout=60)
    assert "".join(piece.text for piece in sample)


def test_the_same_request_id_creates_one_job(client, tiny):
    request = {"spec": tiny(steps=1), "request_id": str(uuid.uuid4())}
    first, second = (client.call(V1 + "JobService", "CreateJob", request)["name"] for _ in range(2))
    assert first == second
    watch_until(client, first, lambda update: update.get("job", {}).get("state") == "SUCCEEDED")


def test_a_running_job_is_cancelled(client, tiny):
    name = client.call(V1 + "JobService", "CreateJob", {"spec": tiny(steps=100000)})["name"]
    watch_until(client, name, lambda update: int(update.get("progress", {}).get("step", 0)) > 0)
    client.call(V1 + "JobService", "CancelJob", {"name": name})
    watch_until(client, name, lambda update: update.get("job", {}).get("state") == "CANCELLED")
    with pytest.raises(grpc.RpcError) as failure:
        client.call(V1 + "JobService", "CancelJob", {"name": name})
    assert failure.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert reason_of(failure.value)


def test_a_bad_spec_is_refused_with_the_field(client, tiny):
    spec = tiny()
    spec["model"]["gpt"]["heads"] = 5
    with pytest.raises(grpc.RpcError) as failure:
        client.call(V1 + "JobService", "CreateJob", {"spec": spec})
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "model.gpt.heads: 5 does not divide width 32" in failure.value.details()


def test_an_unknown_job_is_not_found(client):
    with pytest.raises(grpc.RpcError) as failure:
        client.call(V1 + "JobService", "GetJob", {"name": "jobs/999999"})
    assert failure.value.code() == grpc.StatusCode.NOT_FOUND
    assert "jobs/999999" in failure.value.details()
