/* The headers of an HTTP answer, one in a line, and its body: any bytes leave every member in its range, and a message
 * that steers no terminal. */
#include "executor/data/answer.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct answer a;
    char message[ANSWER_MESSAGE_BYTES];
    answer_init(&a);
    for (const uint8_t *at = data, *end = data + n; at < end;) {
        const uint8_t *line = memchr(at, '\n', (size_t)(end - at));
        const size_t length = line ? (size_t)(line - at) + 1 : (size_t)(end - at);
        answer_header(&a, (const char *)at, length);
        at += length;
    }
    assert(a.length >= -1 && a.range_from >= -1 && a.linked_bytes >= -1 && a.retry_after_ms >= 0);
    assert(a.range_total > a.range_from || (a.range_total == -1 && a.range_from == -1));
    assert(a.check.kind < CHECK_KINDS && strnlen(a.next, sizeof a.next) < sizeof a.next);
    assert(bytes_append(&a.body, data, n, NULL) == ST_OK || n > ANSWER_BODY_MAX);
    answer_message(&a, message);
    for (const char *at = message; *at; at++)
        assert((unsigned char)*at >= ' ' && *at != 0x7f);
    answer_done(&a);
    return 0;
}
