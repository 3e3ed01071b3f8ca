"""A gRPC client that knows nothing but a server's address: services, messages and kinds come from server reflection.

The reflection protocol itself is written and read by hand here (four fields), so that no generated code takes part.
"""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

FILE_BY_FILENAME, FILE_CONTAINING_SYMBOL, FILE_CONTAINING_EXTENSION, ALL_EXTENSIONS, LIST_SERVICES = 3, 4, 5, 6, 7
FILES, EXTENSIONS, SERVICES, ERROR = 4, 5, 6, 7


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def text_field(number, text):
    data = text if isinstance(text, bytes) else text.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """(number, value) of each field of a message: bytes, or an int for a varint."""
    at = 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = read()
        value = read()
        if tag & 7 == 2:
            at, value = at + value, data[at:at + value]
        yield tag >> 3, value


class Refused(Exception):
    """The server's error_response: args are the code and the sentence."""


class Reflector:
    def __init__(self, channel, version="v1", metadata=()):
        self.channel, self.metadata = channel, metadata
        self.ask_stream = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=lambda b: b, response_deserializer=lambda b: b)
        self.pool = descriptor_pool.DescriptorPool()
        self.factory = message_factory.MessageFactory(self.pool)
        self.files = set()

    def ask_all(self, questions):
        requests = [text_field(number, text) for number, text in questions]
        return [dict(fields(answer)) for answer in
                self.ask_stream(iter(requests), metadata=self.metadata, timeout=20)]

    def ask(self, number, text):
        answer = self.ask_all([(number, text)])[0]
        assert dict(fields(answer[2]))[number] == text.encode()  # original_request
        if ERROR in answer:
            error = dict(fields(answer[ERROR]))
            raise Refused(error[1], error[2].decode())
        return answer

    def services(self):
        return [dict(fields(value))[1].decode() for _, value in fields(self.ask(LIST_SERVICES, "*")[SERVICES])]

    def load(self, number, text):
        """Adds the file that is asked for, and what it imports, to the pool; the file's descriptor."""
        files = [descriptor_pb2.FileDescriptorProto.FromString(data)
                 for _, data in fields(self.ask(number, text)[FILES])]
        known = {f.name: f for f in files}

        def add(file):
            if file.name not in self.files:
                for name in file.dependency:
                    add(known[name])
                self.pool.Add(file)
                self.files.add(file.name)
        add(files[0])
        return self.pool.FindFileByName(files[0].name)

    def service(self, name):
        self.load(FILE_CONTAINING_SYMBOL, name)
        return self.pool.FindServiceByName(name)

    def message(self, descriptor, content):
        return json_format.ParseDict(content, self.factory.GetPrototype(descriptor)())

    def start(self, service, method, content, timeout=20):
        """Calls with a dict (or, for a stream of requests, a list of dicts); a message, or an iterator of messages."""
        proto = descriptor_pb2.ServiceDescriptorProto()
        descriptor = self.service(service)
        descriptor.CopyToProto(proto)
        kind = next(m for m in proto.method if m.name == method)
        found = descriptor.methods_by_name[method]
        make = getattr(self.channel, ("stream" if kind.client_streaming else "unary") +
                       ("_stream" if kind.server_streaming else "_unary"))
        call = make(f"/{service}/{method}", request_serializer=lambda m: m.SerializeToString(),
                    response_deserializer=self.factory.GetPrototype(found.output_type).FromString)
        request = (iter([self.message(found.input_type, one) for one in content]) if kind.client_streaming
                   else self.message(found.input_type, content))
        return call(request, timeout=timeout, metadata=self.metadata)

    def call(self, service, method, content, timeout=20):
        return as_dict(self.start(service, method, content, timeout))


def as_dict(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True, including_default_value_fields=True)


def channel(address):
    """address as the service prints it: unix:/path or host:port."""
    return grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
