#include "engine/checkpoint/checksummed.h"

#include "base/cleanup.h"
#include "base/sha256.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char BEFORE[] = ",\n \"self_sha256\": \"", AFTER[] = "\"\n}\n";
enum { CHECKSUM_BYTES = sizeof BEFORE - 1 + SHA256_HEX - 1 + sizeof AFTER - 1 };

static void checksum_of(const char *text, size_t n, char hex[SHA256_HEX]) {
    uint8_t digest[SHA256_BYTES];
    sha256_of(text, n, digest);
    sha256_hex(digest, hex);
}

status_t checksummed_write(const json_t *root, struct bytes *ret, struct err *e) {
    CLEANUP(freep) char *text = json_dumps(root, JSON_INDENT(1));
    if (!text)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a JSON text");
    /* The checksum becomes the last member: it covers the text without the closing "\n}". */
    size_t n = strlen(text);
    assert(n > 2 && strcmp(text + n - 2, "\n}") == 0);
    char hex[SHA256_HEX];
    checksum_of(text, n - 2, hex);
    TRY(bytes_append(ret, text, n - 2, e));
    return bytes_printf(ret, e, "%s%s%s", BEFORE, hex, AFTER);
}

status_t checksummed_check(const char *text, size_t n, struct err *e) {
    if (n < CHECKSUM_BYTES)
        return err_set(e, ST_DATA_LOSS, "its %zu bytes are too few to carry a digest", n);
    size_t body = n - CHECKSUM_BYTES;
    const char *checksum = text + body, *after = text + n - (sizeof AFTER - 1);
    char hex[SHA256_HEX];
    checksum_of(text, body, hex);
    if (memcmp(checksum, BEFORE, sizeof BEFORE - 1) != 0 || memcmp(after, AFTER, sizeof AFTER - 1) != 0 ||
        memcmp(checksum + sizeof BEFORE - 1, hex, SHA256_HEX - 1) != 0)
        return err_set(e, ST_DATA_LOSS, "its content does not match the digest at its end");
    return ST_OK;
}
