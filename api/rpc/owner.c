#include "api/rpc/owner.h"

void owner_init(struct owner *o) {
    *o = (struct owner){ 0 };
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->emptied, NULL);
}

void owner_done(struct owner *o) {
    pthread_cond_destroy(&o->emptied);
    pthread_mutex_destroy(&o->lock);
}

size_t owner_add(struct owner *o, struct owned *call) {
    pthread_mutex_lock(&o->lock);
    call->next = o->calls;
    call->at = &o->calls;
    if (call->next)
        call->next->at = &call->next;
    o->calls = call;
    size_t n = ++o->n;
    pthread_mutex_unlock(&o->lock);
    return n;
}

void owner_unlink(struct owner *o, struct owned *call) {
    pthread_mutex_lock(&o->lock);
    *call->at = call->next;
    if (call->next)
        call->next->at = call->at;
    pthread_mutex_unlock(&o->lock);
}

void owner_release(struct owner *o) {
    pthread_mutex_lock(&o->lock);
    if (--o->n == 0)
        pthread_cond_broadcast(&o->emptied); /* under the lock: o may be freed as soon as it is released */
    pthread_mutex_unlock(&o->lock);
}

void owner_cancel_all(struct owner *o) {
    pthread_mutex_lock(&o->lock);
    for (struct owned *c = o->calls; c; c = c->next)
        grpc_call_cancel(c->call, NULL);
    pthread_mutex_unlock(&o->lock);
}

void owner_wait_empty(struct owner *o) {
    pthread_mutex_lock(&o->lock);
    while (o->n)
        pthread_cond_wait(&o->emptied, &o->lock);
    pthread_mutex_unlock(&o->lock);
}
