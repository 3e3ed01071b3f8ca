/* MetricService: the metrics of a job, as curves or as single points.
 *
 * QueryMetrics is for plots. It returns at most max_points entries per series, each with the mean, minimum and maximum
 * of the points that it covers, and the last value of the series. The store downsamples, so the reply stays small for
 * any length of job.
 *
 * ListPoints returns every point with its time, page by page, for export. A page ends at any point, not only at the end
 * of a series. The page token therefore holds the place of the next point as six numbers, and a mark of the filter, so
 * that it cannot be used for another request. */
#include "service/store/metric.h"
#include "service/rpc/arena.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"
#include "service/store/job.h"
#include "service/store/metric_points.h"

#include <stdio.h>
#include <string.h>
#include <trainyard/v1/metric.pb-c.h>

#define DEFAULT_POINTS 1000

static void convert_series(struct arena *a, const struct store_series *row, Trainyard__V1__MetricSeries **ret) {
    Trainyard__V1__MetricSeries *s = *ret = arena_message(a, &trainyard__v1__metric_series__descriptor);
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
    s->n_time_us = row->time_us ? row->n : 0;
    s->time_us = (int64_t *)row->time_us;
}

static status_t refuse_negative(bool one_rank, int32_t rank, struct err *e) {
    return one_rank && rank < 0 ? err_set(e, ST_INVALID_ARGUMENT, "rank: %d is negative", (int)rank) : ST_OK;
}

static status_t query_metrics(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__QueryMetricsRequest *in = (const void *)request;
    bool one_rank = in->_rank_case == TRAINYARD__V1__QUERY_METRICS_REQUEST___RANK_RANK;
    struct store_metric_query query = {
        .names = (const char *const *)in->names,
        .n_names = in->n_names,
        .after_step = in->after_step > 0 ? in->after_step : -1, /* a program may report its step 0 */
        .until_step = in->until_step,
        .max_points = in->max_points ? in->max_points : DEFAULT_POINTS,
        .rank = one_rank ? in->rank : -1,
        .with_time = in->with_time,
    };
    TRY(name_job(in->job, &query.job, e));
    TRY(refuse_negative(one_rank, in->rank, e));
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_series *rows;
    struct store_job job;
    size_t n;
    status_t st = store_metric_query(controller_store(service), m, &query, &rows, &n, e);
    if (st == ST_OK)
        st = store_job_get(controller_store(service), m, query.job, &job, e);
    TRY(rpc_found(call, st, "JOB_NOT_FOUND"));
    Trainyard__V1__QueryMetricsResponse out = TRAINYARD__V1__QUERY_METRICS_RESPONSE__INIT;
    out.series = arena_alloc(a, n, sizeof *out.series);
    out.n_series = n;
    out.records_lost = job.records_lost;
    for (size_t i = 0; i < out.n_series; i++)
        convert_series(a, &rows[i], &out.series[i]);
    rpc_reply(call, &out.base);
    return ST_OK;
}

/* ---- single points ---- */

static void convert_points(struct arena *a, const struct store_points *row, Trainyard__V1__MetricPoints **ret) {
    Trainyard__V1__MetricPoints *p = *ret = arena_message(a, &trainyard__v1__metric_points__descriptor);
    p->name = (char *)row->name;
    p->rank = row->rank;
    p->attempt = row->attempt;
    p->n_step = p->n_value = p->n_time_us = row->n;
    p->step = (int64_t *)row->step;
    p->value = (double *)row->value;
    p->time_us = (int64_t *)row->time_us;
}

/* The fields of the request that must be equal for all pages, as text. */
static const char *filter_of(struct arena *a, const Trainyard__V1__ListPointsRequest *in, int rank) {
    size_t capacity = strlen(in->job) + 16, len;
    for (size_t i = 0; i < in->n_names; i++)
        capacity += strlen(in->names[i]) + 1;
    char *text = arena_alloc(a, capacity, 1);
    len = (size_t)snprintf(text, capacity, "%s %d", in->job, rank);
    for (size_t i = 0; i < in->n_names; i++)
        len += (size_t)snprintf(text + len, capacity - len, "\n%s", in->names[i]);
    return text;
}

/* The numbers of a place in a page token. */
enum { PLACE_NUMBERS = 6 };

static void place_write(const struct store_points_place *at, const char *filter, char ret[PAGE_TOKEN_BYTES]) {
    const int64_t numbers[PLACE_NUMBERS] = { at->attempts, at->name, at->rank, at->attempt, at->chunk, at->taken };
    page_token_write_all(numbers, PLACE_NUMBERS, filter, ret);
}

static status_t place_read(const char *token, const char *filter, struct store_points_place *ret, struct err *e) {
    int64_t numbers[PLACE_NUMBERS] = { 0 };
    TRY(page_token_read_all(token, filter, numbers, PLACE_NUMBERS, e));
    for (int i = 0; i < PLACE_NUMBERS; i++)
        if (numbers[i] > INT32_MAX)
            return err_set(e, ST_INVALID_ARGUMENT, "page_token: '%.40s' is not a token of this service", token);
    *ret = (struct store_points_place){ (int)numbers[0], (int)numbers[1], (int)numbers[2],
                                        (int)numbers[3], (int)numbers[4], (int)numbers[5] };
    return ST_OK;
}

static status_t read_points_request(const Trainyard__V1__ListPointsRequest *in, const char *filter,
                                    struct store_points_query *ret, struct err *e) {
    TRY(name_job(in->job, &ret->job, e));
    if (in->page_size < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "page_size: %d is negative", (int)in->page_size);
    if (in->page_size > 0 && in->page_size < STORE_MAX_POINTS)
        ret->max_points = in->page_size;
    return place_read(in->page_token, filter, &ret->from, e);
}

static status_t list_points(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListPointsRequest *in = (const void *)request;
    bool one_rank = in->_rank_case == TRAINYARD__V1__LIST_POINTS_REQUEST___RANK_RANK;
    struct store_points_query query = { .names = (const char *const *)in->names,
                                        .n_names = in->n_names,
                                        .rank = one_rank ? in->rank : -1,
                                        .max_points = STORE_MAX_POINTS };
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const char *filter = filter_of(a, in, query.rank);
    struct store_points *rows;
    size_t n;
    bool more;
    TRY(refuse_negative(one_rank, in->rank, e));
    TRY(read_points_request(in, filter, &query, e));
    TRY(rpc_found(call, store_points_list(controller_store(service), m, &query, &rows, &n, &more, e), "JOB_NOT_FOUND"));
    char token[PAGE_TOKEN_BYTES] = "";
    if (more)
        place_write(&query.from, filter, token);
    Trainyard__V1__ListPointsResponse out = TRAINYARD__V1__LIST_POINTS_RESPONSE__INIT;
    out.next_page_token = token;
    out.runs = arena_alloc(a, n, sizeof *out.runs);
    out.n_runs = n;
    for (size_t i = 0; i < out.n_runs; i++)
        convert_points(a, &rows[i], &out.runs[i]);
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "QueryMetrics", .kind = RPC_UNARY, .unary = query_metrics },
    { .name = "ListPoints", .kind = RPC_UNARY, .unary = list_points },
};

const struct rpc_service rpc_metric_service = { &trainyard__v1__metric_service__descriptor, methods,
                                                sizeof methods / sizeof *methods };
