#include "api/codec/timestamp.h"
#include "api/spec/spec.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/planner.h"
#include "service/controller/row_state.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"
#include "service/rpc/explain.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/profile.h"
#include "service/rpc/services.h"
#include "service/rpc/watch.h"
#include "service/store/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A UUID has 36; clients may use ids of their own. */
#define REQUEST_ID_BYTES CONTROLLER_REQUEST_BYTES

/* Every problem that fits into one sentence. */
static status_t say_problems(struct rpc_call *call, const struct spec_problems *problems, status_t st, struct err *e) {
    if (st != ST_INVALID_ARGUMENT || problems->n == 0)
        return st;
    rpc_set_reason(call, "SPEC_INVALID");
    size_t used = 0, told = 0;
    for (; told < problems->n; told++) {
        size_t n = strlen(problems->lines[told]);
        if (told > 0 && used + n + 40 > sizeof e->msg)
            break;
        used += (size_t)snprintf(e->msg + used, sizeof e->msg - used, "%s%s", told ? "; " : "", problems->lines[told]);
    }
    if (told < problems->n)
        snprintf(e->msg + used, sizeof e->msg - used, " (and %zu more)", problems->n - told);
    return st;
}

static status_t check_request_id(const char *id, struct err *e) {
    size_t n = strlen(id);
    if (n > REQUEST_ID_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "request_id: %zu bytes are more than %d", n, REQUEST_ID_BYTES);
    if (strncmp(id, "controller-", 11) == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "request_id: ids that begin with 'controller-' are the service's own");
    return ST_OK;
}

/* Without an id of the client's a call is its own: repeating it makes another job. */
static status_t request_id(const char *given, char ret[REQUEST_ID_BYTES + 1], struct err *e) {
    TRY(check_request_id(given, e));
    if (given[0]) {
        memcpy(ret, given, strlen(given) + 1);
        return ST_OK;
    }
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "random bytes for a request id");
    snprintf(ret, REQUEST_ID_BYTES + 1, "unnamed-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return ST_OK;
}

static status_t reply_job(struct controller *c, struct rpc_call *call, int64_t id, bool with_attempts, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job row;
    status_t st = store_job_get(controller_store(c), m, id, &row, e);
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, "JOB_NOT_FOUND");
    TRY(st);
    Trainyard__V1__Job *job = convert_job(a, &row);
    if (job && with_attempts) {
        struct store_attempt *attempts;
        size_t n;
        TRY(store_attempt_list(controller_store(c), m, id, &attempts, &n, e));
        convert_attempts(a, id, attempts, n, job);
        struct store_origin origin;
        int64_t step;
        TRY(store_job_origin(controller_store(c), id, &origin, &step, e));
        convert_origin(a, &origin, step, job);
    }
    TRY(arena_status(a, e));
    rpc_reply(call, &job->base);
    return ST_OK;
}

/* A new job is as its row says without reading it again: this is the path that is called most. */
static void reply_created(struct rpc_call *call, int64_t id, int64_t time_us, Trainyard__V1__JobSpec *spec) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "jobs/%lld", (long long)id);
    Google__Protobuf__Timestamp created = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    timestamp_of_us(time_us, &created);
    Trainyard__V1__Job job = TRAINYARD__V1__JOB__INIT;
    job.name = name;
    job.display_name = spec->name;
    job.state = TRAINYARD__V1__JOB__STATE__QUEUED;
    job.spec = spec;
    job.create_time = &created;
    job.last_event = 1;
    job.queue = spec->queue;
    job.priority = spec->priority;
    rpc_reply(call, &job.base);
}

/* ---- what a job begins with ---- */

/* A fork's steps are counted on from the checkpoint's. */
static status_t origin_of_fork(struct controller *c, const char *fork, const Trainyard__V1__JobSpec *spec,
                               struct store_origin *ret, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint row;
    int64_t job, id, step;
    status_t st = name_fork(fork, &job, &id, &step, e);
    if (st == ST_OK)
        st = id          ? store_checkpoint_get(controller_store(c), m, job, id, &row, e)
             : step >= 0 ? store_checkpoint_at(controller_store(c), m, job, step, &row, e)
                         : store_checkpoint_newest(controller_store(c), m, job, &row, e);
    if (st != ST_OK)
        return err_prefix(e, st, "fork: ");
    if (spec->train->steps <= row.step)
        return err_set(e, ST_INVALID_ARGUMENT, "train.steps: %lld is not above the step %lld that the fork begins at",
                       (long long)spec->train->steps, (long long)row.step);
    *ret = (struct store_origin){ .job = job, .checkpoint = row.id };
    return ST_OK;
}

static status_t origin_of(struct controller *c, const char *fork, const Trainyard__V1__JobSpec *spec,
                          struct store_origin *ret, struct err *e) {
    *ret = (struct store_origin){ .weights_only = true };
    if (*fork)
        return origin_of_fork(c, fork, spec, ret, e);
    if (!spec_checkpoint_name(spec->train->init_from, &ret->job, &ret->checkpoint))
        return ST_OK;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint row;
    status_t st = store_checkpoint_get(controller_store(c), m, ret->job, ret->checkpoint, &row, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "train.init_from: ");
}

/* An answer that was lost when the job was first asked for may have left a row of which the loop was not told. */
static status_t reply_again(struct controller *c, struct rpc_call *call, int64_t job, struct err *e) {
    controller_submitted_perhaps(c);
    return reply_job(c, call, job, true, e);
}

static status_t create(struct controller *c, struct rpc_call *call, Trainyard__V1__JobSpec *spec, const char *id,
                       const char *fork, struct err *e) {
    int64_t epoch, job, time_us = 0;
    TRY(controller_leads(c, &epoch, e));
    /* A request that is made again may find its origin gone, or the newest checkpoint a later one. */
    if (*fork || *spec->train->init_from) {
        status_t st = store_job_requested(controller_store(c), id, &job, e);
        if (st != ST_NOT_FOUND)
            return st == ST_OK ? reply_again(c, call, job, e) : st;
    }
    size_t n = trainyard__v1__job_spec__get_packed_size(spec);
    CLEANUP(freep) uint8_t *packed = malloc(n + 1);
    if (!packed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a spec of %zu bytes", n);
    trainyard__v1__job_spec__pack(spec, packed);
    struct store_job_new row = { .request_id = id,
                                 .name = spec->name,
                                 .queue = spec->queue,
                                 .priority = spec->priority,
                                 .world_size = spec_world_size(spec),
                                 .accelerator = spec->resources->accelerator,
                                 .max_restarts = spec->retry->max_restarts,
                                 .steps = spec->train->steps,
                                 .keep_last = spec->checkpoint->keep_last,
                                 .keep_best = spec->checkpoint->keep_best,
                                 .spec = packed,
                                 .spec_bytes = n };
    TRY(origin_of(c, fork, spec, &row.origin, e));
    bool existed;
    status_t st = store_job_create(controller_store(c), epoch, &row, &job, &existed, &time_us, e);
    st = controller_judge(c, epoch, st, e);
    if (st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED) /* a COMMIT whose answer is lost now, the same */
        controller_submitted_perhaps(c);
    TRY(st);
    if (existed)
        return reply_again(c, call, job, e);
    const struct store_job stored = { .id = job,
                                      .state = STORE_JOB_QUEUED,
                                      .priority = row.priority,
                                      .world_size = row.world_size,
                                      .accelerator = row.accelerator,
                                      .max_restarts = row.max_restarts };
    const struct scheduler_job_row submitted = scheduler_row_of(&stored);
    controller_submitted(c, &submitted);
    if (row.origin.checkpoint)
        return reply_job(c, call, job, true, e);
    reply_created(call, job, time_us, spec);
    return ST_OK;
}

static status_t create_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__CreateJobRequest *in = (const void *)request;
    char id[REQUEST_ID_BYTES + 1];
    if (!in->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "spec: it is missing");
    TRY(request_id(in->request_id, id, e));
    struct spec_problems problems = { 0 };
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    status_t st = say_problems(call, &problems, spec_resolve(in->spec, &spec, &problems, e), e);
    spec_problems_done(&problems);
    TRY(st);
    return create(service, call, spec, id, in->fork, e);
}

static status_t get_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    int64_t job;
    TRY(name_job(((const Trainyard__V1__GetJobRequest *)request)->name, &job, e));
    return reply_job(service, call, job, true, e);
}

static status_t list_jobs(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListJobsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job_filter filter = { .state = convert_job_state_filter(in->state),
                                       .queue = in->queue,
                                       .with_spec = true };
    const char *bound = arena_printf(a, "%d %s", (int)in->state, in->queue);
    TRY(arena_status(a, e));
    TRY(page_size(in->page_size, &filter.limit, e));
    TRY(page_token_read(in->page_token, bound, &filter.before, e));
    struct store_job *rows;
    size_t n;
    TRY(store_job_list(controller_store(service), m, &filter, &rows, &n, e));
    Trainyard__V1__ListJobsResponse out = TRAINYARD__V1__LIST_JOBS_RESPONSE__INIT;
    out.jobs = arena_alloc(a, n, sizeof *out.jobs);
    out.n_jobs = out.jobs ? n : 0;
    for (size_t i = 0; i < out.n_jobs; i++)
        out.jobs[i] = convert_job(a, &rows[i]);
    char token[PAGE_TOKEN_BYTES];
    if (n == (size_t)filter.limit) {
        page_token_write(rows[n - 1].id, bound, token);
        out.next_page_token = token;
    }
    TRY(arena_status(a, e));
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t find_row(struct controller *c, struct rpc_call *call, struct store_memory *m, int64_t job,
                         struct store_job *ret, struct err *e) {
    status_t st = store_job_get(controller_store(c), m, job, ret, e);
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, "JOB_NOT_FOUND");
    return st;
}

typedef status_t ask_loop_fn(struct controller *, int64_t job, const char *request_id, deadline_ms_t,
                             const char **ret_reason, struct err *);

/* ended: what is said of a job that has ended; NULL = what the loop says. */
static status_t move_job(struct controller *c, struct rpc_call *call, const char *name, const char *request_id,
                         ask_loop_fn *ask, const char *ended, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    int64_t job, epoch;
    TRY(name_job(name, &job, e));
    TRY(check_request_id(request_id, e));
    TRY(controller_leads(c, &epoch, e));
    TRY(find_row(c, call, m, job, &row, e));
    const char *reason;
    status_t st = ask(c, job, request_id, rpc_deadline(call, UNARY_DEADLINE_MS), &reason, e);
    if (reason)
        rpc_set_reason(call, reason);
    if (st == ST_FAILED_PRECONDITION && ended && row_state_final(row.state))
        return err_set(e, st, "job %lld is %s: %s", (long long)job, store_job_state_name(row.state), ended);
    TRY(st);
    return reply_job(c, call, job, false, e);
}

static status_t cancel_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__CancelJobRequest *in = (const void *)request;
    return move_job(service, call, in->name, in->request_id, controller_cancel, "it cannot be cancelled", e);
}

static status_t pause_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__PauseJobRequest *in = (const void *)request;
    return move_job(service, call, in->name, in->request_id, controller_pause, "it cannot be paused", e);
}

static status_t resume_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ResumeJobRequest *in = (const void *)request;
    return move_job(service, call, in->name, in->request_id, controller_resume, "only a PAUSED job is resumed", e);
}

static status_t retry_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__RetryJobRequest *in = (const void *)request;
    return move_job(service, call, in->name, in->request_id, controller_retry, NULL, e);
}

static status_t delete_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    int64_t job;
    TRY(name_job(((const Trainyard__V1__DeleteJobRequest *)request)->name, &job, e));
    status_t st = controller_delete(service, job, e);
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, "JOB_NOT_FOUND");
    TRY(st);
    Trainyard__V1__DeleteJobResponse out = TRAINYARD__V1__DELETE_JOB_RESPONSE__INIT;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t list_events(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListEventsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    int64_t job;
    int limit;
    TRY(name_job(in->name, &job, e));
    TRY(page_size(in->page_size, &limit, e));
    struct store_event *rows;
    size_t n;
    status_t st = store_event_list(controller_store(service), m, job, in->after_event, limit, &rows, &n, e);
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, "JOB_NOT_FOUND");
    TRY(st);
    Trainyard__V1__ListEventsResponse out = TRAINYARD__V1__LIST_EVENTS_RESPONSE__INIT;
    out.events = arena_alloc(a, n, sizeof *out.events);
    out.n_events = out.events ? n : 0;
    for (size_t i = 0; i < out.n_events; i++)
        out.events[i] = convert_event(a, &rows[i]);
    TRY(arena_status(a, e));
    rpc_reply(call, &out.base);
    return ST_OK;
}

/* What the spec would take. A spec that cannot be planned is a wrong one, unless it only names data that cannot be seen
 * here: whether that exists is the executors' to say. */
static void add_plan(struct controller *c, const struct rpc_call *call, struct arena *a,
                     const Trainyard__V1__JobSpec *spec, Trainyard__V1__ValidateJobResponse *out) {
    struct err e = { "" };
    int64_t left = rpc_time_left_ms(call);
    status_t st = planner_run(controller_planner(c), spec, left - left / 4, &out->plan, &e);
    if (st == ST_OK)
        return;
    if (st != ST_INVALID_ARGUMENT || strncmp(e.msg, "data.", 5) == 0) {
        out->plan_reason = arena_printf(a, "%s", e.msg);
        return;
    }
    out->resolved = NULL;
    out->problems = arena_alloc(a, 1, sizeof *out->problems);
    out->n_problems = out->problems ? 1 : 0;
    if (out->problems)
        out->problems[0] = arena_printf(a, "%s", e.msg);
}

static status_t validate_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ValidateJobRequest *in = (const void *)request;
    if (!in->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "spec: it is missing");
    CLEANUP(arena_freep) struct arena *a = arena_new();
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct spec_problems problems = { 0 };
    Trainyard__V1__ValidateJobResponse out = TRAINYARD__V1__VALIDATE_JOB_RESPONSE__INIT;
    status_t st = spec_resolve(in->spec, &spec, &problems, e);
    if (st == ST_OK || st == ST_INVALID_ARGUMENT) {
        out.resolved = spec;
        out.problems = arena_alloc(a, problems.n, sizeof *out.problems);
        out.n_problems = out.problems ? problems.n : 0;
        for (size_t i = 0; i < out.n_problems; i++)
            out.problems[i] = problems.lines[i];
        if (problems.n == 0)
            add_plan(service, call, a, spec, &out);
        st = arena_status(a, e);
        if (st == ST_OK)
            rpc_reply(call, &out.base);
        if (out.plan)
            trainyard__v1__plan__free_unpacked(out.plan, NULL);
    }
    spec_problems_done(&problems);
    return st;
}

static const struct rpc_method methods[] = {
    { .name = "CreateJob", .kind = RPC_UNARY, .unary = create_job },
    { .name = "GetJob", .kind = RPC_UNARY, .unary = get_job },
    { .name = "ListJobs", .kind = RPC_UNARY, .unary = list_jobs },
    { .name = "CancelJob", .kind = RPC_UNARY, .unary = cancel_job },
    { .name = "PauseJob", .kind = RPC_UNARY, .unary = pause_job },
    { .name = "ResumeJob", .kind = RPC_UNARY, .unary = resume_job },
    { .name = "RetryJob", .kind = RPC_UNARY, .unary = retry_job },
    { .name = "DeleteJob", .kind = RPC_UNARY, .unary = delete_job },
    { .name = "WatchJob",
      .kind = RPC_SERVER_STREAM,
      .events = { .work = watch_work, .writable = rpc_wake, .done = watch_done } },
    { .name = "ExplainJob", .kind = RPC_UNARY, .unary = explain_job },
    { .name = "GetProfile",
      .kind = RPC_SERVER_STREAM,
      .events = { .work = profile_work, .writable = rpc_wake, .done = profile_done } },
    { .name = "ListEvents", .kind = RPC_UNARY, .unary = list_events },
    { .name = "ValidateJob", .kind = RPC_UNARY, .unary = validate_job },
};

const struct rpc_service rpc_job_service = { &trainyard__v1__job_service__descriptor, methods,
                                             sizeof methods / sizeof *methods };
