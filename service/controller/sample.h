/* Generates text from a checkpoint, or verifies its bytes. The request goes to one attached executor, which runs a
 * worker outside its slots. The output returns over the executor's control stream and is passed to the sink.
 *
 * Bounded: at most SAMPLE_MAX samples at once. Thread-safe. */
#ifndef SERVICE_CONTROLLER_SAMPLE_H
#define SERVICE_CONTROLLER_SAMPLE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/dispatch.h"

#include <stdbool.h>
#include <stdint.h>

/* Each sample is a process on a host that also trains. */
#define SAMPLE_MAX 16

struct samples;
struct samples *samples_new(struct dispatch *d);
struct samples *samples_free(struct samples *s);
CLEANUP_DEFINE(struct samples *, samples_free)

/* The functions are called one at a time per sample, and must not block. `done` is the last call. */
struct sample_sink {
    void (*text)(void *ctx, const char *text);
    void (*done)(void *ctx, status_t st, const char *executor, const char *message);
    void *ctx;
};

/* Starts a sample with a copy of the request. *ret names the sample for sample_stop. UNAVAILABLE: no executor is
 * attached. RESOURCE_EXHAUSTED: SAMPLE_MAX samples are running. After a failure, sink is not called. */
MUST_CHECK status_t sample_start(struct samples *s, const Trainyard__V1__WorkerSample *request,
                                 const struct sample_sink *sink, int64_t *ret, struct err *e);
/* Stops the sample after its client has disconnected. sink is not called after this returns. */
void sample_stop(struct samples *s, int64_t sample);

/* Handles output from an executor's stream. */
void sample_output(struct samples *s, const char *executor, const Trainyard__V1__SampleOutput *output);
/* The executor's stream has ended: its samples end with UNAVAILABLE. */
void sample_executor_gone(struct samples *s, const char *executor);

#endif
