/* A server or a channel and the calls that live by it: it may only go when the last one has. */
#ifndef API_RPC_OWNER_H
#define API_RPC_OWNER_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <stddef.h>

struct owned {
    struct owned *next, **at;
    grpc_call *call;
};

struct owner {
    pthread_mutex_t lock;
    pthread_cond_t emptied;
    struct owned *calls;
    size_t n;
};

void owner_init(struct owner *);
void owner_done(struct owner *);                  /* no call lives */
size_t owner_add(struct owner *, struct owned *); /* how many there are now */
/* Two steps, around the release of gRPC's call: cancel_all does not see it any more; wait_empty does not wait for it.
 */
void owner_unlink(struct owner *, struct owned *);
void owner_release(struct owner *);
void owner_cancel_all(struct owner *);
void owner_wait_empty(struct owner *);

#endif
