/* The calls of shut_memory's device (shut_memory.h) that have been made and have not run: one line for a table and its
 * fp32, and beside it what is uploaded ahead, as early or as late as the waits allow. They run on whichever thread
 * waits for them; what would be a deadlock, or a wait inside a capture, ends the process. */
#ifndef TESTS_ENGINE_SHUT_LINE_H
#define TESTS_ENGINE_SHUT_LINE_H

#include "base/status.h"
#include "tests/engine/shut_trace.h"

#include <stddef.h>

enum { CALL_HELD = 2, ALGORITHM_NOT_YET = -2 };

struct kernels;

/* A call that is to run: its arguments stand behind it, and what is the host's among them is held. */
struct call {
    status_t (*run)(struct call *c, struct err *e);
    const struct kernels *open; /* the CPU's table */
    struct line *line;
    void *held[CALL_HELD];
    struct call *next;
    const char *called; /* a function of the table; NULL: nothing runs */
    struct shut_traced traced;
};

/* What has been called and has not run, or, between capture_begin and capture_end, is not to run yet. */
struct line {
    void (*touch)(bool may);             /* what runs may touch the device's memory; nothing else may */
    bool (*is_roomed)(const void *host); /* it lies in memory of host_memory_new that has not been freed */
    struct call *first, **last;
    struct call *captured, **captured_last;
    bool captures;
    struct upload *uploads, **uploads_last;
    int64_t n_uploads, n_releases, n_awaits; /* that have been called */
    int64_t released;                        /* that have run */
    int64_t clock_ns;                        /* each call takes SHUT_MEMORY_CALL_NS */
    int algorithm;                           /* of products; ALGORITHM_NOT_YET */
    status_t status;                         /* the first failure, until it is told */
    struct err error;
};

struct line *line_new(void (*touch)(bool may), bool (*is_roomed)(const void *host));

/* A call at the line's end, or at the capture's: `bytes` of it, the caller's behind struct call. Ends the process where
 * there is no memory. */
void *line_call(struct line *l, const struct kernels *open, size_t bytes, status_t (*run)(struct call *, struct err *));
/* A struct of the host's is read before a call returns: the call gets a copy of its own. */
void call_hold(struct call *c, void *argument, size_t bytes);
void call_run(struct line *l, struct call *c);
void calls_free(struct call *c);

/* Runs what has been called, up to this one; NULL: all, uploads too. The first failure since it was last told. */
MUST_CHECK status_t line_run(struct line *l, const struct call *until, struct err *e);

/* An upload beside the line: it waits for the first `after` releases, and the next await for it. Each third runs as
 * early as that allows, the others when they are awaited. What was in a room of the host's must still be there then. */
void line_upload(struct line *l, void *to, const void *from, size_t bytes, int64_t after);
/* Runs what the first `needed` awaits wait for, and what is early behind it. */
void line_uploads_run(struct line *l, int64_t needed);

#endif
