/* JobService: unary methods for jobs, and the table with the streams of watch.c and profile.c.
 *
 * CreateJob must make one job per request id, even if the client repeats the request because it got no answer:
 *   1. The request id is read, or created, and a digest is made of the spec and the fork.
 *   2. submission_judge checks the request. If it passes, one transaction stores the job, or finds the job that has
 *      this request id and digest. The loop of the controller is then notified.
 *   3. If the check refuses the request, the request id is searched first: the world may have changed since the job was
 *      made (its origin deleted, its hosts gone), and a repeated request is still answered with that job.
 * If the result of a COMMIT is not known, the loop is asked to search for rows that it was not notified of.
 *
 * Cancel, pause, resume and retry are one function with different callbacks: the loop decides, and the handler waits
 * and replies with the row. ValidateJob makes the checks of CreateJob, reports all problems instead of the first ones,
 * and adds a plan. Lists are read page by page. */
#include "api/codec/timestamp.h"
#include "api/spec/digest.h"
#include "api/spec/problems.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "service/controller/job_create.h"
#include "service/controller/planner.h"
#include "service/controller/row_state.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/explain.h"
#include "service/rpc/job_list.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/profile.h"
#include "service/rpc/rank_seconds.h"
#include "service/rpc/refusal.h"
#include "service/rpc/request_id.h"
#include "service/rpc/services.h"
#include "service/rpc/submission.h"
#include "service/rpc/submitter.h"
#include "service/rpc/watch.h"
#include "service/store/imported_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* unchecked: the remarks of the checks of a job that was just made; NULL = none. */
static status_t reply_row(struct controller *c, struct rpc_call *call, int64_t id, bool with_attempts,
                          const struct spec_problems *unchecked, struct err *e) {
    char *lines[SPEC_PROBLEMS];
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job row;
    TRY(rpc_found(call, store_job_get(controller_store(c), m, id, &row, e), "JOB_NOT_FOUND"));
    if (*rpc_scope(call) && strcmp(row.project, rpc_scope(call)) != 0) /* found by a request id */
        return err_set(e, ST_ALREADY_EXISTS, "request_id: it was already used outside of the project '%s'",
                       rpc_scope(call));
    Trainyard__V1__Job *job = convert_job(a, &row);
    if (with_attempts) {
        struct store_attempt *attempts;
        size_t n;
        TRY(store_attempt_list(controller_store(c), m, id, &attempts, &n, e));
        convert_attempts(a, id, attempts, n, job);
        struct store_origin origin;
        int64_t step;
        TRY(store_job_origin(controller_store(c), id, &origin, &step, e));
        convert_origin(a, &origin, step, job);
    }
    job->n_unchecked = unchecked ? lines_of(unchecked, lines) : 0;
    job->unchecked = lines;
    rpc_reply(call, &job->base);
    return ST_OK;
}

static status_t reply_job(struct controller *c, struct rpc_call *call, int64_t id, bool with_attempts, struct err *e) {
    return reply_row(c, call, id, with_attempts, NULL, e);
}

/* Replies with a new job without reading its row, because this is the most frequent path. */
static void reply_created(struct rpc_call *call, int64_t id, int64_t time_us, const char *user,
                          const struct submission *s) {
    char name[NAME_BYTES], *lines[SPEC_PROBLEMS];
    Trainyard__V1__JobSpec *spec = s->spec;
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
    job.user = (char *)(uintptr_t)user;
    job.project = (char *)(uintptr_t)(*rpc_scope(call) ? rpc_scope(call) : STORE_PROJECT_DEFAULT);
    job.priority = spec->priority;
    job.n_unchecked = lines_of(&s->hosts.unchecked, lines);
    job.unchecked = lines;
    rpc_reply(call, &job.base);
}

/* Replies with the job of an earlier request. If that request failed after the COMMIT, the loop was not notified of the
 * row, so it searches for such rows now. */
static status_t reply_again(struct controller *c, struct rpc_call *call, int64_t job, struct err *e) {
    controller_submitted_perhaps(c);
    return reply_job(c, call, job, true, e);
}

/* A request of CreateJob. */
struct creation {
    const Trainyard__V1__CreateJobRequest *in;
    const char *user;
    char request_id[REQUEST_ID_BYTES];
    uint8_t digest[SHA256_BYTES]; /* of the fields that must be equal if the request id is used again */
};

static status_t read_creation(const struct rpc_call *call, const Trainyard__V1__CreateJobRequest *in,
                              struct creation *ret, struct err *e) {
    ret->in = in;
    if (!in->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "spec: it is missing");
    TRY(submitter_name(call, in->user, &ret->user, e));
    TRY(request_id_read(in->request_id, ret->request_id, e));
    if (!ret->request_id[0])
        TRY(request_id_make(ret->request_id, e));
    spec_digest(in->spec, in->fork, ret->digest);
    return ST_OK;
}

static status_t store_new(struct controller *c, struct rpc_call *call, const struct creation *x,
                          const struct submission *s, struct err *e) {
    const struct job_creation creation = {
        .request_id = x->request_id,
        .request_digest = x->digest,
        .user = x->user,
        .project = rpc_scope(call),
        .spec = s->spec,
        .origin = s->origin,
    };
    struct job_created created;
    TRY(controller_create(c, &creation, &created, e));
    if (created.existed)
        return reply_job(c, call, created.job, true, e);
    if (s->origin.checkpoint)
        return reply_row(c, call, created.job, true, &s->hosts.unchecked, e);
    reply_created(call, created.job, created.time_us, x->user, s);
    return ST_OK;
}

/* Replies with the job that an earlier request with this id has made, even if its origin is gone, its hosts are
 * detached, or a newer checkpoint exists by now. NOT_FOUND: no job was made. */
static status_t reply_if_known(struct controller *c, struct rpc_call *call, const struct creation *x, struct err *e) {
    int64_t job;
    TRY(store_job_requested(controller_store(c), x->request_id, x->digest, &job, e));
    return reply_again(c, call, job, e);
}

/* Creates the job, or replies with the existing one. The request id is searched before a refusal is returned. */
static status_t create_judged(struct controller *c, struct rpc_call *call, const struct creation *x,
                              struct submission *s, struct err *e) {
    struct err why = { "" };
    const struct submission_request asked = { .spec = x->in->spec,
                                              .fork = x->in->fork,
                                              .wait_for_hosts = x->in->wait_for_hosts,
                                              .skip_check = x->in->skip_check,
                                              .deadline = rpc_deadline(call, UNARY_DEADLINE_MS) };
    status_t st = submission_judge(c, &asked, s, &why);
    if (st == ST_OK && s->problems.n == 0)
        return store_new(c, call, x, s, e);
    if (*x->in->request_id) {
        status_t known = reply_if_known(c, call, x, e);
        if (known != ST_NOT_FOUND)
            return known;
    }
    *e = why;
    return st == ST_OK ? refuse_spec(call, &s->problems, e) : st;
}

static status_t create_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    struct creation x;
    struct submission s = { 0 };
    TRY(read_creation(call, (const Trainyard__V1__CreateJobRequest *)request, &x, e));
    status_t st = create_judged(service, call, &x, &s, e);
    submission_done(&s);
    return st;
}

static status_t get_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    int64_t job;
    TRY(name_job(((const Trainyard__V1__GetJobRequest *)request)->name, &job, e));
    return reply_job(service, call, job, true, e);
}

typedef status_t move_request_fn(struct controller *, int64_t job, const char *request_id, deadline_ms_t,
                                 const char **ret_reason, struct err *);

/* ended: the message for a job that has ended; NULL = the message of the loop. */
static status_t move_job(struct controller *c, struct rpc_call *call, const char *name, const char *given_id,
                         move_request_fn *send, const char *ended, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    int64_t job, epoch;
    char request_id[REQUEST_ID_BYTES];
    TRY(name_job(name, &job, e));
    TRY(request_id_read(given_id, request_id, e));
    TRY(controller_leads(c, &epoch, e));
    TRY(rpc_found(call, store_job_get(controller_store(c), m, job, &row, e), "JOB_NOT_FOUND"));
    const char *reason;
    status_t st = send(c, job, request_id, rpc_deadline(call, UNARY_DEADLINE_MS), &reason, e);
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

static status_t refuse_imported(struct controller *c, const char *name, struct err *e) {
    int64_t job;
    bool imported;
    TRY(name_job(name, &job, e));
    TRY(store_job_imported(controller_store(c), job, &imported, e));
    return imported
               ? err_set(e, ST_FAILED_PRECONDITION,
                         "jobs/%lld cannot be retried: it was imported, and its program is not known", (long long)job)
               : ST_OK;
}

static status_t retry_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__RetryJobRequest *in = (const void *)request;
    TRY(refuse_imported(service, in->name, e));
    return move_job(service, call, in->name, in->request_id, controller_retry, NULL, e);
}

static status_t delete_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    int64_t job;
    TRY(name_job(((const Trainyard__V1__DeleteJobRequest *)request)->name, &job, e));
    TRY(rpc_found(call, controller_delete(service, job, e), "JOB_NOT_FOUND"));
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
    TRY(rpc_found(call, store_event_list(controller_store(service), m, job, in->after_event, limit, &rows, &n, e),
                  "JOB_NOT_FOUND"));
    Trainyard__V1__ListEventsResponse out = TRAINYARD__V1__LIST_EVENTS_RESPONSE__INIT;
    out.events = arena_alloc(a, n, sizeof *out.events);
    out.n_events = n;
    for (size_t i = 0; i < out.n_events; i++)
        out.events[i] = convert_event(a, &rows[i]);
    rpc_reply(call, &out.base);
    return ST_OK;
}

/* Plans the job on this machine, because no host can be asked. The plan sees only data below the roots that the
 * controller may read. A spec that cannot be planned is wrong, except if the problem is data that cannot be read
 * here. */
static void plan_here(struct controller *c, const struct rpc_call *call, struct arena *a, struct submission *s,
                      Trainyard__V1__ValidateJobResponse *out) {
    struct err e = { "" };
    int64_t left = rpc_time_left_ms(call);
    status_t st = planner_run(controller_planner(c), s->spec, left - left / 4, &s->hosts.plan, &e);
    if (st == ST_OK)
        return;
    if (st != ST_INVALID_ARGUMENT || strncmp(e.msg, "data.", 5) == 0)
        out->plan_reason = arena_printf(a, "%s", e.msg);
    else
        problem_add(&s->problems, "%s", e.msg);
}

static void reply_judged(struct controller *c, struct rpc_call *call, const Trainyard__V1__ValidateJobRequest *in,
                         struct submission *s) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    char *problems[SPEC_PROBLEMS], *unchecked[SPEC_PROBLEMS];
    Trainyard__V1__ValidateJobResponse out = TRAINYARD__V1__VALIDATE_JOB_RESPONSE__INIT;
    if (s->spec && spec_is_program(s->spec))
        out.plan_reason = "only a model has a plan";
    else if (s->hosts.busy)
        out.plan_reason = HOST_CHECK_BUSY;
    else if (!in->skip_check && s->problems.n == 0 && s->hosts.asked == 0)
        plan_here(c, call, a, s, &out);
    out.n_problems = lines_of(&s->problems, problems);
    out.problems = problems;
    out.n_unchecked = lines_of(&s->hosts.unchecked, unchecked);
    out.unchecked = unchecked;
    out.resolved = s->problems.n ? NULL : s->spec;
    out.plan = s->problems.n ? NULL : s->hosts.plan;
    rpc_reply(call, &out.base);
}

static status_t validate_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ValidateJobRequest *in = (const void *)request;
    struct submission s = { 0 };
    const struct submission_request asked = { .spec = in->spec,
                                              .fork = in->fork,
                                              .wait_for_hosts = in->wait_for_hosts,
                                              .skip_check = in->skip_check,
                                              .plan = true,
                                              .deadline = rpc_deadline(call, UNARY_DEADLINE_MS) };
    status_t st = submission_judge(service, &asked, &s, e);
    if (st == ST_OK)
        reply_judged(service, call, in, &s);
    submission_done(&s);
    return st;
}

static const struct rpc_method methods[] = {
    { .name = "CreateJob", .kind = RPC_UNARY, .unary = create_job },
    { .name = "GetJob", .kind = RPC_UNARY, .unary = get_job },
    { .name = "ListJobs", .kind = RPC_UNARY, .unary = job_list },
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
    { .name = "GetRankSeconds", .kind = RPC_UNARY, .unary = rank_seconds_get },
    { .name = "ListEvents", .kind = RPC_UNARY, .unary = list_events },
    { .name = "ValidateJob", .kind = RPC_UNARY, .unary = validate_job },
};

const struct rpc_service rpc_job_service = { &trainyard__v1__job_service__descriptor, methods,
                                             sizeof methods / sizeof *methods };
