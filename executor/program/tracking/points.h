/* Points of metrics from all sources of a rank, as rows for the emitter.
 *
 *     struct points *p = points_new(&sink);
 *     points_add(p, "", "loss", 10, 2.31);         // buffered: points of one step are one row
 *     points_flush(p);                             // the row is sent
 *     points_end(p);                               // flushes, and reports what was counted
 *
 * A metric's name has 1 to LIMIT_METRIC_NAME_BYTES printable ASCII characters without spaces, quotes and backslashes.
 * Other characters become '_'. A name that is too long keeps its beginning, and ends in '~' and eight digits of a
 * checksum of the whole name. An event reports a changed name. A rank has at most POINTS_NAMES metrics: points of
 * further ones are counted, and reported by events.
 *
 * One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_POINTS_H
#define EXECUTOR_PROGRAM_TRACKING_POINTS_H

#include "base/cleanup.h"

#include <stddef.h>
#include <stdint.h>

enum {
    POINTS_NAMES = 960,          /* the store has 1,024 for a rank, those of devices included */
    POINTS_ROW = 64,             /* points of one row */
    POINTS_EVENTS_PER_KIND = 20, /* later events of the same kind are not sent */
    POINTS_EVENT_BYTES = 1000,
};
#define POINTS_STEP_MAX (INT64_C(1) << 53) /* JSON's readers know no larger integers exactly */

struct points_sink {
    void *ctx;
    /* names and values are valid during the call. */
    void (*row)(void *ctx, int64_t step, char *const *names, const double *values, size_t n);
    /* kind: snake_case; message: one printable sentence. Both are valid during the call. */
    void (*event)(void *ctx, const char *kind, const char *message);
};

struct points;
struct points *points_new(const struct points_sink *sink);
struct points *points_free(struct points *p);
CLEANUP_DEFINE(struct points *, points_free)

/* Where the following points come from: a literal, for sentences. A program may report to several trackers at once: a
 * metric belongs to the source that reports it first, and points of its name from other sources are dropped. An event
 * names the metric. */
void points_from(struct points *p, const char *source);
/* prefix: comes before the name, "" for none. A step below 0 or above POINTS_STEP_MAX is refused by an event. */
void points_add(struct points *p, const char *prefix, const char *name, int64_t step, double value);
/* For a client that sends step 0 if the program gives none: the points of a metric that has only such points are
 * numbered from 0 on. A metric that has other steps gets step 0. */
void points_add_unnumbered(struct points *p, const char *prefix, const char *name, double value);
void points_flush(struct points *p);
void points_end(struct points *p);

/* Sends an event. Bytes that a terminal must not get become '?'. Bounded for each kind, which is a literal. */
void points_event(struct points *p, const char *kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
