/* api/codec/frame.h and timestamp.h: messages survive any division of the stream into pieces, and broken streams are
 * reported. */
#include "api/codec/frame.h"
#include "api/codec/timestamp.h"
#include "base/utf8.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <trainyard/v1/worker.pb-c.h>

#define RECORD &trainyard__v1__worker_record__descriptor

static void pack_log(struct bytes *out, const char *text) {
    Trainyard__V1__LogText log = TRAINYARD__V1__LOG_TEXT__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    log.text = (char *)text;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_LOG;
    record.log = &log;
    assert_int_equal(frame_pack(&record.base, out, NULL), ST_OK);
}

static void take_log(struct frame_reader *r, const char *text) {
    ProtobufCMessage *msg = NULL;
    assert_int_equal(frame_reader_next(r, RECORD, &msg, NULL), ST_OK);
    assert_non_null(msg);
    assert_string_equal(((Trainyard__V1__WorkerRecord *)msg)->log->text, text);
    protobuf_c_message_free_unpacked(msg, NULL);
}

static void a_stream_cut_anywhere_gives_the_same_messages(void **state) {
    (void)state;
    struct bytes stream;
    struct frame_reader r;
    ProtobufCMessage *msg = NULL;
    bytes_init(&stream, 4096);
    pack_log(&stream, "first");
    pack_log(&stream, "");
    pack_log(&stream, "third");
    for (size_t cut = 0; cut <= stream.len; cut++) {
        int seen = 0;
        frame_reader_init(&r, 64);
        for (size_t from = 0; from < 2; from++) {
            const char *part = from ? stream.data + cut : stream.data;
            assert_int_equal(frame_reader_feed(&r, part, from ? stream.len - cut : cut, NULL), ST_OK);
            for (;; seen++) {
                assert_int_equal(frame_reader_next(&r, RECORD, &msg, NULL), ST_OK);
                if (!msg)
                    break;
                const char *texts[] = { "first", "", "third" };
                assert_string_equal(((Trainyard__V1__WorkerRecord *)msg)->log->text, texts[seen]);
                protobuf_c_message_free_unpacked(msg, NULL);
            }
        }
        assert_int_equal(seen, 3);
        frame_reader_done(&r);
    }
    bytes_done(&stream);
}

static void messages_cross_a_pipe_and_its_end_is_seen(void **state) {
    (void)state;
    int ends[2];
    struct frame_reader r;
    struct bytes stream;
    ProtobufCMessage *msg = NULL;
    bool ended = false;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    frame_reader_init(&r, 1024);
    assert_int_equal(frame_reader_fill(&r, ends[0], &ended, NULL), ST_OK); /* nothing there yet */
    assert_false(ended);
    bytes_init(&stream, 4096);
    pack_log(&stream, "one");
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    assert_int_equal(write(ends[1], stream.data, stream.len), (ssize_t)stream.len);
    assert_int_equal(frame_write(ends[1], &record.base, NULL), ST_OK);
    close(ends[1]);
    assert_int_equal(frame_reader_wait(&r, ends[0], RECORD, &msg, NULL), ST_OK);
    assert_string_equal(((Trainyard__V1__WorkerRecord *)msg)->log->text, "one");
    protobuf_c_message_free_unpacked(msg, NULL);
    assert_int_equal(frame_reader_wait(&r, ends[0], RECORD, &msg, NULL), ST_OK); /* an empty message is one too */
    assert_non_null(msg);
    protobuf_c_message_free_unpacked(msg, NULL);
    assert_int_equal(frame_reader_wait(&r, ends[0], RECORD, &msg, NULL), ST_OK);
    assert_null(msg);
    close(ends[0]);
    frame_reader_done(&r);
    bytes_done(&stream);
}

static void a_stream_that_ends_inside_a_message_is_data_loss(void **state) {
    (void)state;
    int ends[2];
    struct frame_reader r;
    struct bytes stream;
    struct err e;
    ProtobufCMessage *msg = NULL;
    assert_int_equal(pipe(ends), 0);
    bytes_init(&stream, 4096);
    pack_log(&stream, "cut");
    assert_int_equal(write(ends[1], stream.data, stream.len - 1), (ssize_t)stream.len - 1);
    close(ends[1]);
    frame_reader_init(&r, 1024);
    assert_int_equal(frame_reader_wait(&r, ends[0], RECORD, &msg, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the stream ends inside a message: 10 bytes are left over");
    close(ends[0]);
    frame_reader_done(&r);
    bytes_done(&stream);
}

static void a_length_above_the_limit_is_refused_before_it_is_read(void **state) {
    (void)state;
    struct frame_reader r;
    struct err e;
    ProtobufCMessage *msg = NULL;
    const uint8_t header[] = { 0x01, 0x01, 0x00, 0x00 };
    frame_reader_init(&r, 256);
    assert_int_equal(frame_reader_feed(&r, header, sizeof header, NULL), ST_OK);
    assert_int_equal(frame_reader_next(&r, RECORD, &msg, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "a message claims 257 bytes; at most 256 are read");
    frame_reader_done(&r);
}

static void bytes_that_are_no_message_are_data_loss(void **state) {
    (void)state;
    struct frame_reader r;
    struct err e;
    ProtobufCMessage *msg = NULL;
    const uint8_t frame[] = { 2, 0, 0, 0, 0x0a, 0x7f };
    frame_reader_init(&r, 256);
    assert_int_equal(frame_reader_feed(&r, frame, sizeof frame, NULL), ST_OK);
    assert_int_equal(frame_reader_next(&r, RECORD, &msg, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "2 bytes are no trainyard.v1.WorkerRecord");
    frame_reader_done(&r);
}

static void a_full_buffer_stays_as_it_was(void **state) {
    (void)state;
    struct bytes out;
    Trainyard__V1__RankAddress address = TRAINYARD__V1__RANK_ADDRESS__INIT;
    uint8_t data[64] = { 0 };
    address.address = (ProtobufCBinaryData){ sizeof data, data };
    bytes_init(&out, 60);
    assert_int_equal(bytes_append(&out, "kept", 4, NULL), ST_OK);
    assert_int_equal(frame_pack(&address.base, &out, NULL), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(out.len, 4);
    bytes_done(&out);
}

static void the_reader_holds_no_more_than_a_frame_and_a_chunk(void **state) {
    (void)state;
    struct frame_reader r;
    struct bytes stream;
    bytes_init(&stream, 1 << 20);
    frame_reader_init(&r, 64);
    for (int i = 0; i < 20000; i++) {
        bytes_clear(&stream);
        pack_log(&stream, "again");
        assert_int_equal(frame_reader_feed(&r, stream.data, stream.len, NULL), ST_OK);
        take_log(&r, "again");
    }
    assert_in_range(r.buf.cap, 1, 64 + 4 + (64 << 10) + 1);
    frame_reader_done(&r);
    bytes_done(&stream);
}

static void timestamps_go_to_text_and_back(void **state) {
    (void)state;
    static const struct {
        int64_t us;
        const char *text;
    } table[] = {
        { 0, "1970-01-01T00:00:00Z" },
        { -1, "1969-12-31T23:59:59.999999Z" },
        { 1795255864500000, "2026-11-21T10:11:04.500Z" },
        { 951782400000001, "2000-02-29T00:00:00.000001Z" },
        { 253402300799000000, "9999-12-31T23:59:59Z" },
        { -62135596800000000, "0001-01-01T00:00:00Z" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Google__Protobuf__Timestamp t, back;
        char text[TIMESTAMP_TEXT];
        timestamp_of_us(table[i].us, &t);
        timestamp_of_us(0, &back);
        assert_int_equal(timestamp_print(&t, text, NULL), ST_OK);
        assert_string_equal(text, table[i].text);
        assert_int_equal(timestamp_parse(text, &back.seconds, &back.nanos, NULL), ST_OK);
        assert_int_equal(back.seconds, t.seconds);
        assert_int_equal(back.nanos, t.nanos);
    }
}

static void texts_that_are_no_time_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "2026",
        "2026-11-21",
        "2026-11-21T10:11:04",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T10:60:00Z",
        "2026-11-21T10:11:04.Z",
        "2026-11-21T10:11:04+2:00",
        "2026-11-21T10:11:04Zx",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    };
    int64_t seconds = 7;
    int32_t nanos = 7;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(timestamp_parse(texts[i], &seconds, &nanos, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(seconds, 7);
}

static void utf8_is_taken_in_its_shortest_form_only(void **state) {
    (void)state;
    static const char *const good[] = { "", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf" };
    static const char *const bad[] = { "\x80",
                                       "\xc0\x80",
                                       "\xc1\xbf",
                                       "\xe0\x80\xaf",
                                       "\xed\xa0\x80",
                                       "\xf0\x80\x80\xaf",
                                       "\xf4\x90\x80\x80",
                                       "\xf8\x88\x80\x80\x80",
                                       "\xe2\x82",
                                       "\xff" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(utf8_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    for (uint32_t code = 1; code <= 0x10ffff; code += code < 0x10000 ? 1 : 17) {
        char text[4];
        size_t len = utf8_put(code, text), back;
        bool surrogate = code >= 0xd800 && code <= 0xdfff;
        assert_int_equal(utf8_next(text, len, &back), surrogate ? 0 : code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_cut_anywhere_gives_the_same_messages),
        cmocka_unit_test(messages_cross_a_pipe_and_its_end_is_seen),
        cmocka_unit_test(a_stream_that_ends_inside_a_message_is_data_loss),
        cmocka_unit_test(a_length_above_the_limit_is_refused_before_it_is_read),
        cmocka_unit_test(bytes_that_are_no_message_are_data_loss),
        cmocka_unit_test(a_full_buffer_stays_as_it_was),
        cmocka_unit_test(the_reader_holds_no_more_than_a_frame_and_a_chunk),
        cmocka_unit_test(timestamps_go_to_text_and_back),
        cmocka_unit_test(texts_that_are_no_time_are_refused),
        cmocka_unit_test(utf8_is_taken_in_its_shortest_form_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
