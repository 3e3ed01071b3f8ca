#include "executor/data/report.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "executor/child/child.h"

#include <stdio.h>
#include <string.h>

enum {
    EVENT_BYTES = 256,
    OBJECTS_BYTES = LIMIT_RECORD_BYTES / 2, /* of one report */
    OBJECT_MORE_BYTES = 128,                /* besides the name */
};

static char *text(const char *s) { return (char *)(uintptr_t)s; }

static void report(Trainyard__V1__DataReport *r) {
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_DATA;
    record.data = r;
    record.time_us = clock_wall_us();
    status_ignore(frame_write(CHILD_RECORDS_FD, &record.base, NULL));
}

void report_event(const char *event, const char *message) {
    Trainyard__V1__DataReport r = TRAINYARD__V1__DATA_REPORT__INIT;
    r.event = text(event);
    r.message = text(message);
    report(&r);
}

static const char *host_name(char ret[64]) {
    *ret = '\0';
    gethostname(ret, 63);
    ret[63] = '\0';
    return ret;
}

/* ---- progress ---- */

void report_progress(struct report_progress *p, const struct fetch *f) {
    const int64_t now = clock_mono_ms(), to_copy = atomic_load(&f->to_copy_bytes);
    const int64_t received = atomic_load(&f->progress.received);
    char message[EVENT_BYTES], host[64];
    if (atomic_load(&f->n_objects) == 0 || (!p->begun && to_copy == 0) ||
        (p->begun && now - p->last_ms < REPORT_PROGRESS_MS))
        return;
    const double mib_s = p->begun ? (double)(received - p->last_received) / 1048576 * 1000 / (double)(now - p->last_ms)
                                  : 0;
    if (atomic_load(&f->waits))
        snprintf(message, sizeof message, "host %s: %lld MiB of data wait for space in the cache", host_name(host),
                 (long long)(to_copy >> 20));
    else if (!p->begun)
        snprintf(message, sizeof message, "host %s: %lld of %lld MiB in %d objects are fetched", host_name(host),
                 (long long)(to_copy >> 20), (long long)(atomic_load(&f->bytes) >> 20), atomic_load(&f->n_objects));
    else
        snprintf(message, sizeof message,
                 "host %s: %lld of %lld MiB have come (%.1f MiB/s), %d of %d objects are there", host_name(host),
                 (long long)(received >> 20), (long long)(to_copy >> 20), mib_s, atomic_load(&f->progress.objects),
                 atomic_load(&f->n_objects));
    p->begun = true;
    p->last_ms = now;
    p->last_received = received;
    report_event("data_fetching", message);
}

/* ---- the end ---- */

static void report_objects(const struct fetch *f) {
    CLEANUP(freep) char *folder = f->cache ? alloc_format("%s/objects", f->cache->path) : NULL;
    Trainyard__V1__DataObject *objects = alloc_zeroed((size_t)f->objects.n, sizeof *objects);
    Trainyard__V1__DataObject **list = alloc_zeroed((size_t)f->objects.n, sizeof(Trainyard__V1__DataObject *));
    for (int i = 0, first = 0; i < f->objects.n; first = i) {
        Trainyard__V1__DataReport r = TRAINYARD__V1__DATA_REPORT__INIT;
        for (size_t bytes = 0; i < f->objects.n && bytes < OBJECTS_BYTES; i++) {
            const struct data_object *o = &f->objects.items[i];
            trainyard__v1__data_object__init(&objects[i]);
            objects[i].uri = o->uri;
            objects[i].name = o->name;
            objects[i].bytes = o->bytes;
            objects[i].sha256 = text(o->sha256);
            list[i] = &objects[i];
            bytes += strlen(o->name) + OBJECT_MORE_BYTES;
        }
        r.objects = list + first;
        r.n_objects = (size_t)(i - first);
        if (folder)
            r.folder = folder;
        report(&r);
    }
    free(list);
    free(objects);
}

static int64_t cached_bytes(const struct fetch *f) {
    int64_t bytes = 0;
    for (int i = 0; i < f->objects.n; i++)
        bytes += f->objects.items[i].is_cached ? f->objects.items[i].bytes : 0;
    return bytes;
}

static void report_ready(const struct report_progress *p, const struct fetch *f) {
    char message[EVENT_BYTES], host[64];
    snprintf(message, sizeof message,
             "host %s: %d objects of data with %lld MiB are ready after %.1f s (%lld MiB from the cache, %lld MiB from "
             "other hosts)",
             host_name(host), f->objects.n, (long long)(atomic_load(&f->bytes) >> 20),
             (double)(clock_mono_ms() - p->since_ms) / 1000, (long long)(cached_bytes(f) >> 20),
             (long long)(atomic_load(&f->progress.from_peers) >> 20));
    report_event("data_ready", message);
}

static Trainyard__V1__WorkerEnd__Cause cause_of(status_t st) {
    switch (st) {
    case ST_OK: return TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    case ST_INVALID_ARGUMENT:
    case ST_NOT_FOUND:
    case ST_PERMISSION_DENIED: return TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC;
    default: return TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
    }
}

/* It is gone, or its store has other bytes than it says. A store that is away says nothing about it. */
static Trainyard__V1__WorkerEnd__Cause cause_of_checkpoint(status_t st) {
    switch (st) {
    case ST_NOT_FOUND: return TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE;
    case ST_DATA_LOSS: return TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD;
    default: return cause_of(st);
    }
}

void report_last(const struct report_progress *p, const struct fetch *f, status_t st, bool of_checkpoint,
                 const struct err *why) {
    Trainyard__V1__DataReport r = TRAINYARD__V1__DATA_REPORT__INIT;
    if (st == ST_OK)
        report_objects(f);
    if (st == ST_OK && f->cache)
        report_ready(p, f);
    r.last = true;
    r.store_bytes = atomic_load(&f->progress.from_stores);
    r.peer_bytes = atomic_load(&f->progress.from_peers);
    r.cache_bytes = cached_bytes(f);
    r.message = text(why->msg);
    r.cause = of_checkpoint ? cause_of_checkpoint(st) : cause_of(st);
    report(&r);
}
