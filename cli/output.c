#include "cli/output.h"

#include "api/codec/message.h"
#include "api/codec/text.h"
#include "api/codec/timestamp.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/colour.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The limit for one message as text; a binary message has at most 4 MiB. */
enum { OUTPUT_BYTES = 64 << 20 };

static status_t write_out(struct bytes *text, struct err *e) {
    if (text->len && fwrite(text->data, 1, text->len, stdout) != text->len)
        return err_errno(e, "writing to standard output");
    return ST_OK;
}

status_t output_message(const struct cli *c, const ProtobufCMessage *msg, bool *ret_done, struct err *e) {
    *ret_done = c->output == OUTPUT_JSON || c->output == OUTPUT_YAML;
    if (!*ret_done)
        return ST_OK;
    struct bytes text;
    bytes_init(&text, OUTPUT_BYTES);
    status_t st = c->output == OUTPUT_YAML ? codec_print_yaml(msg, &text, e) : codec_print_json(msg, 2, &text, e);
    if (st == ST_OK && c->output == OUTPUT_JSON)
        st = bytes_append(&text, "\n", 1, e);
    if (st == ST_OK)
        st = write_out(&text, e);
    bytes_done(&text);
    return st;
}

status_t output_json_line(const ProtobufCMessage *msg, struct err *e) {
    struct bytes text;
    bytes_init(&text, OUTPUT_BYTES);
    status_t st = codec_print_json(msg, 0, &text, e);
    if (st == ST_OK)
        st = bytes_append(&text, "\n", 1, e);
    if (st == ST_OK)
        st = write_out(&text, e);
    bytes_done(&text);
    if (st == ST_OK && fflush(stdout) != 0)
        return err_errno(e, "writing to standard output");
    return st;
}

status_t output_table_print(const struct table *t, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, OUTPUT_BYTES);
    TRY(table_print(t, colour_wanted(STDOUT_FILENO), &text, e));
    return write_out(&text, e);
}

status_t output_table(const struct output_columns *columns, const void *messages, size_t n, struct err *e) {
    CLEANUP(table_done) struct table t;
    table_init(&t, columns->heads);
    for (size_t i = 0; i < n; i++)
        columns->add_row(&t, ((const void *const *)messages)[i]);
    return output_table_print(&t, e);
}

status_t output_listed(const struct cli *c, const ProtobufCMessage *reply, bool *ret_done, struct err *e) {
    const ProtobufCFieldDescriptor *f = message_repeated_field(reply->descriptor);
    const ProtobufCFieldDescriptor *name = protobuf_c_message_descriptor_get_field_by_name(f->descriptor, "name");
    size_t n;
    ProtobufCMessage **all = field_elements(reply, f, &n);
    TRY(output_message(c, reply, ret_done, e));
    for (size_t i = 0; c->output == OUTPUT_NAME && i < n; i++)
        printf("%s\n", *(char **)field_value(all[i], name));
    *ret_done = *ret_done || c->output == OUTPUT_NAME;
    return ST_OK;
}

status_t output_list(const struct cli *c, const ProtobufCMessage *reply, const struct output_columns *columns,
                     struct err *e) {
    bool done;
    size_t n;
    ProtobufCMessage **all = field_elements(reply, message_repeated_field(reply->descriptor), &n);
    TRY(output_listed(c, reply, &done, e));
    return done ? ST_OK : output_table(columns, all, n, e);
}

void output_duration(int64_t s, char ret[24]) {
    if (s < 0)
        s = 0;
    if (s < 60)
        snprintf(ret, 24, "%" PRId64 "s", s);
    else if (s < 3600)
        snprintf(ret, 24, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(ret, 24, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(ret, 24, "%" PRId64 "d%02" PRId64 "h", s / 86400, s / 3600 % 24);
}

void output_time(const Google__Protobuf__Timestamp *t, char ret[OUTPUT_TIME_BYTES]) {
    struct tm tm;
    time_t s = t ? t->seconds : 0;
    snprintf(ret, OUTPUT_TIME_BYTES, "-");
    if (!t || !localtime_r(&s, &tm))
        return;
    const size_t n = strftime(ret, OUTPUT_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &tm);
    const long minutes = labs(tm.tm_gmtoff) / 60;
    if (minutes == 0)
        snprintf(ret + n, OUTPUT_TIME_BYTES - n, "Z");
    else
        snprintf(ret + n, OUTPUT_TIME_BYTES - n, "%c%02ld:%02ld", tm.tm_gmtoff < 0 ? '-' : '+', minutes / 60,
                 minutes % 60);
}

void output_between(const Google__Protobuf__Timestamp *a, const Google__Protobuf__Timestamp *b, char ret[24]) {
    snprintf(ret, 24, "-");
    if (a)
        output_duration((b ? b->seconds : clock_wall_us() / 1000000) - a->seconds, ret);
}

void output_bytes(int64_t bytes, char ret[24]) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    snprintf(ret, 24, unit && value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

const char *output_id(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

const char *output_enum(const ProtobufCEnumDescriptor *desc, int value) {
    static _Thread_local char digits[16];
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(desc, value);
    if (v)
        return v->name;
    snprintf(digits, sizeof digits, "%d", value);
    return digits;
}

void output_text(FILE *f, const char *s) {
    char piece[1024];
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        n = left <= sizeof piece ? left : sizeof piece - utf8_open(s, sizeof piece);
        utf8_printable(s, n, "\n\t", piece);
        fwrite(piece, 1, n, f);
    }
}
