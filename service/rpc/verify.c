/* VerifyCheckpoint: an executor reads all bytes of a checkpoint, and the result becomes the checkpoint's state. */
#include "service/controller/sample.h"

#include "base/alloc.h"
#include "service/rpc/convert_checkpoint.h"
#include "service/rpc/name.h"
#include "service/rpc/sample_request.h"
#include "service/rpc/services.h"
#include "service/store/checkpoint.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>

struct verify {
    pthread_mutex_t lock;
    int64_t sample; /* 0: not started */
    int64_t job, id;
    bool ended;
    status_t st; /* valid once ended: the executor's result */
    char why[400];
};

static void on_text(void *ctx, const char *text) {
    (void)ctx;
    (void)text;
}

static void on_done(void *ctx, status_t st, const char *executor, const char *message) {
    struct rpc_call *call = ctx;
    struct verify *v = rpc_user(call);
    pthread_mutex_lock(&v->lock);
    v->ended = true;
    v->st = st;
    snprintf(v->why, sizeof v->why, "executor %s: %s", executor, message);
    pthread_mutex_unlock(&v->lock);
    rpc_wake(call); /* the result is stored in PostgreSQL, which may block: a worker thread does it */
}

static bool is_kept(enum store_checkpoint_state state) {
    return state == STORE_CHECKPOINT_COMMITTED || state == STORE_CHECKPOINT_CORRUPT ||
           state == STORE_CHECKPOINT_MISSING;
}

static status_t start(struct rpc_call *call, struct verify *v, struct err *e) {
    const Trainyard__V1__VerifyCheckpointRequest *in = (const void *)rpc_request(call);
    struct controller *c = rpc_service(call);
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint row;
    TRY(name_checkpoint(in->name, &v->job, &v->id, e));
    TRY(rpc_found(call, store_checkpoint_get(controller_store(c), m, v->job, v->id, &row, e), "CHECKPOINT_NOT_FOUND"));
    if (!is_kept(row.state))
        return err_set(e, ST_FAILED_PRECONDITION, "%s is neither COMMITTED nor CORRUPT nor MISSING", in->name);
    Trainyard__V1__WorkerSample request = TRAINYARD__V1__WORKER_SAMPLE__INIT;
    const struct sample_sink sink = { .text = on_text, .done = on_done, .ctx = call };
    struct store_keys keys;
    request.verify = true;
    status_t st = sample_request_set(c, &row, &keys, &request, e);
    if (st == ST_OK)
        st = sample_start(controller_samples(c), &request, &sink, &v->sample, e);
    store_keys_done(&keys);
    return st;
}

static status_t check_result_of(status_t said, const char *why, enum store_check_result *ret, struct err *e) {
    switch (said) {
    case ST_OK: *ret = STORE_CHECK_GOOD; return ST_OK;
    case ST_DATA_LOSS: *ret = STORE_CHECK_CORRUPT; return ST_OK;
    case ST_NOT_FOUND: *ret = STORE_CHECK_UNREADABLE; return ST_OK;
    default: return err_set(e, said, "%s", why); /* the check itself failed: the state does not change */
    }
}

static status_t record(struct rpc_call *call, const struct verify *v, struct err *e) {
    struct controller *c = rpc_service(call);
    enum store_check_result result = STORE_CHECK_UNREADABLE;
    struct store_checkpoint row;
    TRY(check_result_of(v->st, v->why, &result, e));
    TRY(controller_checkpoint_verified(c, v->job, v->id, result, v->why, e));
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    TRY(store_checkpoint_get(controller_store(c), m, v->job, v->id, &row, e));
    TRY(rpc_audit(call, ST_OK, "", e));
    Trainyard__V1__VerifyCheckpointResponse out = TRAINYARD__V1__VERIFY_CHECKPOINT_RESPONSE__INIT;
    out.checkpoint = convert_checkpoint(a, &row);
    out.bytes_match = result == STORE_CHECK_GOOD;
    rpc_send(call, &out.base);
    return ST_OK;
}

void rpc_verify_open(struct rpc_call *call) {
    struct verify *v = alloc_zeroed(1, sizeof *v);
    pthread_mutex_init(&v->lock, NULL);
    rpc_set_user(call, v);
}

void rpc_verify_work(struct rpc_call *call) {
    struct err e = { "" };
    struct verify *v = rpc_user(call);
    pthread_mutex_lock(&v->lock);
    const bool ended = v->ended;
    pthread_mutex_unlock(&v->lock);
    if (!ended && v->sample)
        return;
    status_t st = ended ? record(call, v, &e) : start(call, v, &e);
    if (st != ST_OK)
        status_ignore(rpc_audit(call, st, e.msg, NULL));
    if (ended || st != ST_OK)
        rpc_finish(call, st, e.msg);
}

void rpc_verify_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct verify *v = rpc_user(call);
    sample_stop(controller_samples(rpc_service(call)), v->sample);
    pthread_mutex_destroy(&v->lock);
    free(v);
}
