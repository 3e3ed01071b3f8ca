/* What hosts say to each other about their caches: keys of a request, lines of an answer, a range of an object. Any
 * bytes are values in their ranges, or nothing. */
#include "executor/data/peer_message.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void keys(const char *text, size_t n) {
    char key[SHA256_HEX];
    for (size_t at = 0; peer_key_read(text + at, n - at, key); at += SHA256_HEX)
        assert(strspn(key, "0123456789abcdef") == SHA256_HEX - 1);
}

static void lines(const char *text, size_t n) {
    static struct peer_line found[PEER_KEYS_MAX];
    for (size_t want = 0; want < 4; want++)
        if (peer_lines_read(text, n, want, found))
            for (size_t i = 0; i < want; i++) {
                assert(!*found[i].sha256 || strspn(found[i].sha256, "0123456789abcdef") == SHA256_HEX - 1);
                assert(!found[i].coming || !*found[i].sha256);
                assert(found[i].coming || found[i].progress == 0);
            }
}

static void range(const char *text, size_t n) {
    char *value = calloc(n + 1, 1);
    int64_t from, bytes;
    assert(value);
    memcpy(value, text, n);
    for (int64_t size = 0; size <= 1000; size += 500)
        if (peer_range_read(value, size, &from, &bytes))
            assert(from >= 0 && bytes > 0 && from + bytes <= size);
    free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1); /* without a NUL behind it: an overrun is found */
    assert(text);
    if (n > 0)
        memcpy(text, data, n);
    char *exact = realloc(text, n ? n : 1);
    assert(exact);
    keys(exact, n);
    lines(exact, n);
    range(exact, n);
    free(exact);
    return 0;
}
