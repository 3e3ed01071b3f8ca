#include "api/codec/text.h"
#include "api/codec/writer.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

static status_t new_line(struct writer *w, struct err *e) {
    if (w->indent == 0)
        return ST_OK;
    return bytes_printf(w->out, e, "\n%*s", w->indent * w->depth, "");
}

static status_t json_open(struct writer *w, bool list, bool empty, struct err *e) {
    (void)empty;
    w->depth++;
    return bytes_append(w->out, list ? "[" : "{", 1, e);
}

static status_t json_close(struct writer *w, bool list, bool empty, struct err *e) {
    w->depth--;
    if (!empty)
        TRY(new_line(w, e));
    return bytes_append(w->out, list ? "]" : "}", 1, e);
}

static status_t json_item(struct writer *w, bool first, struct err *e) {
    if (!first)
        TRY(bytes_append(w->out, ",", 1, e));
    return new_line(w, e);
}

static status_t json_string(struct writer *w, const char *s, size_t n, struct err *e) {
    return codec_json_string(s, n, w->out, e);
}

static status_t json_key(struct writer *w, const char *key, bool first, struct err *e) {
    TRY(json_item(w, first, e));
    TRY(codec_json_string(key, strlen(key), w->out, e));
    return bytes_append(w->out, ": ", w->indent ? 2 : 1, e);
}

static status_t json_word(struct writer *w, const char *word, struct err *e) {
    return bytes_append(w->out, word, strlen(word), e);
}

static status_t json_real(struct writer *w, double value, struct err *e) {
    char text[32];
    codec_double_text(value, text);
    return isfinite(value) ? json_word(w, text, e) : json_string(w, text, strlen(text), e);
}

static status_t json_integer64(struct writer *w, const char *digits, struct err *e) {
    return bytes_printf(w->out, e, "\"%s\"", digits);
}

const struct writer_ops json_writer_ops = {
    .open = json_open,
    .close = json_close,
    .key = json_key,
    .item = json_item,
    .string = json_string,
    .word = json_word,
    .real = json_real,
    .integer64 = json_integer64,
};

/* Characters that readers of JSON or YAML refuse without an escape: control characters, the line separators U+2028 and
 * U+2029, U+FEFF, and the noncharacters U+FFFE and U+FFFF. */
static bool must_escape(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
           code == 0xfffe || code == 0xffff;
}

static status_t append_escaped(uint32_t code, struct bytes *ret, struct err *e) {
    switch (code) {
    case '"': return bytes_append(ret, "\\\"", 2, e);
    case '\\': return bytes_append(ret, "\\\\", 2, e);
    case '\n': return bytes_append(ret, "\\n", 2, e);
    case '\t': return bytes_append(ret, "\\t", 2, e);
    case '\r': return bytes_append(ret, "\\r", 2, e);
    default: return bytes_printf(ret, e, "\\u%04x", (unsigned)code);
    }
}

status_t codec_json_string(const char *s, size_t n, struct bytes *ret, struct err *e) {
    TRY(bytes_append(ret, "\"", 1, e));
    size_t plain = 0; /* bytes before s + plain are written; bytes from there to i are not written yet */
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t code = utf8_next(s + i, n - i, &len);
        bool bad = len == 0;
        len = bad ? 1 : len;
        if (!bad && code != '"' && code != '\\' && !must_escape(code))
            continue;
        TRY(bytes_append(ret, s + plain, i - plain, e));
        TRY(append_escaped(bad ? 0xfffd : code, ret, e));
        plain = i + len;
    }
    TRY(bytes_append(ret, s + plain, n - plain, e));
    return bytes_append(ret, "\"", 1, e);
}
