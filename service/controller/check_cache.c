#include "service/controller/check_cache.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    enum { ENTRY_FREE, ENTRY_CHECKING, ENTRY_GOOD } state;
    uint8_t key[SHA256_BYTES];
    int64_t used_ms, until_ms;
    char note[CHECK_CACHE_NOTE_BYTES];
};

struct check_cache {
    pthread_mutex_t lock;
    pthread_cond_t put;
    struct entry all[CHECK_CACHE_ENTRIES];
};

struct check_cache *check_cache_new(void) {
    struct check_cache *c = alloc_zeroed(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->put, NULL);
    return c;
}

struct check_cache *check_cache_free(struct check_cache *c) {
    if (!c)
        return NULL;
    pthread_cond_destroy(&c->put);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

static struct entry *find(struct check_cache *c, const uint8_t key[SHA256_BYTES]) {
    for (int i = 0; i < CHECK_CACHE_ENTRIES; i++)
        if (c->all[i].state != ENTRY_FREE && memcmp(c->all[i].key, key, SHA256_BYTES) == 0)
            return &c->all[i];
    return NULL;
}

/* Returns a free entry, or the least recently used good one. NULL: every entry is being checked. Then the new check
 * gets no entry, and other callers do not wait for its result. */
static struct entry *find_free(struct check_cache *c) {
    struct entry *oldest = NULL;
    for (int i = 0; i < CHECK_CACHE_ENTRIES; i++) {
        struct entry *en = &c->all[i];
        if (en->state == ENTRY_FREE)
            return en;
        if (en->state == ENTRY_GOOD && (!oldest || en->used_ms < oldest->used_ms))
            oldest = en;
    }
    return oldest;
}

static enum check_cache_result begin(struct check_cache *c, struct entry *old, const uint8_t key[SHA256_BYTES]) {
    struct entry *en = old ? old : find_free(c);
    if (en) {
        *en = (struct entry){ .state = ENTRY_CHECKING };
        memcpy(en->key, key, SHA256_BYTES);
    }
    return CHECK_CACHE_MISS;
}

static enum check_cache_result get(struct check_cache *c, const uint8_t key[SHA256_BYTES], deadline_ms_t deadline,
                                   char note[CHECK_CACHE_NOTE_BYTES]) {
    const struct timespec until = deadline_timespec(deadline);
    struct entry *en = find(c, key);
    for (; en && en->state == ENTRY_CHECKING; en = find(c, key))
        if (pthread_cond_clockwait(&c->put, &c->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
            return CHECK_CACHE_TIMEOUT;
    const int64_t now = clock_mono_ms();
    if (!en || now >= en->until_ms)
        return begin(c, en, key);
    en->used_ms = now;
    memcpy(note, en->note, sizeof en->note);
    return CHECK_CACHE_HIT;
}

enum check_cache_result check_cache_get(struct check_cache *c, const uint8_t key[SHA256_BYTES], deadline_ms_t deadline,
                                        char note[CHECK_CACHE_NOTE_BYTES]) {
    pthread_mutex_lock(&c->lock);
    enum check_cache_result answer = get(c, key, deadline, note);
    pthread_mutex_unlock(&c->lock);
    return answer;
}

bool check_cache_find(struct check_cache *c, const uint8_t key[SHA256_BYTES], char note[CHECK_CACHE_NOTE_BYTES]) {
    const int64_t now = clock_mono_ms();
    pthread_mutex_lock(&c->lock);
    struct entry *en = find(c, key);
    const bool good = en && en->state == ENTRY_GOOD && now < en->until_ms;
    if (good) {
        en->used_ms = now;
        memcpy(note, en->note, sizeof en->note);
    }
    pthread_mutex_unlock(&c->lock);
    return good;
}

void check_cache_put(struct check_cache *c, const uint8_t key[SHA256_BYTES], bool good, const char *note) {
    pthread_mutex_lock(&c->lock);
    struct entry *en = find(c, key);
    if (en && en->state == ENTRY_CHECKING) {
        en->state = good ? ENTRY_GOOD : ENTRY_FREE;
        en->used_ms = clock_mono_ms();
        en->until_ms = en->used_ms + CHECK_CACHE_TTL_MS;
        snprintf(en->note, sizeof en->note, "%s", note);
        pthread_cond_broadcast(&c->put);
    }
    pthread_mutex_unlock(&c->lock);
}
