"""@grpc/grpc-js, which shares nothing with gRPC's C core, on a real service. Skipped where npm's packages are not there:
`npm install --prefix build/js @grpc/grpc-js @grpc/proto-loader` brings them."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
MODULES = os.environ.get("TRAINYARD_NODE_MODULES", str(HERE.parents[1] / "build" / "js" / "node_modules"))


def test_grpc_js_creates_watches_queries_and_cancels(shared_service, tiny):
    node = shutil.which("node")
    environment = {**os.environ, "NODE_PATH": MODULES}
    if not node or subprocess.run([node, "-e", "require('@grpc/grpc-js'), require('@grpc/proto-loader')"],
                                  env=environment, capture_output=True).returncode:
        pytest.skip("@grpc/grpc-js and @grpc/proto-loader are not installed")
    done = subprocess.run([node, HERE / "grpc_js_client.js", shared_service.address, json.dumps(tiny(steps=20))],
                          env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert "trainyard.v1.JobService" in saw["services"]
    assert (saw["state"], saw["cancelled"]) == ("SUCCEEDED", "CANCELLED")
    assert saw["steps"] == list(range(1, 21))
    assert saw["failure"]["code"] == 5 and "jobs/999999" in saw["failure"]["details"]
    assert saw["failure"]["has_details"] == 1
