/* ListJobs: pages of jobs, newest first.
 *
 * PostgreSQL selects by state, queue, name and time. Labels are in the spec, which PostgreSQL cannot read: rows are
 * read in batches and compared here, until the page is full or ROWS_MAX rows were read. The page then may have fewer
 * jobs than asked for, or none, and its token continues after the last row that was read. */
#include "service/rpc/job_list.h"

#include "base/limits.h"
#include "service/controller/controller.h"
#include "service/rpc/arena.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"
#include "service/rpc/page.h"
#include "service/store/job.h"

#include <string.h>
#include <trainyard/v1/job.pb-c.h>

enum { ROWS_MAX = 10000, SELECTORS_MAX = 16, US_PER_S = 1000000 };

static int64_t time_us(const Google__Protobuf__Timestamp *t) { return t ? t->seconds * US_PER_S + t->nanos / 1000 : 0; }

/* selector: "team=a", or "team" for any value. */
static bool has_label(const Trainyard__V1__JobSpec *spec, const char *selector) {
    const char *equals = strchr(selector, '=');
    const size_t n = equals ? (size_t)(equals - selector) : strlen(selector);
    for (size_t i = 0; spec && i < spec->n_labels; i++) {
        const Trainyard__V1__JobSpec__LabelsEntry *l = spec->labels[i];
        if (strlen(l->key) == n && memcmp(l->key, selector, n) == 0)
            return !equals || strcmp(l->value, equals + 1) == 0;
    }
    return false;
}

static bool is_selected(const struct store_job *row, const Trainyard__V1__ListJobsRequest *in) {
    if (in->n_labels == 0)
        return true;
    CLEANUP(arena_freep) struct arena *a = arena_new();
    const Trainyard__V1__JobSpec *spec = row->spec ? arena_spec(a, row->spec, row->spec_bytes) : NULL;
    for (size_t i = 0; i < in->n_labels; i++)
        if (!has_label(spec, in->labels[i]))
            return false;
    return true;
}

/* The filter as text, which a page token is bound to. */
static const char *filter_text(struct arena *a, const Trainyard__V1__ListJobsRequest *in) {
    const char *text = arena_printf(a, "%d %s\n%s\n%lld %lld", (int)in->state, in->queue, in->display_name,
                                    (long long)time_us(in->created_after), (long long)time_us(in->created_before));
    for (size_t i = 0; i < in->n_labels; i++)
        text = arena_printf(a, "%s\n%s", text, in->labels[i]);
    return text;
}

static status_t filter_read(const Trainyard__V1__ListJobsRequest *in, struct store_job_filter *ret, struct err *e) {
    if (in->n_labels > SELECTORS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "labels: %zu are more than %d", in->n_labels, SELECTORS_MAX);
    *ret = (struct store_job_filter){ .state = convert_job_state_filter(in->state),
                                      .queue = in->queue,
                                      .name = in->display_name,
                                      .created_after_us = time_us(in->created_after),
                                      .created_before_us = time_us(in->created_before),
                                      .with_spec = true };
    return page_size(in->page_size, &ret->limit, e);
}

/* Appends selected jobs to out until it has as many as the filter's limit. The jobs use the memory of m and a.
 * *ret_ended: there are no further rows. */
static status_t page_read(struct controller *c, struct store_memory *m, struct arena *a,
                          const Trainyard__V1__ListJobsRequest *in, struct store_job_filter *filter,
                          Trainyard__V1__ListJobsResponse *out, bool *ret_ended, struct err *e) {
    const size_t asked = (size_t)filter->limit;
    int rows_read = 0;
    *ret_ended = false;
    if (in->n_labels > 0)
        filter->limit = LIMIT_PAGE_SIZE;
    while (!*ret_ended && out->n_jobs < asked && rows_read < ROWS_MAX) {
        struct store_job *rows;
        size_t n, i = 0;
        TRY(store_job_list(controller_store(c), m, filter, &rows, &n, e));
        for (; i < n && out->n_jobs < asked; i++) {
            if (is_selected(&rows[i], in))
                out->jobs[out->n_jobs++] = convert_job(a, &rows[i]);
            filter->before = rows[i].id;
        }
        rows_read += (int)n;
        *ret_ended = n < (size_t)filter->limit && i == n;
    }
    return ST_OK;
}

status_t job_list(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListJobsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job_filter filter;
    TRY(filter_read(in, &filter, e));
    const char *bound = filter_text(a, in);
    TRY(page_token_read(in->page_token, bound, &filter.before, e));
    Trainyard__V1__ListJobsResponse out = TRAINYARD__V1__LIST_JOBS_RESPONSE__INIT;
    bool ended;
    out.jobs = arena_alloc(a, (size_t)filter.limit, sizeof *out.jobs);
    TRY(page_read(service, m, a, in, &filter, &out, &ended, e));
    char token[PAGE_TOKEN_BYTES];
    if (!ended) {
        page_token_write(filter.before, bound, token);
        out.next_page_token = token;
    }
    rpc_reply(call, &out.base);
    return ST_OK;
}
