/* Each entry names a bucket and the number of compute instructions that must come before it (`after`). The compute
 * thread calls data_queue_start_reached after each instruction; this starts all entries that are reached, in order.
 *
 *   with a thread      `posted` grows under the lock, the thread runs entry `done` while done < posted, and
 *                      data_queue_wait sleeps until done > entry
 *   deferred           the compute thread calls the collective itself and keeps a ticket for each entry;
 *                      data_queue_wait has the kernels wait for the tickets up to the entry
 *
 * A REDUCE of a bucket leaves the sum on all data ranks (ZeRO 0), or each rank's shard of it (ZeRO 1 to 3). A GATHER
 * collects the shards of a bucket's weights. EXCHANGE, EXCHANGE_NORMS and EXCHANGE_STATISTICS unite words of which
 * all but one rank's are zero: a bitwise or is then the sum, in any order. */
#include "engine/run/data_queue.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "engine/run/execution.h"
#include "engine/run/profiler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct data_queue {
    struct collective *collective;
    bool deferred; /* no thread: the compute thread queues the entries */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;

    /* Under the lock. */
    const struct plan *plan;
    const struct execution *execution;
    int posted, done; /* entries of the queue */
    status_t status;
    struct err err;
    atomic_bool failed; /* status != ST_OK, readable without the lock */

    /* Compute thread only. */
    int next;           /* the first entry that is not posted */
    int finished;       /* entries that the kernels already wait for, if deferred */
    int *ticket;        /* by entry, if deferred */
    int64_t *queued_ns; /* by entry, for the profiler */
    int64_t waited_ns;
};

static struct collective_group group_of(const struct plan *plan, enum plan_group group) {
    const struct plan_layout *l = &plan->layout;
    if (group == GROUP_DATA)
        return (struct collective_group){ plan_stage(l) * l->data, 1, l->data };
    if (group == GROUP_STAGES)
        return (struct collective_group){ plan_data_rank(l), l->data, l->stages };
    return (struct collective_group){ 0, 1, l->data * l->stages };
}

/* Where the shards of a bucket begin, in elements from the bucket's begin. */
static void set_shard_begins(const struct plan *plan, int bucket, int64_t *ret) {
    for (int j = 0; j <= plan->layout.data; j++)
        ret[j] = plan_part_begin(plan, bucket, j) - plan->buckets[bucket].begin;
}

static status_t run_reduce(struct data_queue *q, const struct instruction *i, struct err *e) {
    const struct collective_group group = group_of(q->plan, GROUP_DATA);
    const struct plan_bucket *b = &q->plan->buckets[i->entry];
    float *x = execution_at(q->execution, plan_gradient_place(q->plan, i->buffer, b->begin));
    int64_t cut[LIMIT_WORLD_SIZE + 1];
    set_shard_begins(q->plan, i->entry, cut);
    return q->plan->layout.zero ? collective_reduce_scatter_ordered(q->collective, COLLECTIVE_DATA, &group, x, cut, e)
                                : collective_reduce_ordered(q->collective, COLLECTIVE_DATA, &group, x, cut, e);
}

static status_t run_gather(struct data_queue *q, const struct instruction *i, struct err *e) {
    const struct collective_group group = group_of(q->plan, GROUP_DATA);
    const size_t element = dtype_bytes(q->plan->graph->element);
    struct plan_place to_place, own_place;
    int64_t cut[LIMIT_WORLD_SIZE + 1];
    set_shard_begins(q->plan, i->entry, cut);
    plan_gather_places(q->plan, i->entry, &to_place, &own_place);
    char *to = execution_at(q->execution, to_place), *own = execution_at(q->execution, own_place);
    const struct kernels *k = q->execution->kernels;
    int part = plan_part_of(&q->plan->layout, plan_data_rank(&q->plan->layout));
    if (own && own != to + (size_t)cut[part] * element)
        TRY(k->move(k, to + (size_t)cut[part] * element, own, (size_t)(cut[part + 1] - cut[part]) * element, e));
    return collective_all_gather_shards(q->collective, COLLECTIVE_DATA, &group, to, element, cut, e);
}

static status_t run_exchange(struct data_queue *q, const struct instruction *i, struct err *e) {
    const struct collective_group group = group_of(q->plan, i->group);
    const struct plan *plan = q->plan;
    void *words = &q->execution->control.device->flags;
    int64_t n = step_control_result_words(plan);
    if (i->kind == INSTRUCTION_EXCHANGE_NORMS) {
        words = execution_chunk_sums(q->execution, plan);
        n = plan->norm_chunks;
    } else if (i->kind == INSTRUCTION_EXCHANGE_STATISTICS) {
        words = execution_statistics(q->execution, plan);
        n = (int64_t)(plan->statistics_bytes / sizeof(uint64_t));
    }
    return collective_or(q->collective, COLLECTIVE_DATA, &group, words, n, e);
}

static status_t run_entry(struct data_queue *q, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_REDUCE: return run_reduce(q, i, e);
    case INSTRUCTION_GATHER: return run_gather(q, i, e);
    case INSTRUCTION_EXCHANGE:
    case INSTRUCTION_EXCHANGE_NORMS:
    case INSTRUCTION_EXCHANGE_STATISTICS: return run_exchange(q, i, e);
    default: return err_set(e, ST_INTERNAL, "%s is not allowed in the data queue", instruction_name(i->kind));
    }
}

static void *thread_main(void *arg) {
    struct data_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    while (!q->closing) {
        if (q->done >= q->posted) {
            pthread_cond_wait(&q->changed, &q->lock);
            continue;
        }
        const struct instruction *entry = &q->plan->queue[QUEUE_DATA].items[q->done];
        if (q->status == ST_OK) {
            int number = q->done;
            pthread_mutex_unlock(&q->lock);
            struct err err = { "" };
            int64_t start = clock_mono_ns();
            status_t st = run_entry(q, entry, &err);
            if (q->execution->profiler)
                profiler_record(q->execution->profiler, q->plan, QUEUE_DATA, number, start, clock_mono_ns());
            pthread_mutex_lock(&q->lock);
            if (st != ST_OK) {
                q->status = st;
                q->err = err;
                atomic_store(&q->failed, true);
            }
        }
        q->done++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static status_t start_queue(struct data_queue *q, struct err *e) {
    int error = pthread_create(&q->thread, NULL, thread_main, q);
    return error ? err_set(e, status_of_errno(error), "the communication thread could not be started") : ST_OK;
}

static void free_queue(struct data_queue *q) {
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->changed);
    free(q->ticket);
    free(q->queued_ns);
    free(q);
}

status_t data_queue_open(struct collective *collective, const struct plan *const *plans, int n, struct data_queue **ret,
                         struct err *e) {
    struct data_queue *q = alloc_zeroed(1, sizeof *q);
    int max = 0;
    q->collective = collective;
    q->deferred = collective_deferred(collective);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    for (int i = 0; i < n; i++)
        max = plans[i]->queue[QUEUE_DATA].n > max ? plans[i]->queue[QUEUE_DATA].n : max;
    q->ticket = alloc_zeroed((size_t)max + 1, sizeof *q->ticket);
    q->queued_ns = alloc_zeroed((size_t)max + 1, sizeof *q->queued_ns);
    status_t st = q->deferred ? ST_OK : start_queue(q, e);
    if (st != ST_OK)
        free_queue(q);
    else
        *ret = q;
    return st;
}

static void stop_queue(struct data_queue *q) {
    pthread_mutex_lock(&q->lock);
    bool busy = q->done < q->posted;
    q->closing = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (busy)
        collective_abort(q->collective, "this rank ends");
    pthread_join(q->thread, NULL);
}

struct data_queue *data_queue_close(struct data_queue *q) {
    if (!q)
        return NULL;
    if (!q->deferred)
        stop_queue(q);
    free_queue(q);
    return NULL;
}

void data_queue_begin(struct data_queue *q, const struct plan *plan, const struct execution *x) {
    pthread_mutex_lock(&q->lock);
    q->plan = plan;
    q->execution = x;
    q->posted = q->done = 0;
    pthread_mutex_unlock(&q->lock);
    q->next = q->finished = 0;
}

/* Under the lock. */
static status_t failure(const struct data_queue *q, struct err *e) {
    return q->status == ST_OK ? ST_OK : err_set(e, q->status, "%s", q->err.msg);
}

/* Kernel work issued for an entry is queued at the entry's position. */
static status_t queue_entries(struct data_queue *q, int done, struct err *e) {
    const struct instruction_list *list = &q->plan->queue[QUEUE_DATA];
    for (; q->next < list->n && list->items[q->next].after <= done; q->next++) {
        q->queued_ns[q->next] = clock_mono_ns();
        TRY(run_entry(q, &list->items[q->next], e));
        TRY(collective_mark(q->collective, &q->ticket[q->next], e));
    }
    return ST_OK;
}

/* Entries finish in order. For a profile the host waits, too. */
static status_t finish_entries(struct data_queue *q, int entry, struct err *e) {
    const struct execution *x = q->execution;
    const int first = q->finished;
    for (; q->finished <= entry; q->finished++)
        TRY(collective_finish(q->collective, COLLECTIVE_DATA, q->ticket[q->finished], e));
    if (!x->profiler)
        return ST_OK;
    TRY(x->kernels->finish(x->kernels, e));
    for (int i = first; i <= entry; i++)
        profiler_record(x->profiler, q->plan, QUEUE_DATA, i, q->queued_ns[i], clock_mono_ns());
    return ST_OK;
}

status_t data_queue_start_reached(struct data_queue *q, int done, struct err *e) {
    const struct instruction_list *list = &q->plan->queue[QUEUE_DATA];
    int next = q->next;
    if (q->deferred)
        return queue_entries(q, done, e);
    while (next < list->n && list->items[next].after <= done)
        next++;
    if (next == q->next && !atomic_load_explicit(&q->failed, memory_order_relaxed))
        return ST_OK;
    q->next = next;
    pthread_mutex_lock(&q->lock);
    q->posted = next;
    pthread_cond_broadcast(&q->changed);
    status_t st = failure(q, e);
    pthread_mutex_unlock(&q->lock);
    return st;
}

status_t data_queue_wait(struct data_queue *q, int entry, struct err *e) {
    if (q->deferred)
        return finish_entries(q, entry, e);
    pthread_mutex_lock(&q->lock);
    if (q->done <= entry && q->status == ST_OK) {
        int64_t start = clock_mono_ns();
        while (q->done <= entry && q->status == ST_OK)
            pthread_cond_wait(&q->changed, &q->lock);
        q->waited_ns += clock_mono_ns() - start;
    }
    status_t st = failure(q, e);
    pthread_mutex_unlock(&q->lock);
    return st;
}

status_t data_queue_confirm(struct data_queue *q, struct err *e) { return collective_confirm(q->collective, e); }

int64_t data_queue_wait_ns(const struct data_queue *q) { return q->waited_ns; }
