#include "service/rpc/convert_job.h"

#include "api/codec/timestamp.h"
#include "service/rpc/convert_state.h"

Google__Protobuf__Timestamp *convert_timestamp(struct arena *a, int64_t time_us) {
    if (time_us == 0)
        return NULL;
    Google__Protobuf__Timestamp *t = arena_message(a, &google__protobuf__timestamp__descriptor);
    timestamp_of_us(time_us, t);
    return t;
}

Trainyard__V1__Job *convert_job(struct arena *a, const struct store_job *row) {
    Trainyard__V1__Job *job = arena_message(a, &trainyard__v1__job__descriptor);
    job->name = arena_printf(a, "jobs/%lld", (long long)row->id);
    job->display_name = (char *)row->name;
    job->state = convert_job_state(row->state);
    job->reason = (char *)row->reason;
    /* The scheduler stores a reason only for the first job of a queue. */
    if (row->state == STORE_JOB_QUEUED && !*row->reason)
        job->reason = arena_printf(a, "waits for its turn in queue %s", row->queue);
    job->spec = row->spec ? arena_spec(a, row->spec, row->spec_bytes) : NULL;
    job->create_time = convert_timestamp(a, row->create_time_us);
    job->start_time = convert_timestamp(a, row->start_time_us);
    job->end_time = convert_timestamp(a, row->end_time_us);
    job->attempt = row->attempt;
    job->restarts = row->restarts;
    job->step = row->step;
    job->last_event = row->last_event;
    job->weights_sha256 = (char *)row->weights_sha256;
    job->queue = (char *)row->queue;
    job->priority = row->priority;
    job->records_lost = row->records_lost;
    job->user = (char *)row->user;
    job->project = (char *)row->project;
    return job;
}

static Trainyard__V1__Attempt *convert_attempt(struct arena *a, int64_t job, const struct store_attempt *row) {
    Trainyard__V1__Attempt *attempt = arena_message(a, &trainyard__v1__attempt__descriptor);
    attempt->number = row->number;
    attempt->state = convert_attempt_state(row->state);
    attempt->from_step = row->from_step;
    if (row->from_checkpoint)
        attempt->from_checkpoint = arena_printf(a, "jobs/%lld/checkpoints/%lld",
                                                (long long)(row->from_job ? row->from_job : job),
                                                (long long)row->from_checkpoint);
    attempt->world_size = row->world_size;
    attempt->reason = (char *)row->reason;
    attempt->create_time = convert_timestamp(a, row->create_time_us);
    attempt->start_time = convert_timestamp(a, row->start_time_us);
    attempt->end_time = convert_timestamp(a, row->end_time_us);
    attempt->placements = arena_alloc(a, row->n_placements, sizeof *attempt->placements);
    attempt->n_placements = row->n_placements;
    for (size_t i = 0; i < attempt->n_placements; i++) {
        Trainyard__V1__Placement *p = attempt->placements[i] = arena_message(a, &trainyard__v1__placement__descriptor);
        p->rank = row->placements[i].rank;
        p->executor = arena_printf(a, "executors/%s", row->placements[i].executor);
        p->pid = row->placements[i].pid;
        p->pid_start_time = row->placements[i].pid_start_time;
        p->threads = row->placements[i].threads;
        p->hostname = (char *)row->placements[i].hostname;
    }
    return attempt;
}

void convert_attempts(struct arena *a, int64_t job, const struct store_attempt *rows, size_t n,
                      Trainyard__V1__Job *ret) {
    ret->attempts = arena_alloc(a, n, sizeof *ret->attempts);
    ret->n_attempts = n;
    for (size_t i = 0; i < ret->n_attempts; i++)
        ret->attempts[i] = convert_attempt(a, job, &rows[i]);
}

void convert_origin(struct arena *a, const struct store_origin *origin, int64_t step, Trainyard__V1__Job *ret) {
    if (!origin->checkpoint)
        return;
    char *name = arena_printf(a, "jobs/%lld/checkpoints/%lld", (long long)origin->job, (long long)origin->checkpoint);
    if (origin->weights_only) {
        ret->initialised_from = name;
        return;
    }
    ret->forked_from = name;
    ret->forked_step = step;
}

Trainyard__V1__Event *convert_event(struct arena *a, const struct store_event *row) {
    Trainyard__V1__Event *event = arena_message(a, &trainyard__v1__event__descriptor);
    event->number = row->number;
    event->time = convert_timestamp(a, row->time_us);
    event->attempt = row->attempt;
    event->kind = (char *)row->kind;
    event->state = convert_job_state(row->state);
    event->message = (char *)row->message;
    return event;
}
