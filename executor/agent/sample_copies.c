/* An entry is a sample with one process of trainyard-data. It is freed, and its folder removed, when the sample is over
 * and the process has ended. A process that dies after its last report changes nothing: the folder has the files. */
#include "executor/agent/sample_copies.h"

#include "api/codec/message.h"
#include "base/alloc.h"
#include "executor/agent/data_order.h"
#include "executor/agent/shard_folders.h"
#include "executor/agent/text_samples.h"
#include "executor/agent/worker_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = 400 };

struct sample_copy {
    struct sample_copies *list;
    struct sample_copy *next;
    Trainyard__V1__StartSample *start;
    struct sample_folders folders;
    struct worker_process *process; /* NULL: none runs */
    struct reactor_timer limit;
    bool settled; /* the owner knows the result, or does not want it any more */
    bool over;    /* the sample has ended */
};

struct sample_copies {
    const struct host *host;
    struct sample_copies_owner owner;
    struct sample_copy *first;
};

static void copy_free(struct sample_copy *k) {
    for (struct sample_copy **link = &k->list->first; *link; link = &(*link)->next)
        if (*link == k) {
            *link = k->next;
            break;
        }
    reactor_timer_cancel(k->list->host->loop, &k->limit);
    worker_process_close(k->process);
    sample_folders_remove(k->list->host, k->start->sample);
    attempt_secrets_wipe(k->start->request->secrets, k->start->request->n_secrets);
    trainyard__v1__start_sample__free_unpacked(k->start, NULL);
    free(k);
}

/* The sample has no use of the copies any more. */
static void end(struct sample_copy *k) {
    k->settled = k->over = true;
    if (k->process)
        worker_process_kill(k->process, "was killed because the sample has ended");
    else
        copy_free(k);
}

/* ---- from trainyard-data ---- */

/* Whether the checkpoint is gone is known; a store that is away says nothing about it. */
static status_t status_of(Trainyard__V1__WorkerEnd__Cause cause) {
    switch (cause) {
    case TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE: return ST_NOT_FOUND;
    case TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD: return ST_DATA_LOSS;
    case TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC: return ST_FAILED_PRECONDITION;
    default: return ST_UNAVAILABLE;
    }
}

static void fail(struct sample_copy *k, status_t st, const char *why) {
    char sentence[WHY_BYTES];
    snprintf(sentence, sizeof sentence, "the checkpoint cannot be copied from its store: %s", why);
    k->settled = true;
    k->list->owner.failed(k->list->owner.ctx, k->start->sample, st, sentence);
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct sample_copy *k = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_DATA || !record->data->last || k->settled)
        return;
    reactor_timer_cancel(k->list->host->loop, &k->limit);
    if (record->data->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED) {
        fail(k, status_of(record->data->cause), record->data->message);
        end(k);
        return;
    }
    k->settled = true;
    k->list->owner.ready(k->list->owner.ctx, k->start, k->folders.local, k->folders.step);
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct sample_copy *k = ctx;
    char sentence[160], why[200];
    if (!drained)
        return;
    exit_status_sentence(exit, worker_process_killed_because(k->process), sentence, sizeof sentence);
    snprintf(why, sizeof why, "trainyard-data %s", sentence);
    k->process = worker_process_close(k->process);
    if (!k->settled) {
        fail(k, ST_UNAVAILABLE, why);
        k->over = true;
    }
    if (k->over)
        copy_free(k);
}

static void limit_fire(void *ctx) {
    struct sample_copy *k = ctx;
    worker_process_kill(k->process, "took too long and was killed");
}

/* ---- from the controller ---- */

bool sample_copies_needed(const Trainyard__V1__StartSample *start) {
    return start->request && strncmp(start->request->directory, "s3://", 5) == 0;
}

static status_t process_start(struct sample_copy *k, struct err *e) {
    const struct host *host = k->list->host;
    const Trainyard__V1__WorkerSample *request = k->start->request;
    const struct worker_process_owner owner = {
        .ctx = k, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    if (*host->no_data.msg)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", host->no_data.msg);
    if (!request->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "the order has no spec, which says how the store is reached");
    TRY(sample_folders_make(host, k->start->sample, request->directory, &k->folders, e));
    Trainyard__V1__DataFetch *order = data_order_new_stores(host, request->spec, request->secrets, request->n_secrets);
    order->checkpoint = alloc_copy_text(request->directory);
    order->checkpoint_folder = alloc_copy_text(k->folders.step);
    if (request->verify) {
        free(order->cache);
        order->cache = alloc_copy_text(k->folders.cache);
    }
    status_t st = data_order_send(host, order, &owner, &k->process, e);
    data_order_free(order);
    attempt_secrets_wipe(request->secrets, request->n_secrets);
    return st;
}

static int copies_count(const struct sample_copies *cs) {
    int n = 0;
    for (const struct sample_copy *k = cs->first; k; k = k->next)
        n += !k->over;
    return n;
}

void sample_copies_start(struct sample_copies *cs, const Trainyard__V1__StartSample *start) {
    Trainyard__V1__StartSample *own = NULL;
    struct err why = { "" };
    for (const struct sample_copy *k = cs->first; k; k = k->next)
        if (k->start->sample == start->sample)
            return;
    if (copies_count(cs) == text_sample_kind.max) {
        cs->owner.failed(cs->owner.ctx, start->sample, ST_RESOURCE_EXHAUSTED, text_sample_kind.full);
        return;
    }
    if (message_copy(&start->base, &own, &why) != ST_OK) {
        cs->owner.failed(cs->owner.ctx, start->sample, ST_RESOURCE_EXHAUSTED, why.msg);
        return;
    }
    struct sample_copy *k = alloc_zeroed(1, sizeof *k);
    *k = (struct sample_copy){ .list = cs, .next = cs->first, .start = own };
    k->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = k };
    cs->first = k;
    const status_t st = process_start(k, &why);
    if (st == ST_OK) {
        const int limit_s = own->request->verify ? VERIFY_SECONDS_MAX : SAMPLE_SECONDS_MAX;
        reactor_timer_set(cs->host->loop, &k->limit, limit_s * 1000L);
        return;
    }
    fail(k, st, why.msg);
    k->over = true;
    copy_free(k);
}

void sample_copies_end(struct sample_copies *cs, int64_t sample) {
    for (struct sample_copy *k = cs->first; k; k = k->next)
        if (k->start->sample == sample && !k->over) {
            end(k);
            return;
        }
}

void sample_copies_end_all(struct sample_copies *cs) {
    for (struct sample_copy *k = cs ? cs->first : NULL, *next; k; k = next) {
        next = k->next;
        if (!k->over)
            end(k);
    }
}

/* ---- the list ---- */

struct sample_copies *sample_copies_new(const struct host *host, const struct sample_copies_owner *owner) {
    struct sample_copies *cs = alloc_zeroed(1, sizeof *cs);
    *cs = (struct sample_copies){ .host = host, .owner = *owner };
    return cs;
}

struct sample_copies *sample_copies_free(struct sample_copies *cs) {
    while (cs && cs->first)
        copy_free(cs->first);
    free(cs);
    return NULL;
}
