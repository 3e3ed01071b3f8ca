#include "executor/engine/run/channel.h"

#include "base/clock.h"
#include "base/limits.h"
#include "executor/engine/run/execute.h"
#include "executor/engine/run/profiler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct channel {
    struct collective *collective;
    bool deferred; /* there is no thread: the compute thread queues */
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
    atomic_bool failed; /* status, for a look without the lock */

    /* Compute thread only. */
    int next;       /* the first entry that is not posted */
    int finished;   /* entries that the kernels wait for, if deferred */
    int *ticket;    /* by entry, if deferred */
    int64_t *begun; /* by entry: when it was queued, for the profiler */
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

/* Where a bucket is cut, in elements from its begin. */
static void cuts_of(const struct plan *plan, int bucket, int64_t *ret) {
    for (int j = 0; j <= plan->layout.data; j++)
        ret[j] = plan_cut(plan, bucket, j) - plan->buckets[bucket].begin;
}

static status_t run_reduce(struct channel *ch, const struct instruction *i, struct err *e) {
    const struct collective_group group = group_of(ch->plan, GROUP_DATA);
    const struct plan_bucket *b = &ch->plan->buckets[i->entry];
    float *x = execution_at(ch->execution, plan_gradient_place(ch->plan, i->buffer, b->begin));
    int64_t cut[LIMIT_WORLD_SIZE + 1];
    cuts_of(ch->plan, i->entry, cut);
    return ch->plan->layout.zero ? collective_reduce_scatter_ordered(ch->collective, COLLECTIVE_DATA, &group, x, cut, e)
                                 : collective_reduce_ordered(ch->collective, COLLECTIVE_DATA, &group, x, cut, e);
}

static status_t run_gather(struct channel *ch, const struct instruction *i, struct err *e) {
    const struct collective_group group = group_of(ch->plan, GROUP_DATA);
    const size_t element = dtype_bytes(ch->plan->graph->element);
    struct plan_place to_place, own_place;
    int64_t cut[LIMIT_WORLD_SIZE + 1];
    cuts_of(ch->plan, i->entry, cut);
    plan_gather_places(ch->plan, i->entry, &to_place, &own_place);
    char *to = execution_at(ch->execution, to_place), *own = execution_at(ch->execution, own_place);
    const struct kernels *k = ch->execution->kernels;
    int part = plan_part(&ch->plan->layout, plan_data_rank(&ch->plan->layout));
    if (own && own != to + (size_t)cut[part] * element)
        TRY(k->move(k, to + (size_t)cut[part] * element, own, (size_t)(cut[part + 1] - cut[part]) * element, e));
    return collective_all_gather_pieces(ch->collective, COLLECTIVE_DATA, &group, to, element, cut, e);
}

/* Zeros everywhere but where a rank has filled in its own: the union is the sum. */
static status_t run_exchange(struct channel *ch, const struct instruction *i, struct err *e) {
    const struct collective_group group = group_of(ch->plan, i->group);
    const struct plan *plan = ch->plan;
    bool norms = i->kind == INSTRUCTION_EXCHANGE_NORMS;
    void *words = norms ? (void *)execution_chunk_sums(ch->execution, plan) : &ch->execution->control.device->flags;
    int64_t n = norms ? plan->norm_chunks : step_control_record_words(plan);
    return collective_or(ch->collective, COLLECTIVE_DATA, &group, words, n, e);
}

static status_t run_entry(struct channel *ch, const struct instruction *i, struct err *e) {
    switch (i->kind) {
    case INSTRUCTION_REDUCE: return run_reduce(ch, i, e);
    case INSTRUCTION_GATHER: return run_gather(ch, i, e);
    case INSTRUCTION_EXCHANGE:
    case INSTRUCTION_EXCHANGE_NORMS: return run_exchange(ch, i, e);
    default: return err_set(e, ST_INTERNAL, "%s has no place on the data queue", instruction_name(i->kind));
    }
}

static void *channel_main(void *arg) {
    struct channel *ch = arg;
    pthread_mutex_lock(&ch->lock);
    while (!ch->closing) {
        if (ch->done >= ch->posted) {
            pthread_cond_wait(&ch->changed, &ch->lock);
            continue;
        }
        const struct instruction *entry = &ch->plan->queue[QUEUE_DATA].items[ch->done];
        if (ch->status == ST_OK) {
            int number = ch->done;
            pthread_mutex_unlock(&ch->lock);
            struct err err = { "" };
            int64_t start = clock_mono_ns();
            status_t st = run_entry(ch, entry, &err);
            if (ch->execution->profiler)
                profiler_note(ch->execution->profiler, ch->plan, QUEUE_DATA, number, start, clock_mono_ns());
            pthread_mutex_lock(&ch->lock);
            if (st != ST_OK) {
                ch->status = st;
                ch->err = err;
                atomic_store(&ch->failed, true);
            }
        }
        ch->done++;
        pthread_cond_broadcast(&ch->changed);
    }
    pthread_mutex_unlock(&ch->lock);
    return NULL;
}

static status_t channel_start(struct channel *ch, struct err *e) {
    int error = pthread_create(&ch->thread, NULL, channel_main, ch);
    return error ? err_set(e, status_of_errno(error), "the communication thread could not be started") : ST_OK;
}

static void channel_free(struct channel *ch) {
    pthread_mutex_destroy(&ch->lock);
    pthread_cond_destroy(&ch->changed);
    free(ch->ticket);
    free(ch->begun);
    free(ch);
}

status_t channel_open(struct collective *collective, const struct plan *const *plans, int n, struct channel **ret,
                      struct err *e) {
    struct channel *ch = calloc(1, sizeof *ch);
    int most = 0;
    if (!ch)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a channel");
    ch->collective = collective;
    ch->deferred = collective_deferred(collective);
    pthread_mutex_init(&ch->lock, NULL);
    pthread_cond_init(&ch->changed, NULL);
    for (int i = 0; i < n; i++)
        most = plans[i]->queue[QUEUE_DATA].n > most ? plans[i]->queue[QUEUE_DATA].n : most;
    ch->ticket = calloc((size_t)most + 1, sizeof *ch->ticket);
    ch->begun = calloc((size_t)most + 1, sizeof *ch->begun);
    status_t st = ch->ticket && ch->begun ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a channel");
    if (st == ST_OK && !ch->deferred)
        st = channel_start(ch, e);
    if (st != ST_OK)
        channel_free(ch);
    else
        *ret = ch;
    return st;
}

static void channel_stop(struct channel *ch) {
    pthread_mutex_lock(&ch->lock);
    bool busy = ch->done < ch->posted;
    ch->closing = true;
    pthread_cond_broadcast(&ch->changed);
    pthread_mutex_unlock(&ch->lock);
    if (busy)
        collective_abort(ch->collective, "this rank ends");
    pthread_join(ch->thread, NULL);
}

struct channel *channel_close(struct channel *ch) {
    if (!ch)
        return NULL;
    if (!ch->deferred)
        channel_stop(ch);
    channel_free(ch);
    return NULL;
}

void channel_begin(struct channel *ch, const struct plan *plan, const struct execution *x) {
    pthread_mutex_lock(&ch->lock);
    ch->plan = plan;
    ch->execution = x;
    ch->posted = ch->done = 0;
    pthread_mutex_unlock(&ch->lock);
    ch->next = ch->finished = 0;
}

/* Under the lock. */
static status_t failure(const struct channel *ch, struct err *e) {
    return ch->status == ST_OK ? ST_OK : err_set(e, ch->status, "%s", ch->err.msg);
}

/* Also what compute gives the kernels for an entry stands where the entry does. */
static status_t queue_entries(struct channel *ch, int done, struct err *e) {
    const struct instruction_list *list = &ch->plan->queue[QUEUE_DATA];
    for (; ch->next < list->n && list->items[ch->next].after <= done; ch->next++) {
        ch->begun[ch->next] = clock_mono_ns();
        TRY(run_entry(ch, &list->items[ch->next], e));
        TRY(collective_mark(ch->collective, &ch->ticket[ch->next], e));
    }
    return ST_OK;
}

/* Later entries come after earlier ones. For a profile the host waits too. */
static status_t finish_entries(struct channel *ch, int entry, struct err *e) {
    const struct execution *x = ch->execution;
    const int first = ch->finished;
    for (; ch->finished <= entry; ch->finished++)
        TRY(collective_finish(ch->collective, COLLECTIVE_DATA, ch->ticket[ch->finished], e));
    if (!x->profiler)
        return ST_OK;
    TRY(x->kernels->finish(x->kernels, e));
    for (int i = first; i <= entry; i++)
        profiler_note(x->profiler, ch->plan, QUEUE_DATA, i, ch->begun[i], clock_mono_ns());
    return ST_OK;
}

status_t channel_reached(struct channel *ch, int done, struct err *e) {
    const struct instruction_list *list = &ch->plan->queue[QUEUE_DATA];
    int next = ch->next;
    if (ch->deferred)
        return queue_entries(ch, done, e);
    while (next < list->n && list->items[next].after <= done)
        next++;
    if (next == ch->next && !atomic_load_explicit(&ch->failed, memory_order_relaxed))
        return ST_OK;
    ch->next = next;
    pthread_mutex_lock(&ch->lock);
    ch->posted = next;
    pthread_cond_broadcast(&ch->changed);
    status_t st = failure(ch, e);
    pthread_mutex_unlock(&ch->lock);
    return st;
}

status_t channel_wait(struct channel *ch, int entry, struct err *e) {
    if (ch->deferred)
        return finish_entries(ch, entry, e);
    pthread_mutex_lock(&ch->lock);
    if (ch->done <= entry && ch->status == ST_OK) {
        int64_t start = clock_mono_ns();
        while (ch->done <= entry && ch->status == ST_OK)
            pthread_cond_wait(&ch->changed, &ch->lock);
        ch->waited_ns += clock_mono_ns() - start;
    }
    status_t st = failure(ch, e);
    pthread_mutex_unlock(&ch->lock);
    return st;
}

status_t channel_confirm(struct channel *ch, struct err *e) { return collective_confirm(ch->collective, e); }

int64_t channel_wait_ns(const struct channel *ch) { return ch->waited_ns; }
