"""grpcio, which shares no code with the runtime's use of the C core, lists, describes and calls everything by reflection."""

import grpc
import pytest
from reflect import (ALL_EXTENSIONS, EXTENSIONS, FILE_BY_FILENAME, FILE_CONTAINING_EXTENSION, FILE_CONTAINING_SYMBOL,
                     FILES, LIST_SERVICES, Refused, Reflector, channel, fields, text_field, varint)

ECHO = "test.v1.Echo"


@pytest.fixture(params=["v1", "v1alpha"])
def version(request):
    return request.param


@pytest.fixture(params=[0, 1], ids=["tcp", "unix"])
def reflector(echo, version, request):
    with channel(echo.addresses[request.param]) as open_channel:
        yield Reflector(open_channel, version)


def test_every_service_is_listed(reflector):
    assert sorted(reflector.services()) == ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                            "grpc.reflection.v1alpha.ServerReflection", ECHO]


def test_every_listed_service_can_be_described_with_all_its_messages(reflector):
    for name in reflector.services():
        service = reflector.service(name)
        assert service.full_name == name
        for method in service.methods:
            assert reflector.message(method.input_type, {}).IsInitialized()


@pytest.mark.parametrize("symbol", ["test.v1.Echo", "test.v1.Echo.Chat", "test.v1.EchoRequest",
                                    "test.v1.EchoRequest.text", "test.v1.EchoRequest.choice",
                                    "test.v1.EchoRequest.Inner", "test.v1.EchoRequest.Inner.list",
                                    "test.v1.EchoRequest.LabelsEntry", "test.v1.Color", "test.v1.RED", "test.v1.rule"])
def test_symbols_of_every_sort_are_found(reflector, symbol):
    assert reflector.load(FILE_CONTAINING_SYMBOL, symbol).name == "echo.proto"


@pytest.mark.parametrize("symbol", ["", "test", "test.v1", "test.v1.", "test.v1.Nothing", "test.v1.EchoRequest.nothing",
                                    "test.v1.EchoRequestX", "test.v1.Echo.Chat.More", "test.v1.Color.RED.More",
                                    "est.v1.Echo"])
def test_a_symbol_that_is_not_there_is_not_found(reflector, symbol):
    with pytest.raises(Refused) as refused:
        reflector.ask(FILE_CONTAINING_SYMBOL, symbol)
    assert refused.value.args == (5, f"'{symbol}' is not known here")


def test_a_file_comes_by_its_name_and_an_unknown_one_does_not(reflector):
    assert reflector.load(FILE_BY_FILENAME, "grpc/health/v1/health.proto").package == "grpc.health.v1"
    with pytest.raises(Refused):
        reflector.ask(FILE_BY_FILENAME, "nothing.proto")


def test_an_option_of_a_method_is_found_as_the_extension_that_it_is(reflector):
    answer = reflector.ask(ALL_EXTENSIONS, "google.protobuf.MethodOptions")
    assert dict(fields(answer[EXTENSIONS]))[2] == varint(51701) + varint(51702) + varint(51703)
    question = text_field(1, "google.protobuf.MethodOptions") + varint(2 << 3) + varint(51701)
    files = reflector.ask_all([(FILE_CONTAINING_EXTENSION, question)])[0][FILES]
    assert b"echo.proto" in files
    with pytest.raises(KeyError):
        reflector.ask_all([(FILE_CONTAINING_EXTENSION, question + varint(2 << 3) + varint(51799))])[0][FILES]


def test_messages_have_no_extensions_and_unknown_types_are_not_found(reflector):
    answer = reflector.ask(ALL_EXTENSIONS, "test.v1.EchoRequest")
    assert dict(fields(answer[EXTENSIONS])) == {1: b"test.v1.EchoRequest"}
    with pytest.raises(Refused):
        reflector.ask(ALL_EXTENSIONS, "test.v1.Echo")


def test_one_stream_answers_many_questions_in_order(reflector):
    answers = reflector.ask_all([(LIST_SERVICES, ""), (FILE_BY_FILENAME, "no"), (FILE_BY_FILENAME, "echo.proto")] * 50)
    assert [max(set(a) - {1, 2}) for a in answers] == [6, 7, 4] * 50


def test_every_kind_of_method_is_called(reflector):
    assert reflector.call(ECHO, "Unary", {"text": "hé", "number": "5"})["text"] == "hé"
    assert [m.number for m in reflector.start(ECHO, "Count", {"n": 100})] == list(range(100))
    assert reflector.call(ECHO, "Sum", [{"number": i} for i in range(10)])["number"] == "45"
    assert [m.text for m in reflector.start(ECHO, "Chat", [{"text": "a"}, {"text": "b"}])] == ["a", "b"]


def test_a_failure_carries_its_details(reflector):
    with pytest.raises(grpc.RpcError) as failure:
        reflector.call(ECHO, "Unary", {"text": "fail"})
    assert failure.value.code() == grpc.StatusCode.NOT_FOUND
    assert failure.value.details() == "the écho is away"
    status = list(fields(dict(failure.value.trailing_metadata())["grpc-status-details-bin"]))
    assert (1, 5) in status and (2, "the écho is away".encode()) in status
    any_message = dict(fields(dict(status)[3]))
    assert any_message[1] == b"type.googleapis.com/google.rpc.ErrorInfo"
    assert dict(fields(any_message[2])) == {1: b"ECHO_FAILED", 2: b"trainyard"}


def test_health_is_checked_and_watched(reflector):
    health = "grpc.health.v1.Health"
    assert reflector.call(health, "Check", {})["status"] == "SERVING"
    assert reflector.call(health, "Check", {"service": ECHO})["status"] == "SERVING"
    with pytest.raises(grpc.RpcError) as failure:
        reflector.call(health, "Check", {"service": "nothing"})
    assert failure.value.code() == grpc.StatusCode.NOT_FOUND
    watch = reflector.start(health, "Watch", {"service": "nothing"})
    assert next(watch).status == 3  # SERVICE_UNKNOWN
    watch.cancel()
    assert next(reflector.start(health, "Watch", {"service": ECHO})).status == 1


def test_an_unknown_method_is_unimplemented(reflector):
    with pytest.raises(grpc.RpcError) as failure:
        reflector.channel.unary_unary("/no.Such/Method")(b"", timeout=20)
    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert failure.value.details() == "the method /no.Such/Method does not exist"
