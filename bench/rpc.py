"""The RPC runtime's server beside gRPC's own C++ one (callback API), both called by the same client over the same socket.

Needs libgrpc++-dev and protobuf-compiler-grpc for the peer; without them the ratios are left out.
"""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

from report import BIN, ROOT, report

MS = os.environ.get("TRAINYARD_BENCH_MS", "1500")
ROUNDS = 3


def build_peer(place):
    plugin = shutil.which("grpc_cpp_plugin")
    if not plugin or not pathlib.Path("/usr/include/grpcpp").is_dir():
        return None
    protos = ROOT / "tests" / "rpc"
    subprocess.run(["protoc", f"-I{protos}", f"--cpp_out={place}", f"--grpc_out={place}",
                    f"--plugin=protoc-gen-grpc={plugin}", protos / "echo.proto"], check=True)
    libraries = subprocess.run(["pkg-config", "--libs", "grpc++", "protobuf"], check=True, text=True,
                               capture_output=True).stdout.split()
    subprocess.run(["c++", "-O2", "-std=c++17", f"-I{place}", "-o", place / "peer", ROOT / "bench" / "peer" / "rpc.cc",
                    place / "echo.pb.cc", place / "echo.grpc.pb.cc", *libraries], check=True)
    return place / "peer"


@contextlib.contextmanager
def serving(program, address):
    server = subprocess.Popen([program, address], stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().removeprefix("ready ").strip()
    finally:
        server.kill()
        server.wait()


def measure(program, address):
    with serving(program, address) as bound:
        out = subprocess.run([BIN / "bench_rpc", bound, MS], check=True, text=True, capture_output=True).stdout
        return {name: float(value) for name, value in map(str.split, out.splitlines())}


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="ty-bench-rpc-"))
    try:
        programs = {"trainyard": BIN.parent / "tests" / "rpc_echo_server", "c++": build_peer(place)}
        rows = []
        for transport, address in ("unix", f"unix:{place}/s"), ("tcp", "127.0.0.1:0"):
            runs = {name: [] for name, program in programs.items() if program}
            for _ in range(ROUNDS):  # by turns: both see the same machine
                for name in runs:
                    runs[name].append(measure(programs[name], address))
            for what in runs["trainyard"][0]:
                ours, theirs = (statistics.median(r[what] for r in runs[n]) if n in runs else None for n in programs)
                rows.append({"transport": transport, "what": what, "trainyard/s": ours, "c++/s": theirs,
                             "trainyard / c++": ours / theirs if theirs else None})
        report("rpc", rows, [f"Median of {ROUNDS} rounds by turns, {MS} ms each; the client is the same for both. Our unary "
                             "handlers run on worker threads and may block; the peer's run on gRPC's own."])
    finally:
        shutil.rmtree(place)


main()
