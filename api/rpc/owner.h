/* The list of calls of a server or a channel, which may only be closed after its last call is freed. */
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
void owner_done(struct owner *);                  /* after all calls are released */
size_t owner_add(struct owner *, struct owned *); /* returns the number of calls now */
/* Two steps, before and after the release of gRPC's call. After unlink, cancel_all does not see the call; after
 * release, wait_empty does not wait for it. */
void owner_unlink(struct owner *, struct owned *);
void owner_release(struct owner *);
void owner_cancel_all(struct owner *);
void owner_wait_empty(struct owner *);

#endif
