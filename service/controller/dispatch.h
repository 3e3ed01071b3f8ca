/* Who is attached: one link per executor, by which orders go down. A link is two function pointers, so that nothing
 * here knows how messages travel. A newer start of an executor replaces the link of the older one; a second link of the
 * same start replaces the first (a half-open stream).
 *
 * Orders are small and few, and an agent that does not read them is as good as gone: a link whose queue is full is
 * closed, the agent attaches again and everything is compared (service/scheduler/adopt.c).
 *
 * Thread-safe. A link's functions are called with the registry's lock held and must neither block nor call back. */
#ifndef SERVICE_CONTROLLER_DISPATCH_H
#define SERVICE_CONTROLLER_DISPATCH_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/scheduler/scheduler.h"

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/v1/dispatch.pb-c.h>

struct dispatch;
struct dispatch *dispatch_new(void);
struct dispatch *dispatch_free(struct dispatch *d); /* every link must be detached */
CLEANUP_DEFINE(struct dispatch *, dispatch_free)

struct dispatch_link {
    bool (*send)(void *ctx, const Trainyard__V1__ControllerMessage *m); /* false: full or closed */
    void (*close)(void *ctx, status_t st, const char *why);             /* detach follows from the stream's end */
    void *ctx;
};

/* The executor's link from now on; nothing goes down it before its welcome. Returns a ticket, never 0, that names this
 * link in the calls below; 0 when a newer start of the executor is attached already. */
uint64_t dispatch_attach(struct dispatch *d, const char *executor, int64_t incarnation,
                         const struct dispatch_link *link);
/* The stream has ended. After it the link is not called any more. */
void dispatch_detach(struct dispatch *d, uint64_t ticket);
/* Something arrived from it: extends the lease from this moment on the monotonic clock. */
void dispatch_hear(struct dispatch *d, uint64_t ticket);

/* Sends the link its first message, once: what is known of the executor is stored by then. */
void dispatch_welcome(struct dispatch *d, const char *executor, Trainyard__V1__ControllerMessage *m);

/* False when the executor is not attached, or has no welcome yet, or its link did not take the message. The epoch is
 * filled in here. */
bool dispatch_send(struct dispatch *d, const char *executor, Trainyard__V1__ControllerMessage *m);
void dispatch_set_epoch(struct dispatch *d, int64_t epoch);

/* Closes the executor's link, if it has one: its lease is over, and it must attach anew. */
void dispatch_close(struct dispatch *d, const char *executor, status_t st, const char *why);
/* The same for one of its starts: of another one it says nothing. */
void dispatch_refuse(struct dispatch *d, const char *executor, int64_t incarnation, status_t st, const char *why);
/* Closes every link: the controller no longer leads, or stops. */
void dispatch_close_all(struct dispatch *d, status_t st, const char *why);

bool dispatch_attached(struct dispatch *d, const char *executor);
int dispatch_count(struct dispatch *d);
/* Calls fn for each executor heard since the last call of this function. */
void dispatch_take_heard(struct dispatch *d, void (*fn)(void *ctx, const char *executor, int64_t heard_ms), void *ctx);
/* Every attached executor, and when it was last heard; at most cap. Returns how many. */
struct dispatch_heard {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t heard_ms;
};
size_t dispatch_list(struct dispatch *d, struct dispatch_heard *ret, size_t cap);
/* The executor picked least often so far, for work outside the slots; false when none is attached. */
bool dispatch_pick(struct dispatch *d, char *ret, size_t cap);

#endif
