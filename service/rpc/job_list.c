#include "service/rpc/job_list.h"

#include "api/codec/timestamp.h"
#include "base/limits.h"
#include "service/controller/controller.h"
#include "service/rpc/arena.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"
#include "service/rpc/page.h"
#include "service/store/job_list.h"

#include <string.h>
#include <trainyard/v1/job.pb-c.h>

/* *ret_us stays 0 without a time. */
static status_t time_read(const char *field, const Google__Protobuf__Timestamp *t, int64_t *ret_us, struct err *e) {
    status_t st = t ? timestamp_to_us(t, ret_us, e) : ST_OK;
    return st == ST_OK ? ST_OK : err_prefix(e, st, "%s: ", field);
}

/* The filter as text, which a page token is bound to. */
static const char *filter_text(struct arena *a, const Trainyard__V1__ListJobsRequest *in,
                               const struct store_job_filter *filter) {
    const char *text = arena_printf(a, "%d %s\n%s\n%s\n%s\n%s\n%lld %lld %d %d", (int)in->state, in->queue,
                                    in->display_name, in->search, in->user, filter->project,
                                    (long long)filter->created_after_us, (long long)filter->created_before_us,
                                    (int)in->order, (int)in->reverse);
    for (size_t i = 0; i < in->n_labels; i++)
        text = arena_printf(a, "%s\n%s", text, in->labels[i]);
    return text;
}

static status_t order_read(Trainyard__V1__ListJobsRequest__Order order, enum store_job_order *ret, struct err *e) {
    switch (order) {
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__ORDER_UNSPECIFIED:
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__CREATED: *ret = STORE_JOBS_BY_ID; return ST_OK;
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__STARTED: *ret = STORE_JOBS_BY_START; return ST_OK;
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__ENDED: *ret = STORE_JOBS_BY_END; return ST_OK;
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__NAME: *ret = STORE_JOBS_BY_NAME; return ST_OK;
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__STATE: *ret = STORE_JOBS_BY_STATE; return ST_OK;
    case TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__USER: *ret = STORE_JOBS_BY_USER; return ST_OK;
    default: return err_set(e, ST_INVALID_ARGUMENT, "order: %d is not an order", (int)order);
    }
}

/* "team=a", or "team" for any value. */
static const struct store_job_label *labels_read(struct arena *a, char *const *selectors, size_t n) {
    struct store_job_label *labels = arena_alloc(a, n, sizeof *labels);
    for (size_t i = 0; i < n; i++) {
        const char *equals = strchr(selectors[i], '=');
        const int key = equals ? (int)(equals - selectors[i]) : (int)strlen(selectors[i]);
        labels[i].key = arena_printf(a, "%.*s", key, selectors[i]);
        labels[i].value = equals ? equals + 1 : NULL;
    }
    return labels;
}

static status_t filter_read(struct arena *a, const Trainyard__V1__ListJobsRequest *in, struct store_job_filter *ret,
                            struct err *e) {
    if (in->n_labels > STORE_JOB_FILTER_LABELS)
        return err_set(e, ST_INVALID_ARGUMENT, "labels: %zu are more than %d", in->n_labels, STORE_JOB_FILTER_LABELS);
    *ret = (struct store_job_filter){ .state = convert_job_state_filter(in->state),
                                      .queue = in->queue,
                                      .name = in->display_name,
                                      .search = in->search,
                                      .user = in->user,
                                      .labels = labels_read(a, in->labels, in->n_labels),
                                      .n_labels = in->n_labels,
                                      .reverse = in->reverse,
                                      .with_spec = true };
    TRY(time_read("created_after", in->created_after, &ret->created_after_us, e));
    TRY(time_read("created_before", in->created_before, &ret->created_before_us, e));
    TRY(order_read(in->order, &ret->order, e));
    return page_size(in->page_size, &ret->limit, e);
}

status_t job_list(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListJobsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job_filter filter = { .limit = 0 };
    struct store_job *rows;
    int64_t place[2] = { 0, 0 };
    size_t n;
    TRY(filter_read(a, in, &filter, e));
    if (*rpc_scope(call) && *in->project && strcmp(in->project, rpc_scope(call)) != 0)
        return err_set(e, ST_PERMISSION_DENIED, "project: the token '%s' is for the project '%s' only",
                       rpc_caller(call), rpc_scope(call));
    filter.project = *rpc_scope(call) ? rpc_scope(call) : in->project;
    const char *bound = filter_text(a, in, &filter);
    TRY(page_token_read_all(in->page_token, bound, place, 2, e));
    filter.after = (struct store_job_place){ place[0], place[1] };
    TRY(store_job_list(controller_store(service), m, &filter, &rows, &n, e));
    Trainyard__V1__ListJobsResponse out = TRAINYARD__V1__LIST_JOBS_RESPONSE__INIT;
    out.jobs = arena_alloc(a, n, sizeof *out.jobs);
    out.n_jobs = n;
    for (size_t i = 0; i < out.n_jobs; i++)
        out.jobs[i] = convert_job(a, &rows[i]);
    char token[PAGE_TOKEN_BYTES];
    if (n == (size_t)filter.limit) {
        const struct store_job_place last = store_job_place(&rows[n - 1], filter.order);
        page_token_write_all((int64_t[]){ last.id, last.number }, 2, bound, token);
        out.next_page_token = token;
    }
    rpc_reply(call, &out.base);
    return ST_OK;
}
