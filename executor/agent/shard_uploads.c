/* An attempt has an entry with the keys of its store. Each upload is a process of trainyard-data, which ends with it.
 * One that is killed is started again, a few times: it writes the same bytes to the same names. Processes of an attempt
 * that has ended are killed; what they had written is of no checkpoint, because no rank reports it. */
#include "executor/agent/shard_uploads.h"

#include "base/alloc.h"
#include "base/log.h"
#include "executor/agent/data_order.h"
#include "executor/agent/shard_folders.h"
#include "executor/agent/worker_process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { STARTS_MAX = 3, FILES_MAX = 3, NAME_BYTES = 48, WHY_BYTES = 320 };

struct attempt_store {
    struct attempt_store *next;
    int64_t job;
    int32_t attempt;
    char *written, *uri;            /* the folder of this host; s3://.../attempt-N */
    Trainyard__V1__DataFetch *keys; /* its stores alone */
};

struct shard_upload {
    struct shard_uploads *list;
    struct shard_upload *next;
    int64_t job, step;
    int32_t attempt, rank;
    struct worker_process *process;
    int starts;
    bool answered;
};

struct shard_uploads {
    const struct host *host;
    struct shard_uploads_owner owner;
    struct attempt_store *stores;
    struct shard_upload *first;
};

static struct attempt_store *store_find(const struct shard_uploads *us, int64_t job, int32_t attempt) {
    for (struct attempt_store *s = us->stores; s; s = s->next)
        if (s->job == job && s->attempt == attempt)
            return s;
    return NULL;
}

static void upload_free(struct shard_upload *u) {
    for (struct shard_upload **link = &u->list->first; *link; link = &(*link)->next)
        if (*link == u) {
            *link = u->next;
            break;
        }
    worker_process_close(u->process);
    free(u);
}

/* ---- the end of an upload ---- */

static void answer(struct shard_upload *u, const char *message) {
    Trainyard__V1__ShardUploaded uploaded = TRAINYARD__V1__SHARD_UPLOADED__INIT;
    uploaded.step = u->step;
    uploaded.message = (char *)(uintptr_t)message;
    u->answered = true;
    if (*message)
        log_event(LOG_WARN, "shard_not_uploaded", "job", LOG_INT(u->job), "attempt", LOG_INT(u->attempt), "rank",
                  LOG_INT(u->rank), "step", LOG_INT(u->step), "reason", LOG_STR(message), NULL);
    if (store_find(u->list, u->job, u->attempt))
        u->list->owner.uploaded(u->list->owner.ctx, u->job, u->attempt, u->rank, &uploaded);
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct shard_upload *u = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_DATA || !record->data->last || u->answered)
        return;
    const bool good = record->data->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    answer(u, good ? "" : *record->data->message ? record->data->message : "trainyard-data gave no reason");
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static status_t upload_start(struct shard_upload *u, const struct attempt_store *s, struct err *e);

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct shard_upload *u = ctx;
    char sentence[160], why[WHY_BYTES];
    struct err error = { "" };
    if (!drained)
        return;
    exit_status_sentence(exit, worker_process_killed_because(u->process), sentence, sizeof sentence);
    snprintf(why, sizeof why, "trainyard-data %s", sentence);
    u->process = worker_process_close(u->process);
    const struct attempt_store *s = store_find(u->list, u->job, u->attempt);
    if (s && !u->answered && u->starts < STARTS_MAX) {
        if (upload_start(u, s, &error) == ST_OK)
            return;
        snprintf(why, sizeof why, "%s", error.msg);
    }
    if (!u->answered)
        answer(u, why);
    upload_free(u);
}

/* ---- the start ---- */

static status_t upload_start(struct shard_upload *u, const struct attempt_store *s, struct err *e) {
    const struct worker_process_owner owner = {
        .ctx = u, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    Trainyard__V1__ShardUpload order = TRAINYARD__V1__SHARD_UPLOAD__INIT;
    char data[NAME_BYTES], table[NAME_BYTES], manifest[] = "manifest.json";
    char *files[FILES_MAX] = { data, table, manifest };
    snprintf(data, sizeof data, "rank-%d.safetensors", (int)u->rank);
    snprintf(table, sizeof table, "rank-%d.json", (int)u->rank);
    CLEANUP(freep) char *folder = alloc_format("%s/step-%" PRId64, s->written, u->step);
    CLEANUP(freep) char *uri = alloc_format("%s/step-%" PRId64, s->uri, u->step);
    order.stores = s->keys->stores;
    order.n_stores = s->keys->n_stores;
    order.folder = folder;
    order.uri = uri;
    order.files = files;
    order.n_files = u->rank == 0 ? FILES_MAX : FILES_MAX - 1; /* rank 0 writes the manifest */
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_UPLOAD_SHARD;
    command.upload_shard = &order;
    u->starts++;
    return data_process_start(u->list->host, &command, &owner, &u->process, e);
}

static bool runs(const struct shard_uploads *us, int64_t job, int32_t attempt, int32_t rank) {
    for (const struct shard_upload *u = us->first; u; u = u->next)
        if (u->job == job && u->attempt == attempt && u->rank == rank && !u->answered)
            return true;
    return false;
}

void shard_uploads_start(struct shard_uploads *us, int64_t job, int32_t attempt, int32_t rank, int64_t step) {
    const struct attempt_store *s = store_find(us, job, attempt);
    struct err why = { "" };
    if (!s || runs(us, job, attempt, rank))
        return;
    struct shard_upload *u = alloc_zeroed(1, sizeof *u);
    *u = (struct shard_upload){
        .list = us, .next = us->first, .job = job, .step = step, .attempt = attempt, .rank = rank
    };
    us->first = u;
    if (upload_start(u, s, &why) == ST_OK)
        return;
    answer(u, why.msg);
    upload_free(u);
}

/* ---- attempts ---- */

void shard_uploads_add(struct shard_uploads *us, const Trainyard__V1__AttemptStart *order) {
    struct shard_folders f;
    if (!shard_folders_of(us->host, order, &f) || !*f.written)
        return;
    struct attempt_store *s = alloc_zeroed(1, sizeof *s);
    *s = (struct attempt_store){ .next = us->stores,
                                 .job = order->job,
                                 .attempt = order->attempt,
                                 .written = alloc_copy_text(f.written),
                                 .uri = alloc_copy_text(order->checkpoint_directory),
                                 .keys = data_order_new_stores(us->host, order->spec, order->secrets,
                                                               order->n_secrets) };
    us->stores = s;
}

static void store_free(struct attempt_store *s) {
    data_order_free(s->keys);
    free(s->written);
    free(s->uri);
    free(s);
}

void shard_uploads_remove(struct shard_uploads *us, int64_t job, int32_t attempt) {
    for (struct attempt_store **link = &us->stores, *s; (s = *link);) {
        if (s->job != job || s->attempt != attempt) {
            link = &s->next;
            continue;
        }
        *link = s->next;
        store_free(s);
    }
    for (struct shard_upload *u = us->first; u; u = u->next)
        if (u->job == job && u->attempt == attempt && u->process)
            worker_process_kill(u->process, "was killed because the attempt has ended");
}

bool shard_uploads_is_empty(const struct shard_uploads *us) { return !us->first && !us->stores; }

struct shard_uploads *shard_uploads_new(const struct host *host, const struct shard_uploads_owner *owner) {
    struct shard_uploads *us = alloc_zeroed(1, sizeof *us);
    *us = (struct shard_uploads){ .host = host, .owner = *owner };
    return us;
}

struct shard_uploads *shard_uploads_free(struct shard_uploads *us) {
    while (us && us->first)
        upload_free(us->first);
    for (struct attempt_store *s; us && (s = us->stores);) {
        us->stores = s->next;
        store_free(s);
    }
    free(us);
    return NULL;
}
