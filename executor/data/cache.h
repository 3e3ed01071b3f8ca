/* The copies that this host has, in one folder:
 *
 *   objects/SHA256   a copy, named by the digest of its bytes, mode 0444
 *   index/KEY        a symbolic link to a copy: what the object is whose KEY (data_object.key) it is
 *   parts/KEY        an object that is being copied (part.h)
 *   uses/XXXXXX      of each process: how many bytes it may still add, and the copies that it uses; the process has
 *                    locked it for as long as it lives
 *   lock             shared, while a process looks up, adds or says what it uses; exclusively, while one makes space
 *
 * The time of change of a copy is the mark of its last check: the seconds say when, the nanoseconds follow from the
 * digest. A write to the file, by whomever, changes the mark. The time of access is the last use.
 *
 * A copy of fewer than CACHE_SYNC_BYTES is not written through to the disk, because that costs more than to copy it.
 * The nanoseconds of its mark follow from this start of the host, too: after the next one, when bytes may have been
 * lost, the mark is worth nothing, and the copy is read and compared with its name before it is used.
 *
 * Several processes may use the folder at the same time. One that is killed leaves nothing that the next one does not
 * use or remove. Files of this host alone: flock and the clock are the host's. */
#ifndef EXECUTOR_DATA_CACHE_H
#define EXECUTOR_DATA_CACHE_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    CACHE_CHECK_S = 24 * 3600, /* a copy whose last check is older is read and compared with its name */
    CACHE_OBJECTS_MAX = 1 << 20,
    CACHE_SYNC_BYTES = 4 << 20, /* of a copy that is on the disk before it has its name */
    CACHE_BOOT_BYTES = 36,
};

struct data_cache {
    char path[PATH_MAX];
    int64_t max_bytes;
    int lock, uses;            /* open files */
    int index, objects, parts; /* folders */
    char uses_name[16];
    char boot[CACHE_BOOT_BYTES + 1]; /* the id of this start of the host; empty: the kernel does not say */
    int64_t reserved;                /* bytes that may still be added */
    pthread_mutex_t mutex;           /* one thread at a time has the lock */
};

MUST_CHECK status_t data_cache_open(const char *path, int64_t max_bytes, struct data_cache **ret, struct err *e);
/* The copies may be removed from then on. Returns NULL. */
struct data_cache *data_cache_close(struct data_cache *c);
CLEANUP_DEFINE(struct data_cache *, data_cache_close)

enum cache_state { CACHE_MISSING, CACHE_UNCHECKED, CACHE_GOOD };

struct cache_entry {
    char sha256[SHA256_HEX];
    int64_t bytes;
    enum cache_state state;
};

/* Looks the keys of n objects up; a copy that is there is in use from then on. bytes[i]: of the object; -1: any. */
MUST_CHECK status_t data_cache_find(struct data_cache *c, int n, const char *const *keys, const int64_t *bytes,
                                    struct cache_entry *ret, struct err *e);

/* Reads the copy, and compares it with its name. If it is damaged, no process takes it for good any more: it is
 * MISSING. */
MUST_CHECK status_t data_cache_check(struct data_cache *c, struct cache_entry *entry, struct err *e);

/* For other hosts, which compare the bytes themselves: without a lock, and the copy is not in use. GOOD: a copy is
 * there, and its mark, however old, is one of this cache. */
void data_cache_peek(const struct data_cache *c, const char *key, struct cache_entry *ret);
/* A number that changes while an object is being copied; 0: there is no part of it. */
uint64_t data_cache_part_progress(const struct data_cache *c, const char *key);

/* Puts a complete file of the folder `parts`, which has the digest, in its place, and says that the key is this
 * object. The bytes of a large one (CACHE_SYNC_BYTES) are on the disk when the call returns; the names are after
 * data_cache_sync. */
MUST_CHECK status_t data_cache_publish(struct data_cache *c, const char *key, int part, const char sha256[SHA256_HEX],
                                       int64_t bytes, struct err *e);
/* Fewer bytes are still to be added than were reserved. */
MUST_CHECK status_t data_cache_release(struct data_cache *c, int64_t bytes, struct err *e);
MUST_CHECK status_t data_cache_sync(struct data_cache *c, struct err *e);

/* ---- for part.c and space.c ---- */

/* A failure of this host, whatever errno says; RESOURCE_EXHAUSTED if the disk is full. */
MUST_CHECK status_t data_cache_fail(struct err *e, const char *what, const char *path);
/* `operation` as for flock. Every lock is followed by data_cache_unlock, also if it failed. */
MUST_CHECK status_t data_cache_lock(struct data_cache *c, int operation, struct err *e);
void data_cache_unlock(struct data_cache *c);
/* How many bytes this process may still add. */
MUST_CHECK status_t data_cache_set_reserved(struct data_cache *c, int64_t bytes, struct err *e);
bool data_cache_is_digest(const char *name);

#endif
