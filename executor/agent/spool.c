/* Append-only logs of records in segment files.
 *
 * A log is a folder of segments; a segment's name is the sequence of its first record, so the names alone order them.
 * An append writes header and record at the end of the newest segment, and begins a new one after SEGMENT_MAX_BYTES. At
 * the start recovery reads every segment in order and cuts the log at the first record that is not whole, intact and
 * next in sequence: a torn tail after a crash, else damage of the disk, which is kept as a sentence.
 *
 * An acknowledgement does not delete. A segment that is acknowledged to its end is `kept`, so that it can be sent again
 * if the controller's database is set back. When kept segments exceed a quarter of the limit, or an append finds the
 * spool full, the oldest kept segment of all logs is deleted. A log's only segment is not deleted but renamed to its
 * next sequence and emptied, because its name stores the numbering. */
#include "executor/agent/spool.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/agent/spool_record.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SEGMENT_MAX_BYTES = 1 << 20, /* bounds the bytes of a log that are acknowledged but not freed */
    SEGMENT_MIN_BYTES = 8 << 10, /* with a small limit */
    READ_BYTES = SPOOL_RECORD_HEADER + LIMIT_RECORD_BYTES + (64 << 10), /* holds the longest record */
    NAME_BYTES = 96,
    KEPT_SHARE = 4, /* of the limit, for segments that are acknowledged to the end */
};

struct segment {
    int64_t first; /* sequence of its first record, and its name */
    int64_t bytes;
    uint64_t order; /* order in which the segments of all logs were begun since the start */
};

struct spool_log {
    struct spool *spool;
    struct spool_key key;
    char name[NAME_BYTES]; /* of its folder */
    struct segment *segments;
    size_t n_segments, n_kept; /* the oldest n_kept are acknowledged to the end */
    int fd;                    /* of the newest segment; -1 until the next append */
    int64_t last, acked;
    struct {
        int64_t segment, offset, sequence; /* offset of the record `sequence` in its segment */
    } cursor;
    struct err *damage;
};

struct spool {
    int folder;
    int64_t limit, segment_bytes, bytes;
    int64_t kept; /* bytes of these in kept segments */
    uint64_t next_order;
    struct spool_log **logs;
    size_t n_logs;
    uint8_t *buffer; /* READ_BYTES, while it is needed */
    struct spool_full full;
};

int64_t spool_bytes(const struct spool *s) { return s->bytes - s->kept; }
struct spool_full *spool_full(struct spool *s) {
    return &s->full;
}
int64_t spool_waiting(const struct spool *s) {
    int64_t n = 0;
    for (size_t i = 0; i < s->n_logs; i++)
        n += s->logs[i]->last - s->logs[i]->acked;
    return n;
}
int64_t spool_limit(const struct spool *s) { return s->limit; }
size_t spool_count(const struct spool *s) { return s->n_logs; }
struct spool_log *spool_at(const struct spool *s, size_t i) {
    return s->logs[i];
}
const struct spool_key *spool_log_key(const struct spool_log *log) { return &log->key; }
int64_t spool_log_first(const struct spool_log *log) {
    return log->n_segments ? log->segments[0].first : log->last + 1;
}
int64_t spool_log_last(const struct spool_log *log) { return log->last; }
int64_t spool_log_acked(const struct spool_log *log) { return log->acked; }
const char *spool_log_damage(const struct spool_log *log) { return log->damage ? log->damage->msg : NULL; }

/* ---- kept segments: acknowledged to the end, kept to be sent again, dropped when their space is needed ---- */

static int64_t segment_last(const struct spool_log *log, size_t i) {
    return i + 1 < log->n_segments ? log->segments[i + 1].first - 1 : log->last;
}

static void kept_count(struct spool_log *log) {
    while (log->n_kept < log->n_segments && segment_last(log, log->n_kept) <= log->acked)
        log->spool->kept += log->segments[log->n_kept++].bytes;
}

static void kept_uncount(struct spool_log *log) {
    while (log->n_kept > 0)
        log->spool->kept -= log->segments[--log->n_kept].bytes;
}

static struct segment *newest(struct spool_log *log) { return &log->segments[log->n_segments - 1]; }

static void segment_path(const struct spool_log *log, int64_t first, char ret[2 * NAME_BYTES]) {
    snprintf(ret, 2 * NAME_BYTES, "%s/%020lld", log->name, (long long)first);
}

static void damage_set(struct spool_log *log, int64_t sequence) {
    if (!log->damage)
        log->damage = alloc_zeroed(1, sizeof *log->damage);
    status_ignore(err_set(log->damage, ST_DATA_LOSS,
                          "the spool of job %lld attempt %d rank %d is damaged on disk from record %lld on",
                          (long long)log->key.job, log->key.attempt, log->key.rank, (long long)sequence));
}

static void segments_push(struct spool_log *log, int64_t first, int64_t bytes) {
    log->segments = alloc_grow(log->segments, log->n_segments, sizeof *log->segments);
    log->segments[log->n_segments++] = (struct segment){ .first = first,
                                                         .bytes = bytes,
                                                         .order = log->spool->next_order++ };
}

static void newest_close(struct spool_log *log) {
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}

/* Removes all records from `sequence` on, which begins at `offset` of segment i. */
static void log_cut(struct spool_log *log, size_t i, int64_t offset, int64_t sequence) {
    newest_close(log);
    kept_uncount(log);
    char path[2 * NAME_BYTES];
    for (size_t k = log->n_segments; k-- > i + 1;) {
        segment_path(log, log->segments[k].first, path);
        unlinkat(log->spool->folder, path, 0);
        log->spool->bytes -= log->segments[k].bytes;
    }
    log->n_segments = i + 1;
    segment_path(log, log->segments[i].first, path);
    CLEANUP(closep) int fd = openat(log->spool->folder, path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        status_ignore(ftruncate(fd, offset) == 0 ? ST_OK : ST_INTERNAL); /* if it fails, appends still go to `offset` */
    log->spool->bytes -= log->segments[i].bytes - offset;
    log->segments[i].bytes = offset;
    log->last = sequence - 1;
    if (log->acked > log->last)
        log->acked = log->last;
    kept_count(log);
}

/* ---- recovery ---- */

static int by_first(const void *a, const void *b) {
    const struct segment *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static status_t segments_list(struct spool_log *log, struct err *e) {
    int fd = openat(log->spool->folder, log->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        status_t st = err_errno(e, "open the spool's folder '%s'", log->name);
        if (fd >= 0)
            close(fd);
        return st;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        char canonical[32], *end;
        long long first = strtoll(entry->d_name, &end, 10);
        snprintf(canonical, sizeof canonical, "%020lld", first);
        struct stat info;
        if (first < 1 || strcmp(canonical, entry->d_name) != 0 || fstatat(fd, entry->d_name, &info, 0) < 0)
            continue;
        segments_push(log, first, info.st_size);
        log->spool->bytes += info.st_size;
    }
    closedir(dir);
    if (log->n_segments)
        qsort(log->segments, log->n_segments, sizeof *log->segments, by_first);
    return ST_OK;
}

/* The intact records of segment i, counted from `*sequence`; ret_end is the byte after the last one. */
static status_t segment_scan(struct spool_log *log, size_t i, int64_t *sequence, int64_t *ret_end, struct err *e) {
    char path[2 * NAME_BYTES];
    segment_path(log, log->segments[i].first, path);
    CLEANUP(closep) int fd = openat(log->spool->folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open spool segment '%s'", path);
    int64_t offset = 0;
    for (;;) {
        ssize_t got = pread(fd, log->spool->buffer, READ_BYTES, offset);
        if (got < 0)
            return err_errno(e, "read spool segment '%s'", path);
        size_t used = 0, n, whole;
        const uint8_t *payload;
        while ((whole = spool_record_parse(log->spool->buffer + used, (size_t)got - used, *sequence, &payload, &n))) {
            used += whole;
            ++*sequence;
        }
        offset += (int64_t)used;
        if (used == 0)
            break;
    }
    *ret_end = offset;
    return ST_OK;
}

static status_t log_recover(struct spool_log *log, struct err *e) {
    TRY(segments_list(log, e));
    int64_t sequence = log->n_segments ? log->segments[0].first : 1;
    log->acked = log->last = sequence - 1;
    for (size_t i = 0; i < log->n_segments; i++) {
        int64_t end = 0;
        TRY(segment_scan(log, i, &sequence, &end, e));
        bool is_last = i + 1 == log->n_segments;
        log->last = sequence - 1;
        if (is_last ? end == log->segments[i].bytes : log->segments[i + 1].first == sequence)
            continue;
        if (!is_last)
            damage_set(log, sequence);
        log_cut(log, i, end, sequence);
    }
    return ST_OK;
}

static struct spool_log *log_free(struct spool_log *log) {
    if (!log)
        return NULL;
    newest_close(log);
    free(log->segments);
    free(log->damage);
    free(log);
    return NULL;
}
CLEANUP_DEFINE(struct spool_log *, log_free)

static status_t log_add(struct spool *s, const struct spool_key *key, struct spool_log **ret, struct err *e) {
    CLEANUP(log_freep) struct spool_log *log = alloc_zeroed(1, sizeof *log);
    s->logs = alloc_grow(s->logs, s->n_logs, sizeof *s->logs);
    if (!s->buffer)
        s->buffer = alloc_zeroed(READ_BYTES, 1);
    log->spool = s;
    log->key = *key;
    log->fd = -1;
    snprintf(log->name, sizeof log->name, "%lld-%d-%d", (long long)key->job, key->attempt, key->rank);
    if (mkdirat(s->folder, log->name, 0700) < 0 && errno != EEXIST)
        return err_errno(e, "make the spool's folder '%s'", log->name);
    TRY(log_recover(log, e));
    *ret = s->logs[s->n_logs++] = take_ptr(&log);
    return ST_OK;
}

static status_t logs_load(struct spool *s, struct err *e) {
    int fd = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        status_t st = err_errno(e, "list the spool's folder");
        if (fd >= 0)
            close(fd);
        return st;
    }
    status_t st = ST_OK;
    for (struct dirent *entry; st == ST_OK && (entry = readdir(dir));) {
        long long job;
        struct spool_key key = { 0 };
        char canonical[NAME_BYTES];
        if (sscanf(entry->d_name, "%lld-%d-%d", &job, &key.attempt, &key.rank) != 3)
            continue;
        key.job = job;
        snprintf(canonical, sizeof canonical, "%lld-%d-%d", job, key.attempt, key.rank);
        struct spool_log *log;
        if (strcmp(canonical, entry->d_name) == 0)
            st = log_add(s, &key, &log, e);
    }
    closedir(dir);
    return st;
}

status_t spool_open(const char *folder, int64_t limit_bytes, struct spool **ret, struct err *e) {
    if (limit_bytes < 64 << 10)
        return err_set(e, ST_INVALID_ARGUMENT, "a spool of %lld bytes is too small; at least 65536 are needed",
                       (long long)limit_bytes);
    TRY(dir_make(folder, 0700, e));
    CLEANUP(spool_closep) struct spool *s = alloc_zeroed(1, sizeof *s);
    s->folder = -1;
    s->limit = limit_bytes;
    s->segment_bytes = limit_bytes / 16;
    if (s->segment_bytes > SEGMENT_MAX_BYTES)
        s->segment_bytes = SEGMENT_MAX_BYTES;
    if (s->segment_bytes < SEGMENT_MIN_BYTES)
        s->segment_bytes = SEGMENT_MIN_BYTES;
    s->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s->folder < 0)
        return err_errno(e, "open the spool's folder '%s'", folder);
    status_t st = logs_load(s, e);
    if (st != ST_OK)
        return err_prefix(e, st, "spool '%s': ", folder);
    *ret = take_ptr(&s);
    return ST_OK;
}

struct spool *spool_close(struct spool *s) {
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n_logs; i++)
        log_free(s->logs[i]);
    if (s->folder >= 0)
        close(s->folder);
    free(s->logs);
    free(s->buffer);
    free(s);
    return NULL;
}

struct spool_log *spool_log_find(const struct spool *s, const struct spool_key *key) {
    for (size_t i = 0; i < s->n_logs; i++) {
        const struct spool_key *k = &s->logs[i]->key;
        if (k->job == key->job && k->attempt == key->attempt && k->rank == key->rank)
            return s->logs[i];
    }
    return NULL;
}

status_t spool_log_open(struct spool *s, const struct spool_key *key, struct spool_log **ret, struct err *e) {
    struct spool_log *log = spool_log_find(s, key);
    if (!log)
        TRY(log_add(s, key, &log, e));
    *ret = log;
    return ST_OK;
}

void spool_log_remove(struct spool_log *log) {
    struct spool *s = log->spool;
    char path[2 * NAME_BYTES];
    kept_uncount(log);
    for (size_t i = 0; i < log->n_segments; i++) {
        segment_path(log, log->segments[i].first, path);
        unlinkat(s->folder, path, 0);
        s->bytes -= log->segments[i].bytes;
    }
    unlinkat(s->folder, log->name, AT_REMOVEDIR);
    for (size_t i = 0; i < s->n_logs; i++)
        if (s->logs[i] == log)
            s->logs[i] = s->logs[--s->n_logs];
    log_free(log);
}

/* ---- append ---- */

/* Opens the newest segment for an append; begins a new one if there is none or if it is long enough. */
static status_t newest_ready(struct spool_log *log, struct err *e) {
    char path[2 * NAME_BYTES];
    bool fresh = log->n_segments == 0 || newest(log)->bytes >= log->spool->segment_bytes;
    if (!fresh && log->fd >= 0)
        return ST_OK;
    int64_t first = fresh ? log->last + 1 : newest(log)->first;
    segment_path(log, first, path);
    int fd = openat(log->spool->folder, path, O_WRONLY | O_CLOEXEC | (fresh ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0)
        return err_errno(e, "open spool segment '%s'", path);
    if (fresh)
        segments_push(log, first, 0);
    newest_close(log);
    log->fd = fd;
    return ST_OK;
}

/* Empties the only segment of a log that is acknowledged to its end, under the name of the next sequence. Renaming
 * before emptying needs no disk space; a crash between the two leaves records with wrong numbers, which recovery cuts
 * off like a torn tail. */
static void newest_restart(struct spool_log *log) {
    struct spool *s = log->spool;
    if (log->n_segments != 1 || newest(log)->bytes == 0 || log->acked < log->last)
        return;
    char path[2 * NAME_BYTES], next[2 * NAME_BYTES];
    segment_path(log, newest(log)->first, path);
    segment_path(log, log->last + 1, next);
    newest_close(log);
    if (renameat(s->folder, path, s->folder, next) < 0)
        return;
    kept_uncount(log);
    log->fd = openat(s->folder, next, O_WRONLY | O_TRUNC | O_CLOEXEC);
    s->bytes -= newest(log)->bytes;
    *newest(log) = (struct segment){ .first = log->last + 1, .order = s->next_order++ };
    log->cursor.segment = 0;
    kept_count(log);
}

static void oldest_unlink(struct spool_log *log) {
    char path[2 * NAME_BYTES];
    segment_path(log, log->segments[0].first, path);
    unlinkat(log->spool->folder, path, 0);
    log->spool->bytes -= log->segments[0].bytes;
    log->spool->kept -= log->segments[0].bytes;
    log->n_kept--;
    log->n_segments--;
    memmove(log->segments, log->segments + 1, log->n_segments * sizeof *log->segments);
}

/* Drops the kept segment of all logs that was begun first; false if there is none. */
static bool kept_drop(struct spool *s) {
    struct spool_log *oldest = NULL;
    for (size_t i = 0; i < s->n_logs; i++) {
        struct spool_log *log = s->logs[i];
        if (log->n_kept > 0 && log->segments[0].bytes > 0 &&
            (!oldest || log->segments[0].order < oldest->segments[0].order))
            oldest = log;
    }
    const int64_t before = s->bytes;
    if (oldest && oldest->n_segments > 1)
        oldest_unlink(oldest);
    else if (oldest)
        newest_restart(oldest);
    return s->bytes < before;
}

static status_t append_once(struct spool_log *log, const void *data, size_t n, struct err *e) {
    struct spool *s = log->spool;
    int64_t whole = SPOOL_RECORD_HEADER + (int64_t)n;
    if (s->bytes + whole > s->limit)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the spool is full: it holds %lld of %lld bytes", (long long)s->bytes,
                       (long long)s->limit);
    TRY(newest_ready(log, e));
    uint8_t header[SPOOL_RECORD_HEADER];
    spool_record_header(header, log->last + 1, data, n);
    struct iovec parts[2] = { { header, sizeof header }, { (void *)(uintptr_t)data, n } };
    ssize_t wrote = pwritev(log->fd, parts, 2, newest(log)->bytes);
    if (wrote != whole) {
        if (wrote >= 0)
            errno = ENOSPC; /* a short write: the disk is full */
        status_t st = err_errno(e, "append to the spool");
        status_ignore(ftruncate(log->fd, newest(log)->bytes) == 0 ? ST_OK : ST_INTERNAL);
        return st;
    }
    if (log->n_kept == log->n_segments)
        s->kept -= log->segments[--log->n_kept].bytes;
    newest(log)->bytes += whole;
    s->bytes += whole;
    log->last++;
    return ST_OK;
}

status_t spool_append(struct spool_log *log, const void *data, size_t n, int64_t *ret_sequence, struct err *e) {
    if (n == 0 || n > LIMIT_RECORD_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "the record has %zu bytes; the spool takes 1 to %d", n,
                       LIMIT_RECORD_BYTES);
    status_t st;
    do
        st = append_once(log, data, n, e);
    while (st == ST_RESOURCE_EXHAUSTED && kept_drop(log->spool));
    if (st == ST_OK)
        *ret_sequence = log->last;
    return st;
}

/* ---- read ---- */

/* The index of the segment that holds record `first`; n_segments if none does. */
static size_t segment_of(const struct spool_log *log, int64_t first) {
    if (first > log->last || log->n_segments == 0 || first < log->segments[0].first)
        return log->n_segments;
    size_t i = log->n_segments - 1;
    while (log->segments[i].first > first)
        i--;
    return i;
}

struct reading {
    int64_t sequence; /* the next one */
    int64_t from;     /* records before it are skipped */
    size_t left;      /* payload bytes that may still be visited */
    bool any, over;
    spool_visit_fn visit;
    void *ctx;
};

/* Visits the records of one buffer; returns the bytes used. */
static size_t buffer_visit(const uint8_t *data, size_t n, struct reading *r) {
    size_t used = 0, len, whole;
    const uint8_t *payload;
    while (!r->over && (whole = spool_record_parse(data + used, n - used, r->sequence, &payload, &len))) {
        if (r->sequence >= r->from) {
            if (r->any && len > r->left) {
                r->over = true;
                break;
            }
            r->left -= len < r->left ? len : r->left;
            r->any = true;
            r->over = !r->visit(r->ctx, r->sequence, payload, len);
        }
        used += whole;
        r->sequence++;
    }
    return used;
}

static status_t segment_read(struct spool_log *log, size_t i, struct reading *r, struct err *e) {
    const struct segment *seg = &log->segments[i];
    char path[2 * NAME_BYTES];
    segment_path(log, seg->first, path);
    CLEANUP(closep) int fd = openat(log->spool->folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open spool segment '%s'", path);
    int64_t offset = 0;
    r->sequence = seg->first;
    if (log->cursor.segment == seg->first && log->cursor.sequence <= r->from) {
        offset = log->cursor.offset;
        r->sequence = log->cursor.sequence;
    }
    while (!r->over && offset < seg->bytes) {
        int64_t want = seg->bytes - offset < READ_BYTES ? seg->bytes - offset : READ_BYTES;
        ssize_t got = pread(fd, log->spool->buffer, (size_t)want, offset);
        if (got < 0)
            return err_errno(e, "read spool segment '%s'", path);
        size_t used = buffer_visit(log->spool->buffer, (size_t)got, r);
        offset += (int64_t)used;
        if (used == 0 && !r->over) {
            damage_set(log, r->sequence);
            log_cut(log, i, offset, r->sequence);
            return err_set(e, ST_DATA_LOSS, "%s", log->damage ? log->damage->msg : "the spool is damaged");
        }
    }
    log->cursor.segment = seg->first;
    log->cursor.offset = offset;
    log->cursor.sequence = r->sequence;
    return ST_OK;
}

status_t spool_read(struct spool_log *log, int64_t first, size_t max_bytes, spool_visit_fn visit, void *ctx,
                    struct err *e) {
    struct reading r = { .from = first, .left = max_bytes, .visit = visit, .ctx = ctx };
    for (size_t i = segment_of(log, first); i < log->n_segments && !r.over; i++)
        TRY(segment_read(log, i, &r, e));
    return ST_OK;
}

/* ---- acknowledge ---- */

void spool_ack(struct spool_log *log, int64_t sequence) {
    struct spool *s = log->spool;
    if (sequence <= log->acked || sequence > log->last)
        return;
    log->acked = sequence;
    kept_count(log);
    while (s->kept > s->limit / KEPT_SHARE && kept_drop(s)) {
    }
}

void spool_rewind(struct spool_log *log, int64_t sequence) {
    const int64_t oldest = spool_log_first(log) - 1, to = sequence < oldest ? oldest : sequence;
    if (to >= log->acked)
        return;
    kept_uncount(log);
    log->acked = to;
    kept_count(log);
}
