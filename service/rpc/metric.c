#include "service/store/metric.h"
#include "service/rpc/arena.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"

#include <trainyard/v1/metric.pb-c.h>

#define DEFAULT_POINTS 1000

static void convert_series(struct arena *a, const struct store_series *row, Trainyard__V1__MetricSeries **ret) {
    Trainyard__V1__MetricSeries *s = *ret = arena_alloc(a, 1, sizeof *s);
    trainyard__v1__metric_series__init(s);
    s->name = (char *)row->name;
    s->rank = row->rank;
    s->points = row->points;
    s->last_step = row->last_step;
    s->last_value = row->last_value;
    s->n_step = s->n_mean = s->n_min = s->n_max = row->n;
    s->step = (int64_t *)row->step;
    s->mean = (double *)row->mean;
    s->min = (double *)row->min;
    s->max = (double *)row->max;
}

static status_t query_metrics(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__QueryMetricsRequest *in = (const void *)request;
    bool one_rank = in->_rank_case == TRAINYARD__V1__QUERY_METRICS_REQUEST___RANK_RANK;
    struct store_metric_query query = {
        .names = (const char *const *)in->names,
        .n_names = in->n_names,
        .after_step = in->after_step,
        .max_points = in->max_points ? in->max_points : DEFAULT_POINTS,
        .rank = one_rank ? in->rank : -1,
    };
    TRY(name_job(in->job, &query.job, e));
    if (one_rank && in->rank < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "rank: %d is negative", (int)in->rank);
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_series *rows;
    size_t n;
    status_t st = store_metric_query(controller_store(service), m, &query, &rows, &n, e);
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, "JOB_NOT_FOUND");
    TRY(st);
    Trainyard__V1__QueryMetricsResponse out = TRAINYARD__V1__QUERY_METRICS_RESPONSE__INIT;
    out.n_series = n;
    out.series = arena_alloc(a, n, sizeof *out.series);
    for (size_t i = 0; i < n; i++)
        convert_series(a, &rows[i], &out.series[i]);
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "QueryMetrics", .kind = RPC_UNARY, .unary = query_metrics },
};

const struct rpc_service rpc_metric_service = { &trainyard__v1__metric_service__descriptor, methods,
                                                sizeof methods / sizeof *methods };
