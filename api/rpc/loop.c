#include "api/rpc/loop.h"

#include <signal.h>
#include <string.h>

static void *loop_main(void *arg) {
    struct loop *loop = arg;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(loop->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        struct tag *tag = event.tag;
        (void)atomic_load(&tag->handed);
        tag->run(tag, event.success);
    }
}

void loop_open(struct loop *loop) { *loop = (struct loop){ .queue = grpc_completion_queue_create_for_next(NULL) }; }

status_t loop_run(struct loop *loop, struct err *e) {
    /* Signals are handled by the main thread only. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&loop->thread, NULL, loop_main, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the RPC completion queue: %s", strerror(failed));
    loop->running = true;
    return ST_OK;
}

void loop_close(struct loop *loop) {
    if (!loop->queue)
        return;
    grpc_completion_queue_shutdown(loop->queue);
    if (loop->running)
        pthread_join(loop->thread, NULL);
    else
        loop_main(loop);
    grpc_completion_queue_destroy(loop->queue);
    *loop = (struct loop){ 0 };
}

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct loop shared_loop;
static int shared_users;

status_t loop_shared_take(struct loop **ret, struct err *e) {
    pthread_mutex_lock(&shared_lock);
    status_t st = ST_OK;
    if (shared_users == 0) {
        loop_open(&shared_loop);
        st = loop_run(&shared_loop, e);
        if (st != ST_OK)
            loop_close(&shared_loop);
    }
    if (st == ST_OK) {
        shared_users++;
        *ret = &shared_loop;
    }
    pthread_mutex_unlock(&shared_lock);
    return st;
}

void loop_shared_give(void) {
    pthread_mutex_lock(&shared_lock);
    if (--shared_users == 0)
        loop_close(&shared_loop);
    pthread_mutex_unlock(&shared_lock);
}
