/* A completion queue and its one thread. A tag is a function with its struct around it; it runs on that thread. */
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
    atomic_uint handed; /* orders what the starter wrote before what the loop reads; gRPC does so too, unseen by TSan */
};
#define TAG_OWNER(tag, type, member) ((type *)(void *)((char *)(tag)-offsetof(type, member)))

struct loop {
    grpc_completion_queue *queue;
    pthread_t thread;
    bool running;
};

/* Before each start of a batch under the tag. */
static inline void tag_hand(struct tag *tag) { atomic_fetch_add(&tag->handed, 1); }

/* Between grpc_init and grpc_shutdown. The queue exists after open; the thread runs after run. */
void loop_open(struct loop *);
MUST_CHECK status_t loop_run(struct loop *, struct err *e);
/* Nothing may be started on the queue any more. Runs what is still in it, joins and destroys. Fine on a zeroed one. */
void loop_close(struct loop *);

/* The loop that all channels of the process share: opened by the first take, closed by the last give. */
MUST_CHECK status_t loop_shared_take(struct loop **ret, struct err *e);
void loop_shared_give(void);

#endif
