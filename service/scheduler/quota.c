/* Queues with their settings, their quotas, and their shares of the slots.
 *
 * Quotas. A queue may use `quota` slots of a kind. A queue of a cohort may use more: slots that others of the cohort
 * leave free. For each kind of slots:
 *
 *   reserved(q)   what q does not lend: max(0, quota - lend), 0 without `lend`
 *   pool          the sum of quota(q) - reserved(q) over the queues of the cohort that have a quota
 *   taken         the sum of max(0, used(q) - reserved(q)) over the same queues
 *
 * A job with n ranks may start if used + n <= quota + borrow (in a cohort), and
 * n <= max(0, reserved - used) + pool - taken. Without a cohort: used + n <= quota. While a job waits for the pool, no
 * job behind it borrows (`claimed_by`): what becomes free is left for it. Without a quota there is no limit, and the
 * queue takes no part in its cohort for that kind.
 *
 * A user may use `user_slots` slots in a queue. While this keeps a job back, no job of the user behind it starts in the
 * queue (`waits`). Slots are in use from the start of an attempt until no process is left.
 *
 * Fair share. average(q) is the mean of the slots that q has used in the past, in which older use counts less: half
 * as much after half_time_ms. It is updated when `used` changes. (average + used) / weight is the share by which
 * queues are compared (queue_share): the lowest goes first. The use of one kind does not count for the other. */
#include "base/alloc.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static int max_of(int a, int b) { return a > b ? a : b; }
static int min_of(int a, int b) { return a < b ? a : b; }

/* ---- cohorts ---- */

static int reserved(const struct queue *q, int slot) {
    return q->lend[slot] < 0 ? 0 : max_of(0, q->quota[slot] - q->lend[slot]);
}

/* Adds the queue's part of the pool to its cohort, or subtracts it. */
static void count_in_cohort(struct queue *q, int slot, int sign) {
    if (!q->cohort || q->quota[slot] < 0)
        return;
    q->cohort->pool[slot] += sign * (q->quota[slot] - reserved(q, slot));
    q->cohort->taken[slot] += sign * max_of(0, q->used[slot] - reserved(q, slot));
}

static struct cohort *cohort_take(struct scheduler *s, const char *name) {
    if (!*name)
        return NULL;
    void *const *node = tfind(name, &s->cohorts, by_text);
    struct cohort *cohort = node ? *node : alloc_zeroed(1, sizeof *cohort);
    if (!node) {
        snprintf(cohort->name, sizeof cohort->name, "%s", name);
        alloc_tree_node(cohort, &s->cohorts, by_text);
    }
    cohort->queues++;
    return cohort;
}

static void cohort_drop(struct scheduler *s, struct cohort *cohort) {
    if (!cohort || --cohort->queues > 0)
        return;
    tdelete(cohort->name, &s->cohorts, by_text);
    free(cohort);
}

/* ---- queues ---- */

struct queue *queue_find(const struct scheduler *s, const char *name) {
    void *const *node = tfind(name, &s->queues_by_name, by_text);
    return node ? *node : NULL;
}

/* A queue that only its jobs name has these settings, as a row without any has. */
static struct queue *queue_add(struct scheduler *s, const char *name) {
    struct queue *q = alloc_zeroed(1, sizeof *q);
    snprintf(q->name, sizeof q->name, "%s", name);
    q->weight = 1;
    q->max_priority = INT_MAX;
    q->average_ms = s->now_ms;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        q->quota[k] = q->borrow[k] = q->lend[k] = q->user_slots[k] = -1;
    alloc_tree_node(q, &s->queues_by_name, by_text);
    s->queues = alloc_grow(s->queues, (size_t)s->n_queues, sizeof(struct queue *));
    s->queues[s->n_queues++] = q;
    return q;
}

static void free_user(void *user) { free(user); }

void queue_free(struct queue *q) {
    tdestroy(q->users, free_user);
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        free(q->lines[k].items);
    free(q);
}

static void forget_if_unused(struct scheduler *s, struct queue *q) {
    if (q->has_row || q->n_jobs > 0)
        return;
    int at = 0;
    while (s->queues[at] != q)
        at++;
    s->queues[at] = s->queues[--s->n_queues];
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        count_in_cohort(q, k, -1);
    cohort_drop(s, q->cohort);
    tdelete(q->name, &s->queues_by_name, by_text);
    queue_free(q);
}

static int by_order(const void *a, const void *b) {
    const struct waiting *x = a, *y = b;
    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

int queue_priority(const struct queue *q, int given) { return min_of(given, q->max_priority); }

/* The jobs of the queue get the priorities that its ceiling allows. Only jobs that wait are sorted by it. */
static void set_ceiling(struct queue *q, int max_priority) {
    if (q->max_priority == max_priority)
        return;
    q->max_priority = max_priority;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        struct line *line = &q->lines[k];
        for (size_t i = 0; i < line->n; i++)
            line->items[i].priority = line->items[i].job->priority = queue_priority(q,
                                                                                    line->items[i].job->given_priority);
        if (line->n > 0)
            qsort(line->items, line->n, sizeof *line->items, by_order);
    }
}

void queue_set(struct scheduler *s, const struct scheduler_queue *row) {
    struct queue *q = queue_find(s, row->name);
    q = q ? q : queue_add(s, row->name);
    q->has_row = true;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        count_in_cohort(q, k, -1);
    if (strcmp(q->cohort ? q->cohort->name : "", row->cohort ? row->cohort : "") != 0) {
        cohort_drop(s, q->cohort);
        q->cohort = cohort_take(s, row->cohort ? row->cohort : "");
    }
    q->weight = row->weight;
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        q->quota[k] = row->quota[k];
        q->borrow[k] = row->borrow[k];
        q->lend[k] = row->lend[k];
        q->user_slots[k] = row->user_slots[k];
        count_in_cohort(q, k, 1);
    }
    set_ceiling(q, row->max_priority);
    s->needs_placing = true;
}

void queue_unset(struct scheduler *s, const char *name) {
    struct queue *q = queue_find(s, name);
    if (!q)
        return;
    queue_set(s, &(struct scheduler_queue){ .name = name,
                                            .weight = 1,
                                            .max_priority = INT_MAX,
                                            .quota = { -1, -1 },
                                            .borrow = { -1, -1 },
                                            .lend = { -1, -1 },
                                            .user_slots = { -1, -1 } });
    q->has_row = false;
    forget_if_unused(s, q);
}

/* ---- jobs ---- */

void queue_join(struct scheduler *s, struct job *job, const char *queue, const char *user) {
    struct queue *q = queue_find(s, queue);
    q = q ? q : queue_add(s, queue);
    q->n_jobs++;
    job->queue = q;
    void *const *node = tfind(user, &q->users, by_text);
    struct user *u = node ? *node : alloc_zeroed(1, sizeof *u);
    if (!node) {
        snprintf(u->name, sizeof u->name, "%s", user);
        alloc_tree_node(u, &q->users, by_text);
    }
    u->n_jobs++;
    job->user = u;
}

void queue_leave(struct scheduler *s, struct job *job) {
    struct queue *q = job->queue;
    if (--job->user->n_jobs == 0) {
        struct user *u = job->user;
        tdelete(u->name, &q->users, by_text);
        free(u);
    }
    q->n_jobs--;
    forget_if_unused(s, q);
}

/* ---- use ---- */

static void update_average(const struct scheduler *s, struct queue *q) {
    const int64_t passed_ms = s->now_ms - q->average_ms;
    if (passed_ms <= 0)
        return;
    const double kept = exp2(-(double)passed_ms / (double)s->half_time_ms);
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        q->average[k] = q->used[k] + (q->average[k] - q->used[k]) * kept;
    q->average_ms = s->now_ms;
}

void queue_use(const struct scheduler *s, struct job *job, int slots) {
    struct queue *q = job->queue;
    update_average(s, q);
    count_in_cohort(q, (int)job->slot, -1);
    q->used[job->slot] += slots;
    job->user->used[job->slot] += slots;
    count_in_cohort(q, (int)job->slot, 1);
    assert(q->used[job->slot] >= 0 && job->user->used[job->slot] >= 0);
}

double queue_share(const struct scheduler *s, struct queue *q, enum scheduler_slot slot) {
    update_average(s, q);
    return (q->average[slot] + q->used[slot]) / q->weight;
}

void queue_load_average(const struct scheduler *s, struct queue *q, const double average[SCHEDULER_SLOT_KINDS],
                        int64_t age_ms) {
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++)
        q->average[k] = average[k] * exp2(-(double)age_ms / (double)s->half_time_ms);
}

/* ---- limits ---- */

bool queue_borrows(const struct queue *q, enum scheduler_slot slot, int ranks) {
    return q->quota[slot] >= 0 && q->used[slot] + ranks > q->quota[slot];
}

/* The most slots that the queue could ever have. */
static int highest_use(const struct queue *q, enum scheduler_slot slot) {
    if (!q->cohort)
        return q->quota[slot];
    const int pool = reserved(q, (int)slot) + q->cohort->pool[slot];
    return q->borrow[slot] < 0 ? pool : min_of(pool, q->quota[slot] + q->borrow[slot]);
}

/* The slots that the queue may take now. */
static int slots_left(const struct queue *q, enum scheduler_slot slot) {
    if (!q->cohort)
        return q->quota[slot] - q->used[slot];
    return max_of(0, reserved(q, (int)slot) - q->used[slot]) + q->cohort->pool[slot] - q->cohort->taken[slot];
}

enum queue_limit queue_limit(const struct scheduler *s, const struct queue *q, const struct user *u,
                             enum scheduler_slot slot, int ranks, int64_t id) {
    const int user_slots = q->user_slots[slot];
    if (user_slots >= 0 && ranks > user_slots)
        return QUEUE_LIMIT_USER_NEVER;
    if (q->quota[slot] >= 0 && ranks > highest_use(q, slot))
        return QUEUE_LIMIT_NEVER;
    if (user_slots >= 0 && u->used[slot] + ranks > user_slots)
        return QUEUE_LIMIT_USER;
    if (u->waits[slot].job && u->waits[slot].walk == s->effort.placings && u->waits[slot].job != id)
        return QUEUE_LIMIT_USER_TURN;
    if (q->quota[slot] < 0)
        return QUEUE_LIMIT_NONE;
    if (!q->cohort)
        return ranks > slots_left(q, slot) ? QUEUE_LIMIT_QUOTA : QUEUE_LIMIT_NONE;
    if (q->borrow[slot] >= 0 && q->used[slot] + ranks > q->quota[slot] + q->borrow[slot])
        return QUEUE_LIMIT_QUOTA;
    if (ranks > slots_left(q, slot))
        return QUEUE_LIMIT_COHORT;
    const int64_t first = q->cohort->claimed_by[slot];
    return first && first != id && queue_borrows(q, slot, ranks) ? QUEUE_LIMIT_COHORT_TURN : QUEUE_LIMIT_NONE;
}

enum queue_limit queue_limit_of(const struct scheduler *s, const struct job *job) {
    return queue_limit(s, job->queue, job->user, job->slot, job->world_size, job->id);
}

int queue_spare(const struct job *job) {
    const struct queue *q = job->queue;
    int n = INT_MAX;
    if (q->user_slots[job->slot] >= 0)
        n = max_of(0, q->user_slots[job->slot] - job->user->used[job->slot]);
    if (q->quota[job->slot] >= 0)
        n = min_of(n, max_of(0, min_of(q->quota[job->slot] - q->used[job->slot], slots_left(q, job->slot))));
    return n;
}

/* ---- sentences ---- */

/* The queue of the cohort that has borrowed most. */
static const struct queue *borrower(const struct scheduler *s, const struct queue *of, enum scheduler_slot slot) {
    const struct queue *best = NULL;
    for (int i = 0; i < s->n_queues; i++) {
        const struct queue *q = s->queues[i];
        if (q == of || q->cohort != of->cohort || q->quota[slot] < 0 || q->used[slot] <= q->quota[slot])
            continue;
        if (!best || q->used[slot] - q->quota[slot] > best->used[slot] - best->quota[slot] ||
            (q->used[slot] - q->quota[slot] == best->used[slot] - best->quota[slot] && strcmp(q->name, best->name) < 0))
            best = q;
    }
    return best;
}

static void cohort_text(const struct scheduler *s, const struct job *job, char *ret, size_t n) {
    const struct queue *q = job->queue, *by = borrower(s, q, job->slot);
    const char *kind = slot_name(job->slot);
    const int k = (int)job->slot;
    if (by)
        snprintf(ret, n,
                 "needs %d %s slot%s of queue '%s', which uses %d of its quota of %d, and cohort '%s' has %d left: "
                 "queue '%s' has borrowed %d",
                 job->world_size, kind, job->world_size == 1 ? "" : "s", q->name, q->used[k], q->quota[k],
                 q->cohort->name, max_of(0, slots_left(q, job->slot)), by->name, by->used[k] - by->quota[k]);
    else
        snprintf(ret, n,
                 "needs %d %s slot%s of queue '%s', which uses %d of its quota of %d, and cohort '%s' has %d left",
                 job->world_size, kind, job->world_size == 1 ? "" : "s", q->name, q->used[k], q->quota[k],
                 q->cohort->name, max_of(0, slots_left(q, job->slot)));
}

void queue_limit_text(const struct scheduler *s, const struct job *job, enum queue_limit limit, char *ret, size_t n) {
    const struct queue *q = job->queue;
    const char *kind = slot_name(job->slot), *plural = job->world_size == 1 ? "" : "s";
    const int k = (int)job->slot;
    switch (limit) {
    case QUEUE_LIMIT_NONE: *ret = '\0'; return;
    case QUEUE_LIMIT_NEVER:
        snprintf(ret, n, "needs %d %s slot%s, more than the %d that queue '%s' can ever have", job->world_size, kind,
                 plural, highest_use(q, job->slot), q->name);
        return;
    case QUEUE_LIMIT_USER_NEVER:
        snprintf(ret, n, "needs %d %s slot%s, more than the %d of one user in queue '%s'", job->world_size, kind,
                 plural, q->user_slots[k], q->name);
        return;
    case QUEUE_LIMIT_USER:
        snprintf(ret, n, "needs %d %s slot%s, and user '%s' uses %d of the %d of one user in queue '%s'",
                 job->world_size, kind, plural, job->user->name, job->user->used[k], q->user_slots[k], q->name);
        return;
    case QUEUE_LIMIT_USER_TURN:
        snprintf(ret, n,
                 "needs %d %s slot%s, and job %lld is before it, which waits for slots of user '%s' in queue '%s'",
                 job->world_size, kind, plural, (long long)job->user->waits[k].job, job->user->name, q->name);
        return;
    case QUEUE_LIMIT_QUOTA:
        if (q->cohort)
            snprintf(ret, n,
                     "needs %d %s slot%s, and queue '%s' uses %d of its quota of %d and of %d more that it may borrow",
                     job->world_size, kind, plural, q->name, q->used[k], q->quota[k], q->borrow[k]);
        else
            snprintf(ret, n, "needs %d %s slot%s, and queue '%s' uses %d of its quota of %d", job->world_size, kind,
                     plural, q->name, q->used[k], q->quota[k]);
        return;
    case QUEUE_LIMIT_COHORT: cohort_text(s, job, ret, n); return;
    case QUEUE_LIMIT_COHORT_TURN:
        snprintf(ret, n,
                 "needs %d %s slot%s, more than the quota of queue '%s' leaves (%d of %d are used), and cohort '%s' "
                 "lends none until job %lld has started, which is before it",
                 job->world_size, kind, plural, q->name, q->used[k], q->quota[k], q->cohort->name,
                 (long long)q->cohort->claimed_by[k]);
        return;
    }
}
