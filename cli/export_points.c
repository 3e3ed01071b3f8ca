#include "cli/export.h"

#include "cli/client.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct tally {
    int64_t points, series, not_finite;
    char name[80]; /* of the last run of points */
    int rank;
    export_take_fn *take;
    void *ctx;
};

static void count_run(struct tally *t, const Trainyard__V1__MetricPoints *run) {
    if (t->points == 0 || strncmp(t->name, run->name, sizeof t->name - 1) != 0 || t->rank != run->rank)
        t->series++;
    snprintf(t->name, sizeof t->name, "%s", run->name);
    t->rank = run->rank;
    t->points += (int64_t)run->n_value;
    for (size_t i = 0; i < run->n_value; i++)
        t->not_finite += !isfinite(run->value[i]);
}

static void report(const char *job, const struct tally *t) {
    fprintf(stderr, "%s: %" PRId64 " points of %" PRId64 " series", job, t->points, t->series);
    if (t->not_finite)
        fprintf(stderr, ", %" PRId64 " of them NaN or infinite", t->not_finite);
    fputc('\n', stderr);
}

status_t points_read(struct cli *c, const char *job, export_take_fn *take, void *ctx, struct err *e) {
    Trainyard__V1__ListPointsRequest request = TRAINYARD__V1__LIST_POINTS_REQUEST__INIT;
    ProtobufCMessage *page = NULL;
    status_t st = ST_OK;
    request.job = (char *)job;
    do {
        ProtobufCMessage *next = NULL;
        st = client_call(c, &trainyard__v1__metric_service__descriptor, "ListPoints", &request.base, &next, e);
        if (page)
            protobuf_c_message_free_unpacked(page, NULL); /* the request's token was part of it */
        page = next;
        const Trainyard__V1__ListPointsResponse *points = (const Trainyard__V1__ListPointsResponse *)page;
        for (size_t i = 0; st == ST_OK && i < points->n_runs; i++)
            st = take(ctx, points->runs[i], e);
        if (st == ST_OK)
            request.page_token = points->next_page_token;
    } while (st == ST_OK && *request.page_token);
    if (page)
        protobuf_c_message_free_unpacked(page, NULL);
    return st;
}

static status_t count_and_take(void *ctx, const Trainyard__V1__MetricPoints *run, struct err *e) {
    struct tally *t = ctx;
    count_run(t, run);
    return t->take(t->ctx, run, e);
}

status_t export_points(struct cli *c, const char *job, export_take_fn *take, void *ctx, struct err *e) {
    struct tally tally = { .take = take, .ctx = ctx };
    TRY(points_read(c, job, count_and_take, &tally, e));
    report(job, &tally);
    return ST_OK;
}
