#include "service/rpc/rank_seconds.h"

#include "service/controller/controller.h"
#include "service/rpc/arena.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/store/job.h"
#include "service/store/rank_seconds.h"

#include <trainyard/v1/job.pb-c.h>

static Trainyard__V1__RankSeconds *convert(struct arena *a, const struct store_rank_seconds *s) {
    Trainyard__V1__RankSeconds *ret = arena_message(a, &trainyard__v1__rank_seconds__descriptor);
    ret->start = s->start;
    ret->data = s->data;
    ret->compute = s->compute;
    ret->waiting = s->waiting;
    ret->checkpoint = s->checkpoint;
    ret->repeated = s->repeated;
    ret->idle = s->idle;
    return ret;
}

static void add(Trainyard__V1__RankSeconds *total, const struct store_rank_seconds *s) {
    total->start += s->start;
    total->data += s->data;
    total->compute += s->compute;
    total->waiting += s->waiting;
    total->checkpoint += s->checkpoint;
    total->repeated += s->repeated;
    total->idle += s->idle;
}

static void add_attempts(struct arena *a, const struct store_attempt_seconds *rows, size_t n,
                         Trainyard__V1__GetRankSecondsResponse *out) {
    out->total = convert(a, &(struct store_rank_seconds){ 0 });
    out->attempts = arena_alloc(a, n, sizeof *out->attempts);
    out->n_attempts = n;
    for (size_t i = 0; i < n; i++) {
        Trainyard__V1__AttemptSeconds *attempt = arena_message(a, &trainyard__v1__attempt_seconds__descriptor);
        attempt->attempt = rows[i].attempt;
        attempt->ranks = rows[i].ranks;
        attempt->wall_seconds = rows[i].wall;
        attempt->sum = convert(a, &rows[i].sum);
        out->attempts[i] = attempt;
        add(out->total, &rows[i].sum);
    }
}

static status_t add_ranks(struct controller *c, struct store_memory *m, struct arena *a, int64_t job, int attempt,
                          Trainyard__V1__GetRankSecondsResponse *out, struct err *e) {
    struct store_one_rank_seconds *rows;
    size_t n;
    TRY(store_rank_seconds(controller_store(c), m, job, attempt, &rows, &n, e));
    out->ranks = arena_alloc(a, n, sizeof *out->ranks);
    out->n_ranks = n;
    for (size_t i = 0; i < n; i++) {
        out->ranks[i] = arena_message(a, &trainyard__v1__one_rank_seconds__descriptor);
        out->ranks[i]->rank = rows[i].rank;
        out->ranks[i]->sum = convert(a, &rows[i].sum);
    }
    return ST_OK;
}

status_t rank_seconds_get(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__GetRankSecondsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_attempt_seconds *rows;
    struct store_job row;
    int64_t job;
    size_t n;
    TRY(name_job(in->name, &job, e));
    if (in->attempt < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "attempt: %d is negative", (int)in->attempt);
    TRY(rpc_found(call, store_job_get(controller_store(service), m, job, &row, e), "JOB_NOT_FOUND"));
    TRY(store_attempt_seconds(controller_store(service), m, job, &rows, &n, e));
    Trainyard__V1__GetRankSecondsResponse out = TRAINYARD__V1__GET_RANK_SECONDS_RESPONSE__INIT;
    add_attempts(a, rows, n, &out);
    if (in->attempt > row.attempt)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld has no attempt %d", (long long)job, (int)in->attempt);
    if (in->attempt > 0)
        TRY(add_ranks(service, m, a, job, in->attempt, &out, e));
    rpc_reply(call, &out.base);
    return ST_OK;
}
