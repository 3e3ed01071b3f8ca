/* Elastic jobs: an attempt has from world_size to max_world_size ranks. Only the next attempt has another number.
 *
 * Spare slots are the free ones that no waiting job can use: none while a job blocks the queue of their kind.
 * elastic_refresh counts them after each placing. When their number has not changed for the settle time, or they have
 * not been used up for SCHEDULER_SETTLE_MAX times as long, elastic_grow stops one attempt that has fewer ranks than it
 * may have: the first in the order of the queue. The job is PREEMPTING meanwhile, as for a drain.
 *
 *   - The attempt must have run for the settle time. A growth in vain doubles that time.
 *   - It must not lose much work: the program saves when it stops (`stop: step`), or it has just stored a checkpoint.
 *   - The slots of the stopped attempt are kept (attempt_part_over), so that no other job takes them. When all parts
 *     are over, elastic_restart starts the next attempt at once. Another job may have taken the spare slots meanwhile:
 *     then the attempt has as many ranks as before.
 *
 * An attempt never shrinks for another job. It has fewer ranks than the last one only if that has ended for another
 * reason, and fewer slots are free. */
#include "service/scheduler/state.h"

#include <stdio.h>

enum { CHECK_MS = 1000 };

bool job_is_elastic(const struct job *job) { return job->max_world_size > job->world_size; }

bool elastic_may_grow(const struct job *job) {
    const struct attempt *a = job->attempt;
    return job_is_elastic(job) && a && !a->ending && job->state == JOB_STATE_RUNNING &&
           a->n_ranks < job->max_world_size;
}

void elastic_refresh(struct scheduler *s, int64_t now_ms) {
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        struct spare *spare = &s->spare[k];
        const int before = spare->now;
        spare->now = s->blocker[k] ? 0 : s->capacity[k].free - s->capacity[k].single_rank_free;
        if (spare->now != before)
            spare->quiet_ms = now_ms;
        if (before == 0 || spare->now == 0)
            spare->free_ms = now_ms;
        if (before == 0 || spare->now < spare->lowest)
            spare->lowest = spare->now;
    }
}

/* The spare slots that a job may have now. */
static int settled(const struct scheduler *s, const struct spare *spare, int64_t now_ms) {
    if (now_ms - spare->quiet_ms >= s->elastic_settle_ms)
        return spare->now;
    return now_ms - spare->free_ms >= SCHEDULER_SETTLE_MAX * s->elastic_settle_ms ? spare->lowest : 0;
}

static int64_t run_time_ms(const struct scheduler *s, const struct job *job) {
    int64_t ms = s->elastic_settle_ms;
    for (int i = 0; i < job->vain_growths && ms < SCHEDULER_GROWTH_MAX_MS; i++)
        ms *= 2;
    return ms < SCHEDULER_GROWTH_MAX_MS ? ms : SCHEDULER_GROWTH_MAX_MS;
}

static bool saves(const struct job *job, int64_t now_ms) {
    const struct attempt *a = job->attempt;
    if (job->stops_at_step && !job->growth_lost)
        return true;
    return a->committed_ms > 0 && now_ms - a->committed_ms <= SCHEDULER_GROWTH_AFTER_CHECKPOINT_MS;
}

/* Free slots on hosts that the job may use. Hosts that have failed jobs are no reason to stop it. */
static int free_for(const struct scheduler *s, const struct job *job, int64_t now_ms) {
    int n = 0;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        if (!executor_faulty(ex, now_ms) && !(job->slot == SCHEDULER_SLOT_CUDA && ex->single_rank))
            n += executor_free_for(ex, job);
    }
    return n;
}

static int min_of(int a, int b) { return a < b ? a : b; }

/* The ranks that the job would have after a growth now. */
static int ranks_after(const struct scheduler *s, const struct job *job, int spare, int64_t now_ms) {
    const int more = min_of(queue_spare(job), min_of(spare, free_for(s, job, now_ms)));
    return min_of(job->max_world_size, job->attempt->n_ranks + more);
}

static void grow(struct scheduler *s, struct job *job, int ranks, struct scheduler_actions *out) {
    char why[120];
    snprintf(why, sizeof why, "it grows from %d to %d ranks: slots became free", job->attempt->n_ranks, ranks);
    job_move(s, job, JOB_STATE_PREEMPTING, JOB_CAUSE_PREEMPTED, why, out);
    job->attempt->grows = true;
    attempt_checkpoint(job, why, out);
}

void elastic_grow(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        struct spare *spare = &s->spare[k];
        const int slots = s->needs_placing ? 0 : settled(s, spare, now_ms);
        struct job *first = NULL;
        if (slots == 0 || now_ms < spare->check_ms)
            continue;
        spare->check_ms = now_ms + CHECK_MS;
        for (struct job *job = s->active; job; job = job->next)
            if ((int)job->slot == k && elastic_may_grow(job) && saves(job, now_ms) &&
                now_ms - job->attempt->running_ms >= run_time_ms(s, job) && (!first || queue_before(s, job, first)) &&
                ranks_after(s, job, slots, now_ms) > job->attempt->n_ranks)
                first = job;
        if (!first)
            continue;
        grow(s, first, ranks_after(s, first, slots, now_ms), out);
        spare->quiet_ms = spare->free_ms = now_ms;
        spare->lowest = spare->now;
    }
}

void elastic_restart(struct scheduler *s, struct job *job, int before, int64_t now_ms, struct scheduler_actions *out) {
    const int allowed = queue_spare(job); /* the last attempt has given back its slots */
    const int limit = min_of(job->max_world_size, allowed > before ? allowed : before);
    queue_use(s, job, before); /* jobs that the limits of a queue keep back beside this one do not count */
    const bool others_wait = queue_others_wait(s, job->slot);
    queue_use(s, job, -before);
    const int max = others_wait ? before : limit;
    const bool started = queue_start_now(s, job, max, now_ms, out);
    job->vain_growths = started && job->ranks > before ? 0 : job->vain_growths + 1;
    if (!started)
        queue_insert(s, job);
}

void elastic_note(struct job *job, struct scheduler_actions *out) {
    const int before = job->ranks, ranks = job->attempt->n_ranks;
    job->ranks = ranks;
    if (before == 0 || before == ranks)
        return;
    struct scheduler_action *a = action_add(out, ACT_NOTE, job);
    a->note = ranks > before ? "elastic_grown" : "elastic_shrunk";
    action_text(a, "from %d to %d ranks of %d to %d: %s%s%s", before, ranks, job->world_size, job->max_world_size,
                ranks > before ? "more slots are free" : "fewer slots are free",
                ranks < before && job->why ? "; the last attempt: " : "", ranks < before && job->why ? job->why : "");
}

/* What the growth of a running attempt waits for. */
static void describe_growth(const struct scheduler *s, const struct job *job, int64_t now_ms, char *ret, size_t n) {
    const struct spare *spare = &s->spare[job->slot];
    const int64_t run = job->attempt->running_ms + run_time_ms(s, job) - now_ms,
                  settle = spare->quiet_ms + s->elastic_settle_ms - now_ms;
    const int64_t left_ms = run > settle ? run : settle;
    if (queue_spare(job) == 0)
        snprintf(ret, n, "it grows when the limits of queue '%s' leave it more slots", job->queue->name);
    else if (s->blocker[job->slot])
        snprintf(ret, n, "it grows when slots are free that job %lld, which waits, does not need",
                 (long long)s->blocker[job->slot]->id);
    else if (spare->now == 0 || free_for(s, job, now_ms) == 0)
        snprintf(ret, n, "it grows when slots have been free for %lld s", (long long)(s->elastic_settle_ms / 1000));
    else if (left_ms > 0)
        snprintf(ret, n, "it grows when the free slots (%d) stay free for %lld s%s", spare->now,
                 (long long)((left_ms + 999) / 1000), saves(job, now_ms) ? "" : ", after its next checkpoint");
    else
        snprintf(ret, n, "it grows after its next checkpoint: %d slots are free", spare->now);
}

void elastic_describe(const struct scheduler *s, const struct job *job, int64_t now_ms, char *ret, size_t n) {
    *ret = '\0';
    if (!job_is_elastic(job) || !job->attempt)
        return;
    char growth[200] = "it has all of its ranks";
    if (job->attempt->grows)
        snprintf(growth, sizeof growth, "it stops in order to grow");
    else if (elastic_may_grow(job))
        describe_growth(s, job, now_ms, growth, sizeof growth);
    else if (job->attempt->n_ranks < job->max_world_size)
        snprintf(growth, sizeof growth, "it may grow while it runs");
    snprintf(ret, n, ", %d of up to %d ranks: %s", job->attempt->n_ranks, job->max_world_size, growth);
}
