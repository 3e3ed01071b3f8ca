/* What a store says about the bytes of an object, and the digests of a copy that are compared with it. The SHA-256 of a
 * copy is always computed. */
#ifndef EXECUTOR_DATA_CHECK_H
#define EXECUTOR_DATA_CHECK_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The stronger ones are greater. */
enum check_kind { CHECK_NONE, CHECK_CRC32, CHECK_CRC32C, CHECK_MD5, CHECK_SHA1, CHECK_GIT, CHECK_SHA256, CHECK_KINDS };

struct check {
    enum check_kind kind;
    uint8_t value[SHA256_BYTES];
};

/* Takes the value, unless `check` has one that is as strong. Texts of a wrong form change nothing. hexadecimal: else
 * the text is Base64. */
void check_add(struct check *check, enum check_kind kind, const char *text, bool hexadecimal);

/* The digests of one copy, in progress. bytes: of the whole object. */
struct digest;
MUST_CHECK status_t digest_open(enum check_kind kind, int64_t bytes, struct digest **ret, struct err *e);
struct digest *digest_close(struct digest *d);
CLEANUP_DEFINE(struct digest *, digest_close)
void digest_update(struct digest *d, const void *data, size_t n);
/* Once. *ret_good: what was computed for the kind of `digest_open` is the value of the check. */
void digest_final(struct digest *d, const struct check *check, char ret[SHA256_HEX], bool *ret_good);

/* "its SHA-256", ... */
const char *check_name(enum check_kind kind);

#endif
