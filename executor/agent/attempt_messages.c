/* Attempts and ranks as protobuf messages.
 *
 * The core's structs hold only the values that decisions need. A message needs more: the address and the join of a
 * rank, which rank_workers keeps, and the last sequence number of its spool log, which grows until the rank is closed.
 * So messages are built from the core, the workers and the spool when they are sent or written, and no value is stored
 * twice. The record of an attempt in the directory is the same AttemptStatus that the hello carries. */
#include "executor/agent/attempt_messages.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "executor/agent/reap.h"

#include <stdio.h>
#include <stdlib.h>

enum { STRANGER_MS = 10000 }; /* a process that SIGKILL does not end within this time is stuck in the kernel */

static int64_t last_sequence(const struct host *host, const struct agent_attempt *at, const struct agent_rank *r) {
    const struct spool_key key = { at->job, at->attempt, r->rank };
    const struct spool_log *log = spool_log_find(host->spool, &key);
    return log ? spool_log_last(log) : r->has_end ? r->end.last_sequence : 0;
}

static void end_fill(Trainyard__V1__RankEnd *m, const struct host *host, const struct agent_attempt *at,
                     const struct agent_rank *r) {
    trainyard__v1__rank_end__init(m);
    m->rank = r->rank;
    m->exit_code = r->end.status.exit_code;
    m->signal = r->end.status.signal;
    m->cause = r->end.cause;
    m->message = (char *)(uintptr_t)r->end.message;
    m->last_sequence = last_sequence(host, at, r);
    m->time_us = r->end.time_us;
    m->step = r->end.step;
    m->weights_sha256 = (char *)(uintptr_t)r->end.weights_sha256;
}

/* ---- reports ---- */

void report_rank_started(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r) {
    Trainyard__V1__RankStarted started = TRAINYARD__V1__RANK_STARTED__INIT;
    started.job = at->job;
    started.attempt = at->attempt;
    started.rank = r->rank;
    started.pid = r->pid;
    started.pid_start_time = r->pid_start_time;
    started.threads = at->threads;
    control_stream_send(p->stream, AGENT_MESSAGE(RANK_STARTED, rank_started, &started));
}

void report_rank_threads(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r) {
    Trainyard__V1__RankThreads threads = TRAINYARD__V1__RANK_THREADS__INIT;
    threads.job = at->job;
    threads.attempt = at->attempt;
    threads.rank = r->rank;
    threads.threads = at->threads;
    control_stream_send(p->stream, AGENT_MESSAGE(RANK_THREADS, rank_threads, &threads));
}

void report_rank_address(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r) {
    const struct rank_worker *w = rank_workers_find(p->workers, at->job, at->attempt, r->rank);
    Trainyard__V1__RankOffer offer = TRAINYARD__V1__RANK_OFFER__INIT;
    offer.job = at->job;
    offer.attempt = at->attempt;
    offer.rank = r->rank;
    offer.address = w->address;
    control_stream_send(p->stream, AGENT_MESSAGE(RANK_OFFER, rank_offer, &offer));
}

void report_rank_joined(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r) {
    const struct rank_worker *w = rank_workers_find(p->workers, at->job, at->attempt, r->rank);
    Trainyard__V1__RankReady ready = TRAINYARD__V1__RANK_READY__INIT;
    ready.job = at->job;
    ready.attempt = at->attempt;
    ready.rank = r->rank;
    ready.joined = w->joined;
    control_stream_send(p->stream, AGENT_MESSAGE(RANK_READY, rank_ready, &ready));
}

void report_rank_stop_step(const struct attempt_reporter *p, const struct agent_attempt *at,
                           const struct agent_rank *r) {
    const struct rank_worker *w = rank_workers_find(p->workers, at->job, at->attempt, r->rank);
    Trainyard__V1__RankStopStep chosen = TRAINYARD__V1__RANK_STOP_STEP__INIT;
    Trainyard__V1__StopStep step = TRAINYARD__V1__STOP_STEP__INIT;
    step.step = w->stop_step;
    chosen.job = at->job;
    chosen.attempt = at->attempt;
    chosen.stop_step = &step;
    control_stream_send(p->stream, AGENT_MESSAGE(STOP_STEP, stop_step, &chosen));
}

void report_rank_ended(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r) {
    Trainyard__V1__RankEnded ended = TRAINYARD__V1__RANK_ENDED__INIT;
    Trainyard__V1__RankEnd end;
    end_fill(&end, p->host, at, r);
    ended.job = at->job;
    ended.attempt = at->attempt;
    ended.end = &end;
    control_stream_send(p->stream, AGENT_MESSAGE(RANK_ENDED, rank_ended, &ended));
}

void report_attempt_ended(const struct attempt_reporter *p, int64_t job, int32_t attempt,
                          const struct agent_attempt *at) {
    Trainyard__V1__AttemptEnded none = TRAINYARD__V1__ATTEMPT_ENDED__INIT;
    struct attempt_status s;
    if (at)
        attempt_status_init(&s, at, p->host, p->workers);
    none.job = job;
    none.attempt = attempt;
    control_stream_send(p->stream, AGENT_MESSAGE(ATTEMPT_ENDED, attempt_ended, at ? &s.end : &none));
    if (at)
        attempt_status_done(&s);
}

/* ---- status ---- */

void attempt_status_done(struct attempt_status *s) {
    free(s->ranks);
    free(s->rank_pointers);
    free(s->ends);
    free(s->end_pointers);
}

static void rank_status_fill(Trainyard__V1__RankStatus *m, const struct agent_attempt *at, const struct agent_rank *r,
                             const struct host *host, const struct rank_workers *workers) {
    const struct rank_worker *w = rank_workers_find(workers, at->job, at->attempt, r->rank);
    trainyard__v1__rank_status__init(m);
    m->rank = r->rank;
    m->pid = r->pid;
    m->pid_start_time = r->pid_start_time;
    m->joined = r->joined;
    m->last_sequence = last_sequence(host, at, r);
    if (w)
        m->address = w->address;
}

void attempt_status_init(struct attempt_status *s, const struct agent_attempt *at, const struct host *host,
                         const struct rank_workers *workers) {
    const size_t n = at->n_ranks;
    trainyard__v1__attempt_status__init(&s->message);
    trainyard__v1__attempt_ended__init(&s->end);
    s->ranks = alloc_zeroed(n, sizeof *s->ranks);
    s->rank_pointers = alloc_zeroed(n, sizeof *s->rank_pointers);
    s->ends = alloc_zeroed(n, sizeof *s->ends);
    s->end_pointers = alloc_zeroed(n, sizeof *s->end_pointers);
    for (size_t i = 0; i < n; i++) {
        const struct agent_rank *r = &at->ranks[i];
        rank_status_fill(s->rank_pointers[i] = &s->ranks[i], at, r, host, workers);
        if (r->has_end)
            end_fill(s->end_pointers[s->end.n_ranks++] = &s->ends[i], host, at, r);
    }
    s->end.job = s->message.job = at->job;
    s->end.attempt = s->message.attempt = at->attempt;
    s->end.ranks = s->end_pointers;
    s->message.world_size = at->world_size;
    s->message.n_ranks = n;
    s->message.ranks = s->rank_pointers;
    s->message.ended = at->ended;
    s->message.end = &s->end;
}

/* ---- an earlier agent's attempts ---- */

static void end_load(struct agent_rank *r, const Trainyard__V1__RankEnd *m) {
    r->has_end = true;
    r->end = (struct agent_rank_end){ .status = { .exit_code = m->exit_code, .signal = m->signal },
                                      .cause = m->cause,
                                      .last_sequence = m->last_sequence,
                                      .time_us = m->time_us,
                                      .step = m->step };
    snprintf(r->end.message, sizeof r->end.message, "%s", m->message);
    snprintf(r->end.weights_sha256, sizeof r->end.weights_sha256, "%s", m->weights_sha256);
}

static status_t rank_recover(struct agent_rank *r, const Trainyard__V1__RankStatus *record,
                             const Trainyard__V1__AttemptEnded *known, const struct agent_attempt *running,
                             struct err *e) {
    r->rank = record->rank;
    for (size_t i = 0; running && i < running->n_ranks; i++)
        if (running->ranks[i].rank == record->rank)
            *r = running->ranks[i];
    r->pid = record->pid;
    r->pid_start_time = record->pid_start_time;
    if (r->state == AGENT_RANK_RUNS)
        return ST_OK;
    for (size_t i = 0; known && i < known->n_ranks && !r->has_end; i++)
        if (known->ranks[i]->rank == r->rank)
            end_load(r, known->ranks[i]);
    return r->has_end || r->pid <= 0 ? ST_OK : reap_stranger(r->pid, r->pid_start_time, STRANGER_MS, e);
}

status_t attempt_recover(struct agent_core *core, const Trainyard__V1__AttemptStatus *record,
                         const struct agent_attempt *running, struct err *e) {
    CLEANUP(freep) struct agent_rank *ranks = alloc_zeroed(record->n_ranks, sizeof *ranks);
    const struct agent_attempt known = { .job = record->job,
                                         .attempt = record->attempt,
                                         .world_size = record->world_size,
                                         .ranks = ranks,
                                         .n_ranks = record->n_ranks,
                                         .threads = running ? running->threads : 0,
                                         .max_threads = running ? running->max_threads : 0,
                                         .pinned = running && running->pinned };
    for (size_t i = 0; i < known.n_ranks; i++)
        TRY(rank_recover(&ranks[i], record->ranks[i], record->end, running, e));
    agent_core_load(core, &known, clock_wall_us());
    return ST_OK;
}
