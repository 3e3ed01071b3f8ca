#include "service/controller/start_orders.h"

#include "api/codec/message.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/array.h"
#include "service/controller/checkpoint_files.h"

#include <search.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void free_order(void *p) {
    struct start_order *o = p;
    for (int r = 0; o->executors && r < o->start->world_size; r++)
        free(o->executors[r]);
    free(o->executors);
    attempt_secrets_done(&o->secrets);
    if (o->start)
        trainyard__v1__attempt_start__free_unpacked(o->start, NULL);
    free(o);
}

void start_orders_done(struct start_orders *orders) {
    tdestroy(orders->by_job, free_order);
    orders->by_job = NULL;
}

static status_t fill(struct start_order *o, const Trainyard__V1__AttemptStart *start,
                     const struct start_order_spec *spec, const char *const *executors, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *unpacked = trainyard__v1__job_spec__unpack(NULL, spec->n, spec->packed);
    CLEANUP(freep) char *directory = NULL;
    if (!unpacked)
        return err_set(e, ST_DATA_LOSS, "job %lld: its stored spec cannot be read", (long long)o->job);
    TRY(checkpoint_attempt_directory(unpacked, spec->place, o->job, start->attempt, &directory, e));
    Trainyard__V1__AttemptStart whole = *start;
    whole.spec = unpacked;
    whole.checkpoint_directory = directory;
    TRY(message_copy(&whole.base, &o->start, e));
    o->executors = alloc_zeroed((size_t)start->world_size, sizeof *o->executors);
    for (int r = 0; r < start->world_size; r++)
        o->executors[r] = alloc_copy_text(executors[r]);
    return ST_OK;
}

status_t start_orders_put(struct start_orders *orders, const Trainyard__V1__AttemptStart *start,
                          const struct start_order_spec *spec, const char *const *executors, struct err *e) {
    start_orders_forget(orders, start->job);
    struct start_order *o = alloc_zeroed(1, sizeof *o);
    o->job = start->job;
    alloc_tree_node(o, &orders->by_job, array_by_int64);
    status_t st = fill(o, start, spec, executors, e);
    if (st != ST_OK)
        start_orders_forget(orders, start->job);
    return st;
}

static struct start_order *find(const struct start_orders *orders, int64_t job, int attempt) {
    void *const *node = tfind(&job, &orders->by_job, array_by_int64);
    struct start_order *o = node ? *node : NULL;
    return o && o->start->attempt == attempt ? o : NULL;
}

const struct start_order *start_orders_find(const struct start_orders *orders, int64_t job, int attempt) {
    return find(orders, job, attempt);
}

const struct start_order *start_orders_set_stop_step(struct start_orders *orders, int64_t job, int attempt,
                                                     int64_t step) {
    struct start_order *o = find(orders, job, attempt);
    if (o && !o->has_stop_step) {
        o->has_stop_step = true;
        o->stop_step = step;
    }
    return o;
}

void start_orders_take_secrets(struct start_orders *orders, int64_t job, int attempt, struct attempt_secrets *secrets) {
    struct start_order *o = find(orders, job, attempt);
    if (!o)
        return;
    attempt_secrets_done(&o->secrets);
    o->secrets = *secrets;
    o->has_secrets = true;
    *secrets = (struct attempt_secrets){ 0 };
}

void start_orders_forget(struct start_orders *orders, int64_t job) {
    void *const *node = tfind(&job, &orders->by_job, array_by_int64);
    if (!node)
        return;
    struct start_order *o = *node;
    tdelete(&job, &orders->by_job, array_by_int64);
    free_order(o);
}

size_t start_order_ranks(const struct start_order *order, const char *executor, int32_t *ret) {
    size_t n = 0;
    for (int r = 0; r < order->start->world_size; r++)
        if (strcmp(order->executors[r], executor) == 0)
            ret[n++] = r;
    return n;
}
