#include "executor/engine/run/channel.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct channel {
    struct collective *collective;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;

    /* Under the lock. */
    const struct plan *plan;
    struct channel_memory memory;
    int posted, done; /* entries of plan->channel */
    status_t status;
    struct err err;
    atomic_bool failed; /* status, for a look without the lock */

    int next; /* compute thread only: the first entry that is not posted */
    int64_t waited_ns;
};

static status_t run_entry(struct channel *ch, const struct instruction *i, struct err *e) {
    const struct channel_memory *m = &ch->memory;
    switch (i->kind) {
    case INSTRUCTION_REDUCE:
        return collective_reduce_ordered(ch->collective, COLLECTIVE_GRADIENTS,
                                         m->gradients + i->buffer * ch->plan->gradient_elements + i->begin,
                                         i->end - i->begin, e);
    case INSTRUCTION_EXCHANGE:
        return collective_all_gather(ch->collective, COLLECTIVE_GRADIENTS, m->record, m->record_bytes, m->records, e);
    default: return err_set(e, ST_INTERNAL, "%s has no place on a channel", instruction_name(i->kind));
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
        const struct instruction *entry = &ch->plan->channel.items[ch->done];
        if (ch->status == ST_OK) {
            pthread_mutex_unlock(&ch->lock);
            struct err err = { "" };
            status_t st = run_entry(ch, entry, &err);
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

status_t channel_open(struct collective *collective, struct channel **ret, struct err *e) {
    struct channel *ch = calloc(1, sizeof *ch);
    if (!ch)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a channel");
    ch->collective = collective;
    pthread_mutex_init(&ch->lock, NULL);
    pthread_cond_init(&ch->changed, NULL);
    int error = pthread_create(&ch->thread, NULL, channel_main, ch);
    if (error) {
        free(ch);
        return err_set(e, status_of_errno(error), "the communication thread could not be started");
    }
    *ret = ch;
    return ST_OK;
}

struct channel *channel_close(struct channel *ch) {
    if (!ch)
        return NULL;
    pthread_mutex_lock(&ch->lock);
    bool busy = ch->done < ch->posted;
    ch->closing = true;
    pthread_cond_broadcast(&ch->changed);
    pthread_mutex_unlock(&ch->lock);
    if (busy)
        collective_abort(ch->collective, "this rank ends");
    pthread_join(ch->thread, NULL);
    pthread_mutex_destroy(&ch->lock);
    pthread_cond_destroy(&ch->changed);
    free(ch);
    return NULL;
}

void channel_begin(struct channel *ch, const struct plan *plan, const struct channel_memory *memory) {
    pthread_mutex_lock(&ch->lock);
    ch->plan = plan;
    ch->memory = *memory;
    ch->posted = ch->done = 0;
    pthread_mutex_unlock(&ch->lock);
    ch->next = 0;
}

/* Under the lock. */
static status_t failure(const struct channel *ch, struct err *e) {
    return ch->status == ST_OK ? ST_OK : err_set(e, ch->status, "%s", ch->err.msg);
}

status_t channel_reached(struct channel *ch, int done, struct err *e) {
    const struct instruction_list *list = &ch->plan->channel;
    int next = ch->next;
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

int64_t channel_wait_ns(const struct channel *ch) { return ch->waited_ns; }
