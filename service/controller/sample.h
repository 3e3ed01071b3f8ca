/* Text from a checkpoint: a request goes to one attached executor, which runs a worker outside its slots; the pieces
 * come back over its control stream and are handed to whoever asked.
 *
 * Bounded: SAMPLE_MOST at once. Thread-safe. */
#ifndef SERVICE_CONTROLLER_SAMPLE_H
#define SERVICE_CONTROLLER_SAMPLE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/dispatch.h"

#include <stdbool.h>
#include <stdint.h>

/* Each is a process on a host that also trains. */
#define SAMPLE_MOST 16

struct samples;
struct samples *samples_new(struct dispatch *d);
struct samples *samples_free(struct samples *s);
CLEANUP_DEFINE(struct samples *, samples_free)

/* Calls of one sample come one after the other and must not block; `done` is the last one. */
struct sample_sink {
    void (*text)(void *ctx, const char *text);
    void (*done)(void *ctx, status_t st, const char *message);
    void *ctx;
};

/* request is copied. UNAVAILABLE without an attached executor; RESOURCE_EXHAUSTED past SAMPLE_MOST: sink was not called
 * then. *ret names it for sample_stop. */
MUST_CHECK status_t sample_start(struct samples *s, const Trainyard__V1__WorkerSample *request,
                                 const struct sample_sink *sink, int64_t *ret, struct err *e);
/* The asker has gone: sink is not called after this returns. */
void sample_stop(struct samples *s, int64_t sample);

/* From an executor's stream. */
void sample_output(struct samples *s, const char *executor, const Trainyard__V1__SampleOutput *output);
/* Its stream has ended: its samples end with UNAVAILABLE. */
void sample_executor_gone(struct samples *s, const char *executor);

#endif
