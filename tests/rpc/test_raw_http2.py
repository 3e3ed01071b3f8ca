"""HTTP/2 by hand: headers that have crashed gRPC servers (CVE-2023-1428 and its kind), streams reset at once
(CVE-2023-44487), and bytes that are no HTTP/2 at all. The server must answer the next honest client."""

import contextlib
import random
import socket
import struct
import time

import grpc
import pytest
from reflect import Reflector, channel

HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
HONEST = {":method": "POST", ":scheme": "http", ":path": "/test.v1.Echo/Unary", ":authority": "x", "te": "trailers",
          "content-type": "application/grpc"}


def string(text):
    """HPACK, without Huffman."""
    data, n = text.encode(), len(text.encode())
    if n < 127:
        return bytes([n]) + data
    out, n = bytes([127]), n - 127
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n]) + data


def block(headers):
    return b"".join(b"\0" + string(name) + string(value) for name, value in headers)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def connect(address):
    host, port = address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)))
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return s


def send_headers(s, headers, stream=1):
    pieces = [headers[i:i + 16000] for i in range(0, len(headers), 16000)]
    for i, piece in enumerate(pieces):
        s.sendall(frame(CONTINUATION if i else HEADERS, (END_HEADERS if i == len(pieces) - 1 else 0) |
                        (0 if i else END_STREAM), stream, piece))


def read_until_answered(s):
    """Until the server has answered stream 1 or closed the connection."""
    s.settimeout(20)
    data = b""
    with contextlib.suppress(ConnectionError):
        while chunk := s.recv(65536):
            data += chunk
            at = 0
            while at + 9 <= len(data):
                n = int.from_bytes(data[at:at + 3], "big")
                if data[at + 5:at + 9] == b"\0\0\0\1" and at + 9 + n <= len(data):
                    return
                at += 9 + n


def still_serves(echo):
    with channel(echo.addresses[1]) as open_channel:
        return Reflector(open_channel).call("test.v1.Echo", "Unary", {"text": "x"})["text"] == "x"


@pytest.mark.parametrize("size", [0, 7000, 9000, 60000])
@pytest.mark.parametrize("name, value", [
    ("te", "x"), (":scheme", "x"), ("grpclb_client_stats", "x"), ("grpc-timeout", "zz"), ("content-type", "x"),
    ("grpc-encoding", "x"), ("grpc-status-details-bin", "!!!"), ("grpc-previous-rpc-attempts", "x"), ("lb-token", "x"),
    ("grpc-accept-encoding", "y"), ("grpc-status", "x"), (":path", ""), (":method", "x"), ("UPPER", "x")])
def test_bad_headers_harm_nobody_else(echo, name, value, size):
    with connect(echo.addresses[0]) as s:
        more = [("x-large", "a" * size)] + [(f"x-{i}", "b" * 200) for i in range(5)] if size else []
        with contextlib.suppress(ConnectionError):
            send_headers(s, block([*{**HONEST, name: value}.items(), *more]))
            read_until_answered(s)
    assert still_serves(echo)


def test_the_server_states_its_limits(echo):
    with connect(echo.addresses[0]) as s:
        s.settimeout(20)
        header = s.recv(9, socket.MSG_WAITALL)
        assert header[3] == SETTINGS
        payload = s.recv(int.from_bytes(header[:3], "big"), socket.MSG_WAITALL)
        settings = dict(struct.unpack(">HI", payload[i:i + 6]) for i in range(0, len(payload), 6))
    assert settings[3] == 256  # MAX_CONCURRENT_STREAMS
    assert settings[6] == 8192  # MAX_HEADER_LIST_SIZE


def test_metadata_over_8_kib_is_refused(echo):
    with channel(echo.addresses[0]) as open_channel:
        call = open_channel.unary_unary("/test.v1.Echo/Unary")
        assert call(b"", metadata=[("x", "a" * 4000)], timeout=20) is not None
        with pytest.raises(grpc.RpcError) as failure:
            call(b"", metadata=[("x", "a" * 9000)], timeout=20)
        assert failure.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_connection_that_never_speaks_is_closed_after_10_s(echo):
    with socket.create_connection(echo.addresses[0].split(":")) as s:
        begun = time.monotonic()
        s.settimeout(40)
        with contextlib.suppress(ConnectionError):
            while s.recv(4096):
                pass
        assert 5 < time.monotonic() - begun < 30


def test_streams_that_are_reset_at_once_harm_nobody_else(echo):
    with connect(echo.addresses[0]) as s, contextlib.suppress(ConnectionError):
        for stream in range(1, 20001, 2):
            s.sendall(frame(HEADERS, END_HEADERS, stream, block(HONEST.items())) +
                      frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
    assert still_serves(echo)


def test_noise_harms_nobody_else(echo):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    for preface in (True, False) * 20:
        with socket.create_connection(echo.addresses[0].split(":")) as s, contextlib.suppress(ConnectionError):
            if preface:
                s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
            for _ in range(20):
                s.sendall(frame(draw.randrange(12), draw.randrange(256), draw.randrange(8), draw.randbytes(draw.randrange(200)))
                          if draw.random() < 0.5 else draw.randbytes(100))
    assert still_serves(echo)
