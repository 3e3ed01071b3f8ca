/* Remembers for a minute which specs a host has checked without a problem: a sweep over rates and seeds, or ten
 * thousand jobs of one model and one data set, cost one check. Problems are not remembered, so that a user who repairs
 * a file can submit again at once.
 *
 * Of CHECK_CACHE_ENTRIES entries, the least recently used is replaced. Thread-safe. */
#ifndef SERVICE_CONTROLLER_CHECK_CACHE_H
#define SERVICE_CONTROLLER_CHECK_CACHE_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sha256.h"

#include <stdbool.h>

enum { CHECK_CACHE_ENTRIES = 64, CHECK_CACHE_TTL_MS = 60000, CHECK_CACHE_NOTE_BYTES = 640 };

struct check_cache;
struct check_cache *check_cache_new(void);
struct check_cache *check_cache_free(struct check_cache *c);
CLEANUP_DEFINE(struct check_cache *, check_cache_free)

enum check_cache_result {
    CHECK_CACHE_HIT,     /* nothing was wrong; `note` is what was not checked, or "" */
    CHECK_CACHE_MISS,    /* not known: the caller checks, and calls check_cache_put */
    CHECK_CACHE_TIMEOUT, /* at the deadline, another caller was still checking the same spec */
};
/* Whether the key is remembered as good, without waiting; then `note` is as in CHECK_CACHE_HIT. */
bool check_cache_find(struct check_cache *c, const uint8_t key[SHA256_BYTES], char note[CHECK_CACHE_NOTE_BYTES]);
/* Looks up the key. While another caller checks the same key, waits for that check. */
enum check_cache_result check_cache_get(struct check_cache *c, const uint8_t key[SHA256_BYTES], deadline_ms_t deadline,
                                        char note[CHECK_CACHE_NOTE_BYTES]);
/* The caller always calls this after CHECK_CACHE_MISS. good: the check found no problem. */
void check_cache_put(struct check_cache *c, const uint8_t key[SHA256_BYTES], bool good, const char *note);

#endif
