/* Hosts that have failed a job although the job was not at fault.
 *
 * When an attempt fails, job_avoid adds an entry for each host that its ranks blame, with what the host lacked. The job
 * gets no ranks there for SCHEDULER_AVOID_MS (`excludes`). A job keeps at most SCHEDULER_MAX_AVOIDED entries; a new one
 * replaces the one that expires first.
 *
 * job_has_other_hosts decides whether the job can run elsewhere. If not, job_forgive ends the exclusion of hosts whose
 * fault may pass, such as a full disk; if there are none, the job fails with job_avoided_text as its reason. Entries
 * without `excludes` stay, because explanations show them.
 *
 * executor_blame counts, per host, how many jobs in a row it has failed. Placement prefers other hosts for
 * SCHEDULER_AVOID_MS (queue.c). */
#include "base/alloc.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

static struct avoided *entry_of(const struct job *job, const char *executor) {
    for (int i = 0; job->avoided && i < job->avoided->n; i++)
        if (strcmp(job->avoided->of[i].executor, executor) == 0)
            return &job->avoided->of[i];
    return NULL;
}

const struct avoided *job_avoided_on(const struct job *job, const struct executor *ex) { return entry_of(job, ex->id); }

bool job_avoids(const struct job *job, const struct executor *ex) {
    const struct avoided *entry = job->avoided ? entry_of(job, ex->id) : NULL;
    return entry && entry->excludes;
}

bool executor_faulty(const struct executor *ex, int64_t now_ms) {
    return ex->fault_jobs > 0 && now_ms < ex->faulty_until_ms;
}

void executor_blame(struct executor *ex, int64_t job, int64_t now_ms) {
    if (!executor_faulty(ex, now_ms))
        ex->fault_jobs = 0;
    ex->fault_jobs += ex->fault_jobs == 0 || ex->fault_job != job;
    ex->fault_job = job;
    ex->faulty_until_ms = now_ms + SCHEDULER_AVOID_MS;
}

/* Returns the host's entry or a new one. A full list reuses the entry of the host that failed the job longest ago. */
static struct avoided *entry_take(struct job *job, const char *executor) {
    struct avoidance *a = job->avoided;
    struct avoided *entry = entry_of(job, executor);
    if (entry)
        return entry;
    if (a->n < SCHEDULER_MAX_AVOIDED)
        return &a->of[a->n++];
    entry = &a->of[0];
    for (int i = 1; i < a->n; i++)
        if (a->of[i].until_ms < entry->until_ms)
            entry = &a->of[i];
    return entry;
}

static void entry_put(struct scheduler *s, struct job *job, const char *executor, enum rank_end_cause cause,
                      const char *why, int64_t until_ms) {
    struct avoided *entry = entry_take(job, executor);
    *entry = (struct avoided){ .cause = cause, .excludes = true, .until_ms = until_ms };
    snprintf(entry->executor, sizeof entry->executor, "%s", executor);
    snprintf(entry->why, sizeof entry->why, "%s", *why ? why : rank_end_text(cause));
    if (until_ms < s->avoid_until_ms)
        s->avoid_until_ms = until_ms;
}

void job_avoid_loaded(struct scheduler *s, struct job *job, const struct scheduler_job_row *row, int64_t now_ms) {
    job->avoided = alloc_zeroed(1, sizeof *job->avoided);
    for (int i = 0; i < row->n_avoided && i < SCHEDULER_MAX_AVOIDED; i++)
        entry_put(s, job, row->avoided[i].executor, row->avoided[i].cause, row->avoided[i].why,
                  now_ms + row->avoided[i].left_ms);
}

bool job_avoid(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out) {
    const struct attempt *a = job->attempt;
    bool any = false;
    if (!job->avoided)
        job->avoided = alloc_zeroed(1, sizeof *job->avoided);
    for (int r = 0; r < a->n_ranks; r++) {
        const struct rank_end *end = &a->ranks[r].end;
        struct executor *ex = a->ranks[r].executor;
        if (!a->ranks[r].ended || !rank_end_blames_host(end->cause))
            continue;
        const struct avoided *known = entry_of(job, ex->id);
        if (known && known->excludes && known->until_ms == now_ms + SCHEDULER_AVOID_MS)
            continue; /* another rank of this attempt has blamed it */
        any = true;
        entry_put(s, job, ex->id, end->cause, end->message, now_ms + SCHEDULER_AVOID_MS);
        executor_blame(ex, job->id, now_ms);
        struct scheduler_action *action = action_add(out, ACT_HOST_FAULT, job);
        memcpy(action->executor, ex->id, sizeof action->executor);
        action->blamed = end->cause;
        action_text(action, "%s", *end->message ? end->message : rank_end_text(end->cause));
    }
    return any;
}

static int excluded(const struct job *job) {
    int n = 0;
    for (int i = 0; job->avoided && i < job->avoided->n; i++)
        n += job->avoided->of[i].excludes;
    return n;
}

bool job_has_other_hosts(const struct scheduler *s, const struct job *job) {
    long slots = 0;
    if (excluded(job) >= SCHEDULER_MAX_AVOIDED) /* after so many hosts, another one is unlikely to work */
        return false;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        switch (executor_availability_for(ex, job)) {
        case SCHEDULER_HOST_TAKES:
        case SCHEDULER_HOST_FULL:
        case SCHEDULER_HOST_FENCED: slots += ex->slots[job->slot]; break;
        case SCHEDULER_HOST_DRAINED: /* it counts: the job waits until a person undrains it */
            slots += job_avoids(job, ex) || job_lacks(job, ex) ? 0 : ex->slots[job->slot];
            break;
        case SCHEDULER_HOST_DETACHED:
            if (!ex->lost && !ex->leaving && !job_avoids(job, ex)) /* it attaches again, or is lost soon */
                return true;
            break;
        default: break;
        }
    }
    return slots >= job->world_size;
}

bool job_forgive(struct job *job) {
    bool any = false;
    for (int i = 0; job->avoided && i < job->avoided->n; i++) {
        struct avoided *entry = &job->avoided->of[i];
        if (!entry->excludes || !rank_end_may_pass(entry->cause))
            continue;
        entry->excludes = false;
        any = true;
    }
    return any;
}

int job_unreadable_on(const struct job *job) {
    int hosts = 0;
    for (int i = 0; job->avoided && i < job->avoided->n; i++)
        hosts += job->avoided->of[i].cause == RANK_END_CHECKPOINT_UNREADABLE;
    return hosts;
}

int64_t job_checkpoint_limit_ms(const struct scheduler *s, const struct job *job) {
    return job_unreadable_on(job) > 1 ? s->checkpoint_wait_ms / SCHEDULER_CONFIRMED_DIVISOR : s->checkpoint_wait_ms;
}

bool job_checkpoint_missing(const struct scheduler *s, struct job *job, int64_t now_ms) {
    if (!job->unreadable) {
        job->unreadable = true;
        job->unreadable_since_ms = now_ms;
    }
    return now_ms - job->unreadable_since_ms >= job_checkpoint_limit_ms(s, job);
}

/* ---- time ---- */

struct expiry {
    struct scheduler *s;
    int64_t now_ms, next_ms;
};

static void expire(const void *node, VISIT visit, void *ctx) {
    struct job *job = *(struct job *const *)node;
    struct expiry *x = ctx;
    if (visit != postorder && visit != leaf)
        return;
    for (int i = 0; job->avoided && i < job->avoided->n; i++) {
        struct avoided *entry = &job->avoided->of[i];
        if (!entry->excludes)
            continue;
        if (x->now_ms >= entry->until_ms) {
            entry->excludes = false;
            x->s->needs_placing = true;
        } else if (entry->until_ms < x->next_ms) {
            x->next_ms = entry->until_ms;
        }
    }
}

void jobs_forgive_after_time(struct scheduler *s, int64_t now_ms) {
    if (now_ms < s->avoid_until_ms)
        return;
    struct expiry x = { s, now_ms, INT64_MAX };
    twalk_r(s->jobs, expire, &x);
    s->avoid_until_ms = x.next_ms;
}

/* ---- capacity and sentences ---- */

void job_capacity_without_avoided(const struct scheduler *s, const struct job *job, struct capacity *capacity) {
    for (int i = 0; job->avoided && i < job->avoided->n; i++) {
        const struct avoided *entry = &job->avoided->of[i];
        const struct executor *ex = entry->excludes ? executor_find(s, entry->executor) : NULL;
        const bool counted = ex && executor_detachment(ex) == SCHEDULER_DETACHED_STREAM_ENDED && !ex->drained &&
                             !(job->world_size > 1 && job->slot == SCHEDULER_SLOT_CUDA && ex->single_rank);
        capacity->detached -= counted ? ex->slots[job->slot] : 0;
        if (!ex || executor_availability_for(ex, job) != SCHEDULER_HOST_AVOIDED)
            continue;
        capacity->free -= executor_free(ex, job->slot, job->world_size);
        capacity->slots -= ex->slots[job->slot];
        capacity->avoided += ex->slots[job->slot];
        capacity->avoided_at = capacity->avoided_at ? capacity->avoided_at : entry;
    }
}

static bool is_listed(const struct avoidance *a, int i) {
    for (int before = 0; before < i; before++)
        if (a->of[before].excludes && strcmp(a->of[before].why, a->of[i].why) == 0)
            return true;
    return false;
}

/* Writes "host-1, host-2: why", cut if it is longer than n. */
static size_t clause(const struct avoidance *a, int i, char *ret, size_t n) {
    size_t used = (size_t)snprintf(ret, n, "%s", a->of[i].executor);
    for (int other = i + 1; other < a->n && used < n; other++)
        if (a->of[other].excludes && strcmp(a->of[other].why, a->of[i].why) == 0)
            used += (size_t)snprintf(ret + used, n - used, ", %s", a->of[other].executor);
    if (used < n)
        used += (size_t)snprintf(ret + used, n - used, ": %s", a->of[i].why);
    if (used < n)
        return used;
    if (n > 4)
        memcpy(ret + n - 4, "...", 4);
    return n - 1;
}

bool job_avoided_text(const struct job *job, char *ret, size_t n) {
    const struct avoidance *a = job->avoided;
    int clauses = 0;
    if (excluded(job) < 2)
        return false;
    for (int i = 0; i < a->n; i++)
        clauses += a->of[i].excludes && !is_listed(a, i);
    size_t used = (size_t)snprintf(ret, n, "no executor can run it: ");
    for (int i = 0; i < a->n && clauses > 0; i++) {
        if (!a->of[i].excludes || is_listed(a, i))
            continue;
        used += clause(a, i, ret + used, (n - used) / (size_t)clauses - 2);
        if (--clauses)
            used += (size_t)snprintf(ret + used, n - used, "; ");
    }
    return true;
}
