/* An entry is an attempt with at most one process of trainyard-data, which lives as long as the attempt: its locks keep
 * the copies. If that process is killed, it is started again, a few times: what it had copied is in the cache. The
 * entry is freed when the attempt has ended and the process too. */
#include "executor/agent/data_copies.h"

#include "api/spec/data_uri.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/data_order.h"
#include "executor/agent/job_user.h"
#include "executor/agent/shard_folders.h"
#include "executor/agent/worker_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STARTS_MAX = 3 };

struct data_copy {
    struct data_copies *list;
    struct data_copy *next;
    int64_t job;
    int32_t attempt;
    Trainyard__V1__DataFetch *order;
    struct worker_process *process; /* NULL: none runs */
    int starts;
    bool has_reported; /* the last report has arrived */
    bool ready;        /* it was good: the process keeps the copies in use */
    bool has_objects;  /* some reports of this process had objects */
    bool unwanted;     /* the attempt has ended */
};

struct data_copies {
    const struct host *host;
    struct data_copies_owner owner;
    struct data_copy *first;
    struct data_copies_bytes bytes;
};

static void copy_free(struct data_copy *k) {
    for (struct data_copy **link = &k->list->first; *link; link = &(*link)->next)
        if (*link == k) {
            *link = k->next;
            break;
        }
    worker_process_close(k->process);
    data_order_free(k->order);
    free(k);
}

/* ---- reports ---- */

static void pass_on(struct data_copy *k, Trainyard__V1__DataReport *report) {
    if (!k->unwanted)
        k->list->owner.report(k->list->owner.ctx, k->job, k->attempt, report);
}

static void ended_badly(struct data_copy *k, const char *why) {
    log_event(LOG_WARN, "data_failed", "job", LOG_INT(k->job), "attempt", LOG_INT(k->attempt), "reason", LOG_STR(why),
              NULL);
}

static void fail(struct data_copy *k, const char *why) {
    Trainyard__V1__DataReport report = TRAINYARD__V1__DATA_REPORT__INIT;
    report.last = true;
    report.cause = TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
    report.message = (char *)(uintptr_t)why;
    k->has_reported = true;
    ended_badly(k, why);
    pass_on(k, &report);
}

static void bytes_add(struct data_copies_bytes *to, const Trainyard__V1__DataReport *report) {
    to->store += report->store_bytes;
    to->peer += report->peer_bytes;
    to->cache += report->cache_bytes;
}

struct data_copies_bytes data_copies_bytes(const struct data_copies *ds) {
    return ds->bytes;
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct data_copy *k = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_DATA || k->has_reported)
        return;
    Trainyard__V1__DataReport *report = record->data;
    if (report->last) {
        k->has_reported = true;
        bytes_add(&k->list->bytes, report);
        k->ready = report->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
        if (!k->ready)
            ended_badly(k, report->message);
    }
    report->again = report->n_objects > 0 && !k->has_objects && k->starts > 1;
    k->has_objects |= report->n_objects > 0;
    pass_on(k, report);
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static status_t copy_start(struct data_copy *k, struct err *e);

/* The process was killed before it could say how the copying ended, or while it kept the copies. */
static bool started_again(struct data_copy *k) {
    struct err why;
    if (k->unwanted || (k->has_reported && !k->ready) || k->starts >= STARTS_MAX)
        return false;
    if (copy_start(k, &why) != ST_OK && !k->has_reported)
        fail(k, why.msg);
    return true;
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct data_copy *k = ctx;
    if (!drained)
        return;
    char sentence[160], why[200];
    exit_status_sentence(exit, worker_process_killed_because(k->process), sentence, sizeof sentence);
    snprintf(why, sizeof why, "data: trainyard-data %s", sentence);
    k->process = worker_process_close(k->process);
    if (!started_again(k) && !k->unwanted && !k->has_reported)
        fail(k, why);
    if (k->unwanted)
        copy_free(k);
}

/* ---- start ---- */

bool data_copies_needed(const Trainyard__V1__JobSpec *spec) {
    size_t n;
    free(data_uris_remote(spec, &n));
    return n > 0;
}

static status_t cache_make(struct host *host, struct err *e) {
    const struct agent_options *o = host->options;
    if (o->data_cache_bytes == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "it was started with --data-cache-mib 0");
    if ((o->worker_user || job_user_is_own(o)) && !o->data_cache)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "its workers do not reach its directory, and it was started without --data-cache");
    if (access(o->data, X_OK) < 0)
        return err_errno(e, "'%s' cannot be executed", o->data);
    if (snprintf(host->data_cache, sizeof host->data_cache, "%s%s",
                 o->data_cache ? o->data_cache : directory_path(host->directory),
                 o->data_cache ? "" : "/data") >= (int)sizeof host->data_cache)
        return err_set(e, ST_INVALID_ARGUMENT, "--data-cache: the path is too long");
    return dir_make(host->data_cache, 0755, e);
}

void data_cache_open(struct host *host) {
    struct err why;
    host->no_data.msg[0] = '\0';
    if (cache_make(host, &why) == ST_OK)
        return;
    status_ignore(err_set(&host->no_data, ST_FAILED_PRECONDITION, "this executor copies no data of https, s3 or hf: %s",
                          why.msg));
    log_event(LOG_WARN, "no_data_cache", "reason", LOG_STR(host->no_data.msg), NULL);
}

static status_t copy_start(struct data_copy *k, struct err *e) {
    const struct worker_process_owner owner = {
        .ctx = k, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    k->starts++;
    k->has_objects = false;
    return data_order_send(k->list->host, k->order, &owner, &k->process, e);
}

/* What the attempt needs from stores beside its data, and what its store must allow. */
static void order_add(const struct host *host, const Trainyard__V1__AttemptStart *order,
                      const struct shard_folders *folders, Trainyard__V1__DataFetch *to) {
    if (*folders->resume) {
        to->checkpoint = alloc_copy_text(order->resume_directory);
        to->checkpoint_folder = alloc_copy_text(folders->resume);
    }
    if (*folders->weights) {
        to->weights = shard_weights_pattern(order->spec, order->init_directory);
        to->weights_folder = alloc_copy_text(folders->weights);
    }
    if (*folders->written) {
        to->marker = data_order_marker(host, order->spec);
        to->attempt_uri = alloc_copy_text(order->checkpoint_directory);
    }
}

status_t data_copies_start(struct data_copies *ds, const Trainyard__V1__AttemptStart *order, struct err *e) {
    const struct host *host = ds->host;
    struct shard_folders folders;
    const bool in_store = shard_folders_of(host, order, &folders);
    if (!in_store && !data_copies_needed(order->spec))
        return ST_OK;
    if (*host->no_data.msg)
        return err_set(e, ST_FAILED_PRECONDITION, "data: %s", host->no_data.msg);
    struct data_copy *k = alloc_zeroed(1, sizeof *k);
    *k = (struct data_copy){ .list = ds,
                             .next = ds->first,
                             .job = order->job,
                             .attempt = order->attempt,
                             .order = data_order_new(host, order->spec, order->secrets, order->n_secrets) };
    ds->first = k;
    data_order_add_peers(k->order, host, order);
    if (in_store)
        order_add(host, order, &folders, k->order);
    return copy_start(k, e);
}

void data_copies_remove(struct data_copies *ds, int64_t job, int32_t attempt) {
    for (struct data_copy *k = ds->first, *next; k; k = next) {
        next = k->next;
        if (k->job != job || k->attempt != attempt || k->unwanted)
            continue;
        k->unwanted = true;
        if (k->process)
            worker_process_kill(k->process, "was killed because the attempt has ended");
        else
            copy_free(k);
    }
}

bool data_copies_is_empty(const struct data_copies *ds) { return !ds->first; }

struct data_copies *data_copies_new(const struct host *host, const struct data_copies_owner *owner) {
    struct data_copies *ds = alloc_zeroed(1, sizeof *ds);
    *ds = (struct data_copies){ .host = host, .owner = *owner };
    return ds;
}

struct data_copies *data_copies_free(struct data_copies *ds) {
    while (ds && ds->first)
        copy_free(ds->first);
    free(ds);
    return NULL;
}
