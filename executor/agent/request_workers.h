/* Workers that serve one request of the controller and train nothing: samples, verifications and checks of specs. A
 * list has the requests of one kind. A request needs no slot; its number is limited, and its time. Its records are
 * forwarded on the control stream as they arrive. When the worker has ended, the last output carries the status of its
 * final report, or of its exit if there is none. */
#ifndef EXECUTOR_AGENT_REQUEST_WORKERS_H
#define EXECUTOR_AGENT_REQUEST_WORKERS_H

#include "base/status.h"
#include "executor/agent/control_stream.h"
#include "executor/agent/host.h"

#include <trainyard/v1/dispatch.pb-c.h>

enum { REQUEST_WORKERS_MAX = 4 };

struct request_kind {
    int max;            /* requests at a time, at most REQUEST_WORKERS_MAX */
    const char *full;   /* the sentence for a request beyond them */
    const char *worker; /* the worker in sentences: "its worker" */
    const char *unread; /* why a worker is killed whose records the stream does not take */
    /* Forwards a record, if it is of this kind. False: the stream does not take it. */
    bool (*forward)(struct control_stream *stream, int64_t id, const Trainyard__V1__WorkerRecord *record);
    void (*send_last)(struct control_stream *stream, int64_t id, status_t status, const char *why);
    status_t (*status_of)(Trainyard__V1__WorkerEnd__Cause cause);
};

struct request_workers;
struct request_workers *request_workers_new(const struct host *host, struct control_stream *stream,
                                            const struct request_kind *kind);
void request_workers_free(struct request_workers *ws); /* kills those that still run */

/* command: the worker's order. After limit_s the worker is killed with the sentence too_long. */
struct request_order {
    int64_t id;
    const Trainyard__V1__JobSpec *spec; /* as worker_launch takes it */
    int threads;
    const Trainyard__V1__WorkerCommand *command;
    int limit_s;
    const char *too_long;
    void (*ended)(void *ctx, int64_t id); /* called once, after the last output; NULL: not called */
    void *ctx;
};
/* A request that cannot be started ends at once, with the reason. One that runs already is ignored. */
void request_workers_start(struct request_workers *ws, const struct request_order *order);
/* Ends a request whose order is incomplete: INVALID_ARGUMENT. */
void request_workers_refuse(struct request_workers *ws, int64_t id, const char *why);
struct control_stream *request_workers_stream(const struct request_workers *ws); /* of the outputs */
void request_workers_stop(struct request_workers *ws, int64_t id);
void request_workers_stop_all(struct request_workers *ws);

#endif
