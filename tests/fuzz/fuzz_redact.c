/* A stream that contains values of secrets, in random pieces: no value is in the output. The first byte is the length
 * of a value, which follows, and then the data. The first byte of each piece gives its length. */
#include "executor/program/redact.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);

static void check(const char *value, size_t n_value, const struct bytes *out) {
    if (n_value >= REDACT_MIN_BYTES && out->len >= n_value && memmem(out->data, out->len, value, n_value))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n) {
    if (n < 2 || input[0] >= n)
        return 0;
    size_t n_value = input[0];
    const char *value = (const char *)input + 1, *data = value + n_value;
    size_t left = n - 1 - n_value;
    CLEANUP(redactor_freep) struct redactor *r = redactor_new();
    struct redact_stream s;
    struct bytes out;
    redactor_add(r, value, n_value);
    redactor_ready(r);
    while (n_value > 0 && (value[n_value - 1] == '\n' || value[n_value - 1] == '\r'))
        n_value--;
    redact_stream_init(&s, r);
    bytes_init(&out, 1 << 20);
    while (left > 0) {
        const size_t piece = 1 + (unsigned char)*data % left;
        if (redact_stream_feed(&s, data, piece, false, &out, NULL) != ST_OK)
            abort();
        data += piece;
        left -= piece;
    }
    if (redact_stream_feed(&s, NULL, 0, true, &out, NULL) != ST_OK)
        abort();
    if (!memchr(value, '*', n_value)) /* else the marks may form the value */
        check(value, n_value, &out);
    char *text = strndup((const char *)input, n);
    redact_text(r, text);
    free(text);
    redact_stream_done(&s);
    bytes_done(&out);
    return 0;
}
