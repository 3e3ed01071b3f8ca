/* Dispatches events to the functions that handle them, and loads the state from rows at the start.
 *
 * scheduler_step handles the event, and finally places waiting jobs if the capacity or the queue has changed
 * (needs_placing), unless more events follow at once.
 *
 * Events of ranks and checkpoints name an attempt. If it is not the job's current attempt, they are ignored (current,
 * current_rank), except the end of a part: its agent always gets an acknowledgement, so that it can forget the attempt,
 * and the executor is no longer fenced for it.
 *
 * on_tick handles everything that depends on time: leases, exclusions of hosts, restarts that are due, and gangs that
 * have not joined in time. It also makes the moves that an earlier leader did not make before it died
 * (settle_closed). */
#include "base/alloc.h"
#include "base/limits.h"
#include "service/scheduler/state.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>

struct scheduler *scheduler_new(int64_t now_ms) {
    struct scheduler *s = alloc_zeroed(1, sizeof *s);
    s->last_tick_ms = s->now_ms = now_ms;
    s->half_time_ms = SCHEDULER_HALF_TIME_MS;
    s->avoid_until_ms = INT64_MAX;
    s->checkpoint_wait_ms = SCHEDULER_CHECKPOINT_WAIT_MS;
    s->elastic_settle_ms = SCHEDULER_ELASTIC_SETTLE_MS;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        s->capacity[k].features = UINT32_MAX;
    (void)capacity_class(s, 0); /* class 0: jobs that need nothing */
    return s;
}

void scheduler_set_checkpoint_wait(struct scheduler *s, int64_t wait_ms) { s->checkpoint_wait_ms = wait_ms; }

void scheduler_set_elastic_settle(struct scheduler *s, int64_t settle_ms) { s->elastic_settle_ms = settle_ms; }

void scheduler_set_half_time(struct scheduler *s, int64_t half_time_ms) { s->half_time_ms = half_time_ms; }

static void free_job(void *job) { job_free(job); }
static void keep(void *queue) { (void)queue; }

struct scheduler *scheduler_free(struct scheduler *s) {
    if (!s)
        return NULL;
    tdestroy(s->jobs, free_job);
    for (int i = 0; i < s->n_all; i++)
        free(s->all[i]->fenced);
    tdestroy(s->executors, free);
    free(s->all);
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        placement_index_done(&s->hosts[k]);
    for (int i = 0; i < s->n_queues; i++)
        queue_free(s->queues[i]);
    free(s->queues);
    free(s->heads);
    tdestroy(s->queues_by_name, keep);
    tdestroy(s->cohorts, free);
    free(s);
    return NULL;
}

static enum attempt_ending ending_of(enum job_state state) {
    switch (state) {
    case JOB_STATE_RESTARTING:
    case JOB_STATE_CANCELLING: return ATTEMPT_STOPS;
    case JOB_STATE_PREEMPTING:
    case JOB_STATE_PAUSING: return ATTEMPT_CHECKPOINTS;
    default: return ATTEMPT_GOES_ON;
    }
}

static void load_attempt(struct scheduler *s, struct job *job, const struct scheduler_job_row *row, int64_t now_ms) {
    const int ranks = row->ranks ? row->ranks : row->world_size;
    struct attempt *a = attempt_new(row->attempt, ranks);
    job->ranks = ranks;
    bool drained = false;
    for (int r = 0; r < ranks; r++) {
        a->ranks[r].executor = executor_add(s, row->placement[r], now_ms);
        a->ranks[r].executor->lost = false; /* its lease decides, not its row */
        a->ranks[r].started = row->started && row->started[r];
        drained |= a->ranks[r].executor->drained_now;
    }
    a->final_committed = row->final_committed;
    a->committed_step = row->committed_step;
    a->ending = ending_of(row->state);
    a->grows = job_is_elastic(job) && row->state == JOB_STATE_PREEMPTING && !drained;
    a->running_ms = now_ms;
    a->all_joined = a->all_started = row->state == JOB_STATE_RUNNING;
    a->start_deadline_ms = now_ms + attempt_start_limit_ms(job);
    attempt_begin(s, job, a);
}

/* Loads the hosts that have failed the job, and since when its checkpoint could not be read. */
static void load_faults(struct scheduler *s, struct job *job, const struct scheduler_job_row *row, int64_t now_ms) {
    job->unreadable = row->unreadable_ms > 0;
    job->unreadable_since_ms = now_ms - row->unreadable_ms;
    if (row->n_avoided > 0)
        job_avoid_loaded(s, job, row, now_ms);
}

void scheduler_load_queue(struct scheduler *s, const struct scheduler_queue *row,
                          const double average[SCHEDULER_SLOT_KINDS], int64_t age_ms, int64_t now_ms) {
    s->now_ms = now_ms;
    queue_set(s, row);
    queue_load_average(s, queue_find(s, row->name), average, age_ms);
}

void scheduler_load(struct scheduler *s, const struct scheduler_job_row *row, int64_t now_ms) {
    s->now_ms = now_ms;
    struct job *job = job_add(s, row);
    load_faults(s, job, row, now_ms);
    if (row->state == JOB_STATE_QUEUED) {
        queue_insert(s, job);
        return;
    }
    job_activate(s, job, row->state != JOB_STATE_PAUSED);
    if (row->placement) {
        load_attempt(s, job, row, now_ms);
        return;
    }
    job->not_before_ms = now_ms;
    job->finished = row->final_committed;
}

void scheduler_load_executor(struct scheduler *s, const char *id, bool attached, const struct scheduler_drain *drain,
                             int64_t now_ms) {
    struct executor *ex = executor_add(s, id, now_ms);
    ex->lost = !attached;
    if (drain)
        executor_mark(s, ex, drain);
    executor_recount(s, ex);
    s->drain_due |= ex->drained_now;
}

/* Returns the job if the event belongs to its current attempt, which may still run. */
static struct job *current(const struct scheduler *s, const struct scheduler_event *ev) {
    struct job *job = job_find(s, ev->job);
    return job && job->attempt && job->attempt->number == ev->attempt ? job : NULL;
}

static struct rank *current_rank(const struct job *job, int rank) {
    return job && rank >= 0 && rank < job->attempt->n_ranks ? &job->attempt->ranks[rank] : NULL;
}

static void on_rank(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *out) {
    struct job *job = current(s, ev);
    struct rank *rank = current_rank(job, ev->rank);
    if (!rank)
        return;
    switch (ev->kind) {
    case EV_RANK_STARTED:
        rank->started = true;
        attempt_started(job, out);
        return;
    case EV_RANK_OFFERED:
        rank->started = rank->offered = true;
        attempt_started(job, out);
        attempt_gather(s, job, now_ms, out);
        return;
    case EV_RANK_JOINED:
        rank->started = rank->joined = true;
        attempt_gather(s, job, now_ms, out);
        return;
    case EV_RANK_SILENT: attempt_silent(s, job, ev, now_ms, out); return;
    case EV_RANK_STORED:
        if (rank->ended && ev->sequence >= rank->end.last_sequence) {
            rank->stored = true;
            attempt_try_close(s, job, now_ms, out);
        }
        return;
    default: return;
    }
}

/* Nothing of the attempt runs there: the part ends like one of a lost executor, which is not to blame. */
static void on_part_refused(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                            struct scheduler_actions *out) {
    struct executor *ex = executor_find(s, ev->executor);
    struct job *job = current(s, ev);
    struct part *part = ex && job ? attempt_part(job->attempt, ex) : NULL;
    if (!part || part->over)
        return;
    attempt_part_lost(s, job, part, RANK_END_NO_ORDER, ev->reason, out);
    attempt_try_close(s, job, now_ms, out);
}

static void on_part_ended(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                          struct scheduler_actions *out) {
    struct executor *ex = executor_find(s, ev->executor);
    if (!ex)
        return;
    struct job *job = current(s, ev);
    struct part *part = job ? attempt_part(job->attempt, ex) : NULL;
    if (part && !part->lost) {
        attempt_part_ended(s, job, part, ev->ends, ev->n_ends, out);
        attempt_try_close(s, job, now_ms, out);
        return;
    }
    executor_unfence(s, ex, ev->job, ev->attempt);
    s->needs_placing = true;
    action_send(out, ACT_SEND_ACKNOWLEDGE, &(struct job){ .id = ev->job, .number = ev->attempt }, ex);
}

static void on_rank_ended(struct scheduler *s, const struct scheduler_event *ev, struct scheduler_actions *out) {
    struct job *job = current(s, ev);
    struct executor *ex = executor_find(s, ev->executor);
    struct part *part = job && ex ? attempt_part(job->attempt, ex) : NULL;
    for (int i = 0; part && !part->over && i < ev->n_ends; i++) {
        const struct rank *rank = current_rank(job, ev->ends[i].rank);
        if (rank && rank->executor == ex)
            attempt_rank_ended(s, job, &ev->ends[i], out);
    }
}

static void on_committed(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                         struct scheduler_actions *out) {
    struct job *job = current(s, ev);
    if (!job)
        return;
    if (ev->step > job->attempt->committed_step)
        job->attempt->committed_step = ev->step;
    job->attempt->committed_ms = now_ms;
    for (int p = 0; p < job->attempt->n_parts; p++) {
        const struct part *part = &job->attempt->parts[p];
        if (part->over)
            continue;
        action_send(out, ACT_SEND_COMMITTED, job, part->executor);
        out->items[out->n - 1].step = ev->step;
    }
    job->failures = 0;
    job->attempt->final_committed |= ev->final;
    attempt_try_close(s, job, now_ms, out);
}

/* The last leader died between an attempt's end and the job's move, which are two transactions. A failure is not
 * counted, because its cause is no longer known. A fatal failure will occur again. */
static void settle_closed(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    static const char died[] = "the controller died while the attempt ended";
    if (job->finished &&
        (job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_PREEMPTING || job->state == JOB_STATE_PAUSING))
        job_move(s, job, JOB_STATE_SUCCEEDED, JOB_CAUSE_DONE, "", out);
    else if (job->state == JOB_STATE_PREEMPTING)
        job_requeue(s, job, died, out);
    else if (job->state == JOB_STATE_PAUSING)
        job_move(s, job, JOB_STATE_PAUSED, JOB_CAUSE_STOPPED, "paused by its user", out);
    else if (job->state == JOB_STATE_CANCELLING)
        job_move(s, job, JOB_STATE_CANCELLED, JOB_CAUSE_STOPPED, "", out);
    else if (job->state == JOB_STATE_STARTING || job->state == JOB_STATE_RUNNING)
        job_move(s, job, JOB_STATE_RESTARTING, JOB_CAUSE_ATTEMPT_FAILED, died, out);
}

static void on_tick(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    executor_expire_leases(s, now_ms, out);
    executor_drain_loaded(s, out);
    if (now_ms >= s->next_order_ms && s->n_queue > 0 && s->n_queues > 1) {
        s->next_order_ms = now_ms + SCHEDULER_ORDER_MS;
        s->needs_placing = true;
    }
    jobs_forgive_after_time(s, now_ms);
    int restarts = 0;
    for (struct job *job = s->timed, *next; job; job = next) {
        next = job->next_timed;
        if (job->attempt && job->state != JOB_STATE_STARTING) {
            job_untime(s, job);
            continue;
        }
        if (!job->attempt) {
            if (job->state != JOB_STATE_RESTARTING) {
                settle_closed(s, job, out);
            } else if (!job->in_queue && now_ms >= job->not_before_ms && restarts < SCHEDULER_RESTARTS_PER_TICK) {
                restarts++;
                queue_insert(s, job);
                s->needs_placing = true; /* the job starts now, or becomes QUEUED */
            }
            continue;
        }
        struct attempt *a = job->attempt;
        if (job->state == JOB_STATE_STARTING && now_ms >= a->start_deadline_ms) {
            struct rank_end end = { .cause = RANK_END_INTERNAL };
            for (int r = 0; r < a->n_ranks; r++)
                if (!a->ranks[r].joined) {
                    end.rank = r;
                    break;
                }
            snprintf(end.message, sizeof end.message, "did not join within %d s",
                     (int)(attempt_start_limit_ms(job) / 1000));
            attempt_fail(s, job, &end, out);
        }
    }
    elastic_grow(s, now_ms, out);
}

static void on_seen(struct scheduler *s, const struct scheduler_event *ev) {
    struct executor *ex = executor_find(s, ev->executor);
    if (ex && ex->lease_until_ms < ev->last_seen_ms + LEASE_TTL_MS)
        ex->lease_until_ms = ev->last_seen_ms + LEASE_TTL_MS;
}

void scheduler_step(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *ret) {
    struct executor *ex;
    s->now_ms = now_ms;
    switch (ev->kind) {
    case EV_EXECUTOR_SEEN: on_seen(s, ev); return;
    case EV_TICK: on_tick(s, now_ms, ret); break;
    case EV_JOB_SUBMITTED: job_submit(s, ev); break;
    case EV_JOB_CANCEL: job_cancel(s, ev, now_ms, ret); break;
    case EV_JOB_PAUSE: job_pause(s, ev, now_ms, ret); break;
    case EV_JOB_RESUME: job_resume(s, ev, ret); break;
    case EV_JOB_RETRY: job_retry(s, ev, ret); break;
    case EV_EXECUTOR_ATTACHED: executor_attach(s, ev, now_ms, ret); break;
    case EV_EXECUTOR_DEVICES:
        ex = executor_find(s, ev->executor);
        if (ex && ev->attach.incarnation >= ex->incarnation) { /* else a late message of an older incarnation */
            ex->slots[SCHEDULER_SLOT_CUDA] = ev->attach.slots[SCHEDULER_SLOT_CUDA];
            ex->quarantined = ev->attach.quarantined;
            executor_recount(s, ex);
            queue_report_again(s);
        }
        break;
    case EV_QUEUE_SET:
        queue_set(s, &ev->queue);
        action_reply(ret, ev->token);
        break;
    case EV_QUEUE_DELETED:
        queue_unset(s, ev->queue.name);
        action_reply(ret, ev->token);
        break;
    case EV_EXECUTOR_LEAVES: executor_handle_leaving(s, ev, ret); break;
    case EV_EXECUTOR_DETACHED: executor_handle_detached(s, ev); break;
    case EV_EXECUTOR_DRAIN: executor_drain(s, ev, now_ms, ret); break;
    case EV_RANK_ENDED: on_rank_ended(s, ev, ret); break;
    case EV_PART_ENDED: on_part_ended(s, ev, now_ms, ret); break;
    case EV_PART_REFUSED: on_part_refused(s, ev, now_ms, ret); break;
    case EV_COMMITTED: on_committed(s, ev, now_ms, ret); break;
    case EV_PLACE: break;
    default: on_rank(s, ev, now_ms, ret); break;
    }
    if (s->needs_placing && !ev->more)
        queue_place(s, now_ms, ret);
}

bool scheduler_needs_placing(const struct scheduler *s) { return s->needs_placing; }

struct scheduler_effort scheduler_effort(const struct scheduler *s) {
    return s->effort;
}
