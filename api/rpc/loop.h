/* A completion queue and its single thread. A tag is a function inside a larger struct, its owner (TAG_OWNER). The
 * thread calls the function when the batch of the tag has finished. */
#ifndef API_RPC_LOOP_H
#define API_RPC_LOOP_H

#include "base/status.h"

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct tag {
    void (*run)(struct tag *, bool ok);
    /* Orders the starter's writes before the loop's reads. gRPC does so too, but TSan cannot see it. */
    atomic_uint handed;
};
#define TAG_OWNER(tag, type, member) ((type *)(void *)((char *)(tag)-offsetof(type, member)))

struct loop {
    grpc_completion_queue *queue;
    pthread_t thread;
    bool running;
};

/* Call it before each start of a batch with this tag. */
static inline void tag_hand(struct tag *tag) { atomic_fetch_add(&tag->handed, 1); }

/* Use a loop between grpc_init and grpc_shutdown. loop_open creates the queue; loop_run starts the thread. */
void loop_open(struct loop *);
MUST_CHECK status_t loop_run(struct loop *, struct err *e);
/* Runs the tags that are still in the queue, joins the thread and destroys the queue. No batch may be started on the
 * queue any more. A zeroed loop is fine. */
void loop_close(struct loop *);

/* The loop that all channels of the process share. The first take opens it; the last give closes it. */
MUST_CHECK status_t loop_shared_take(struct loop **ret, struct err *e);
void loop_shared_give(void);

#endif
