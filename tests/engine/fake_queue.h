/* The queue of the fake device (fake_device.h): calls that have been made and have not run. A table and its fp32 table
 * share one queue. Uploads ahead run beside the queue, as early or as late as their waits allow. A call runs on the
 * thread that waits for it. A deadlock, or a wait inside a capture, ends the process. */
#ifndef TESTS_ENGINE_FAKE_QUEUE_H
#define TESTS_ENGINE_FAKE_QUEUE_H

#include "base/status.h"
#include "tests/engine/fake_trace.h"

#include <stddef.h>

enum { CALL_HELD = 2, ALGORITHM_NOT_YET = -2 };

struct kernels;

/* A pending call. Its arguments follow the struct; arguments in host memory are copied to `held`. */
struct call {
    status_t (*run)(struct call *c, struct err *e);
    const struct kernels *open; /* the CPU's table */
    struct fake_queue *line;
    void *held[CALL_HELD];
    struct call *next;
    const char *called; /* the name of the table's function; NULL: the call computes nothing */
    struct fake_traced traced;
};

/* Pending calls and, between capture_begin and capture_end, the captured ones. */
struct fake_queue {
    void (*touch)(bool may); /* opens or closes access to device memory; only running calls have access */
    bool (*is_host_buffer)(const void *host); /* the address is in memory of host_memory_new that is not freed */
    struct call *first, **last;
    struct call *captured, **captured_last;
    bool captures;
    struct upload *uploads, **uploads_last;
    int64_t n_uploads, n_releases, n_awaits; /* numbers of calls made */
    int64_t released;                        /* number of releases that have run */
    int64_t clock_ns;                        /* each call takes FAKE_DEVICE_CALL_NS */
    int algorithm;                           /* the algorithm of products, or ALGORITHM_NOT_YET */
    status_t status;                         /* the first failure, until a caller receives it */
    struct err error;
};

struct fake_queue *fake_queue_new(void (*touch)(bool may), bool (*is_host_buffer)(const void *host));

/* Appends a call to the queue or to the capture. The struct has `bytes` bytes: struct call, then the arguments. */
void *fake_queue_call(struct fake_queue *l, const struct kernels *open, size_t bytes,
                      status_t (*run)(struct call *, struct err *));
/* A real device reads a struct of the host before the call returns, so the pending call gets its own copy. */
void call_hold(struct call *c, void *argument, size_t bytes);
void call_run(struct fake_queue *l, struct call *c);
void calls_free(struct call *c);

/* Runs the pending calls up to and including `until`; NULL: all of them, and the uploads. Returns the first failure
 * since the last one that was returned. */
MUST_CHECK status_t fake_queue_run(struct fake_queue *l, const struct call *until, struct err *e);

/* Adds an upload beside the queue. The upload waits for the first `after` releases, and the next await waits for the
 * upload. Every third upload runs as early as possible, the others when they are awaited. A host buffer must still have
 * its content then. */
void fake_queue_upload(struct fake_queue *l, void *to, const void *from, size_t bytes, int64_t after);
/* Runs the uploads for which the first `needed` awaits wait, and later ones that are due early. */
void fake_queue_run_uploads(struct fake_queue *l, int64_t needed);

#endif
