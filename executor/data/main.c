/* trainyard-data: copies the objects of one attempt into the cache of the host, and keeps them in use; or writes
 * the files of a checkpoint to a store; or removes those of an old one; or serves the cache to other hosts. The
 * agent starts it, with commands on descriptor 3 and records on 4, as a worker. It gets one command, and reports
 * until its last report; then it ends, or if it keeps copies in use it waits for the end of the pipe, which comes
 * with the end of the attempt. A thread does the order; the first one reports how far it is, and ends the process
 * as soon as the pipe ends: a process can end at any moment, and the next one goes on.
 *
 * It runs as the agent's user, so that no job can change the copies, and without the agent's capabilities, because
 * it reads what stores send. Its keys are overwritten before it waits, and it leaves no core. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/privileges.h"
#include "executor/child/child.h"
#include "executor/data/checkpoint.h"
#include "executor/data/leftovers.h"
#include "executor/data/memory.h"
#include "executor/data/probe.h"
#include "executor/data/report.h"
#include "executor/data/serve.h"
#include "executor/data/upload.h"

#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STEP_MS = 500 };

static const char usage[] =
    "usage: trainyard-data --agent-pid PID\n"
    "\n"
    "Copies the data of a job into the cache of this host, or a checkpoint to a store, for trainyard-executor, which\n"
    "starts it with commands on descriptor 3 and records on 4.\n"
    "\n"
    "  --agent-pid PID        the agent that started this program, which ends when the agent does\n"
    "  --help, --version\n";

static const struct child child = { .name = "trainyard-data", .usage = usage, .orphaned = 1 };

struct work {
    struct fetch fetch, checkpoint, weights;
    const Trainyard__V1__ShardUpload *upload;
    const Trainyard__V1__ObjectsRemove *remove;
    status_t (*run)(struct work *w, struct err *e);
    bool of_checkpoint; /* a failure is that of the checkpoint */
    int over;           /* an eventfd */
    status_t st;
    struct err why;
};

static void *work_do(void *ctx) {
    struct work *w = ctx;
    const uint64_t one = 1;
    w->st = w->run(w, &w->why);
    if (write(w->over, &one, sizeof one) != (ssize_t)sizeof one)
        abort(); /* a counter that is 0 has space */
    return NULL;
}

/* Returns when the work is over. */
static void wait_for(struct work *w, struct report_progress *progress) {
    struct pollfd fds[] = { { .fd = CHILD_COMMANDS_FD }, /* without events: the end of the pipe alone */
                            { .fd = w->over, .events = POLLIN } };
    for (;;) {
        if (poll(fds, 2, STEP_MS) > 0 && fds[0].revents)
            _exit(0);
        if (fds[1].revents & POLLIN)
            return;
        report_progress(progress, &w->fetch);
    }
}

static status_t work_start(struct work *w, struct report_progress *progress, struct err *e) {
    pthread_t thread;
    w->over = eventfd(0, EFD_CLOEXEC);
    if (w->over < 0 || pthread_create(&thread, NULL, work_do, w) != 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the host allows no more threads or files");
    wait_for(w, progress);
    pthread_join(thread, NULL);
    closep(&w->over);
    return ST_OK;
}

static void tokens_wipe(const Trainyard__V1__DataFetch *order) {
    for (size_t i = 0; i < order->n_peers; i++)
        explicit_bzero(order->peers[i]->token, strlen(order->peers[i]->token));
}

static void keys_wipe(Trainyard__V1__DataStore *const *stores, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const ProtobufCBinaryData keys[] = { stores[i]->access_key, stores[i]->secret_key };
        for (size_t k = 0; k < 2; k++)
            if (keys[k].len > 0)
                explicit_bzero(keys[k].data, keys[k].len);
    }
    prctl(PR_SET_DUMPABLE, 1); /* it has no more keys */
}

/* ---- the data, and the checkpoint to resume from ---- */

static status_t stores_take(struct fetch *f, Trainyard__V1__DataStore **stores, size_t n, int32_t patience_s,
                            struct err *e) {
    Trainyard__V1__DataFetch order = TRAINYARD__V1__DATA_FETCH__INIT;
    order.stores = stores;
    order.n_stores = n;
    order.patience_s = patience_s;
    return stores_open(&order, &f->end, &f->stores, e);
}

/* Before hours of work, and before anything is copied. */
static status_t store_prepare(const Trainyard__V1__DataFetch *order, struct err *e) {
    struct fetch own = { .order = order };
    status_t st = stores_take(&own, order->stores, order->n_stores, order->patience_s, e);
    if (st == ST_OK && *order->marker)
        st = probe_store(&own.stores, order->marker, e);
    if (st == ST_OK && *order->attempt_uri)
        leftovers_abort_before(&own.stores, order->attempt_uri);
    fetch_done_stores(&own);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "checkpoint.store: ");
}

static status_t data_fetch(struct work *w, struct err *e) {
    const Trainyard__V1__DataFetch *order = w->fetch.order;
    status_t st = ST_OK;
    if (*order->marker || *order->attempt_uri)
        TRY(store_prepare(order, e));
    if (order->n_uris > 0)
        TRY(fetch_run(&w->fetch, e));
    if (*order->weights)
        st = folder_fetch(&w->weights, order->weights, order->weights_folder, e);
    if (st != ST_OK)
        return err_prefix(e, st, "train.init_from: ");
    if (*order->checkpoint)
        st = checkpoint_fetch(&w->checkpoint, e);
    w->of_checkpoint = st != ST_OK;
    return st;
}

static status_t fetch_take(const Trainyard__V1__DataFetch *order, struct err *e) {
    struct work w = {
        .fetch = { .order = order }, .checkpoint = { .order = order }, .weights = { .order = order }, .run = data_fetch
    };
    struct report_progress progress = { .since_ms = clock_mono_ms() };
    TRY(work_start(&w, &progress, e));
    report_progress(&progress, &w.fetch); /* whoever is fast has not said yet that something was copied */
    fetch_done_stores(&w.fetch);
    fetch_done_stores(&w.checkpoint);
    fetch_done_stores(&w.weights);
    tokens_wipe(order);
    keys_wipe(order->stores, order->n_stores);
    report_last(&progress, &w.fetch, w.st, w.of_checkpoint, &w.why);
    struct pollfd end = { .fd = CHILD_COMMANDS_FD };
    while (w.st == ST_OK && (w.fetch.cache || w.checkpoint.cache || w.weights.cache) && poll(&end, 1, -1) < 1)
        continue;
    fetch_done(&w.fetch);
    fetch_done(&w.checkpoint);
    fetch_done(&w.weights);
    return ST_OK;
}

/* ---- checkpoints that are written and removed ---- */

static status_t shard_upload(struct work *w, struct err *e) {
    const Trainyard__V1__ShardUpload *order = w->upload;
    TRY(stores_take(&w->fetch, order->stores, order->n_stores, order->patience_s, e));
    return upload_files(order, &w->fetch.stores.of[DATA_S3], e);
}

static status_t objects_remove(struct work *w, struct err *e) {
    const Trainyard__V1__ObjectsRemove *order = w->remove;
    TRY(stores_take(&w->fetch, order->stores, order->n_stores, order->patience_s, e));
    return remove_objects(&w->fetch.stores, order->pattern, e);
}

static status_t change_store(struct work *w, Trainyard__V1__DataStore *const *stores, size_t n, struct err *e) {
    struct report_progress progress = { .since_ms = clock_mono_ms() };
    TRY(work_start(w, &progress, e));
    fetch_done_stores(&w->fetch);
    keys_wipe(stores, n);
    report_last(&progress, &w->fetch, w->st, false, &w->why);
    return ST_OK;
}

/* ---- the cache for other hosts ---- */

/* Until the pipe ends. The token stays in the memory of this process, which leaves no core. */
static status_t serve_take(const Trainyard__V1__CacheServe *order) {
    const struct report_progress progress = { 0 };
    const struct fetch none = { 0 };
    struct err why = { "" };
    CLEANUP(serve_closep) struct serve *s = NULL;
    status_t st = serve_open(order, &s, &why);
    if (st != ST_OK) {
        report_last(&progress, &none, st, false, &why);
        return ST_OK;
    }
    report_event("cache_served", serve_address(s));
    struct pollfd end = { .fd = CHILD_COMMANDS_FD };
    while (poll(&end, 1, -1) < 1)
        continue;
    return ST_OK;
}

static status_t command_take(const Trainyard__V1__WorkerCommand *command, struct err *e) {
    struct work w = { .run = NULL };
    switch (command->command_case) {
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_FETCH_DATA: return fetch_take(command->fetch_data, e);
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_UPLOAD_SHARD:
        w = (struct work){ .upload = command->upload_shard, .run = shard_upload };
        return change_store(&w, w.upload->stores, w.upload->n_stores, e);
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_REMOVE_OBJECTS:
        w = (struct work){ .remove = command->remove_objects, .run = objects_remove };
        return change_store(&w, w.remove->stores, w.remove->n_stores, e);
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_SERVE_CACHE: return serve_take(command->serve_cache);
    default: return err_set(e, ST_INTERNAL, "the first command is of another release: restart trainyard-executor");
    }
}

/* An agent that is root may have a cache in folders of other users. */
static status_t give_up_privileges(struct err *e) {
    return privileges_drop(geteuid() == 0 ? PRIVILEGE(CAP_DAC_OVERRIDE) | PRIVILEGE(CAP_FOWNER) : 0, e);
}

static status_t work(struct frame_reader *reader, struct err *e) {
    Trainyard__V1__WorkerCommand *command;
    TRY(child_command_wait(reader, &command, e));
    frame_reader_wipe(reader);
    status_t st = command_take(command, e);
    trainyard__v1__worker_command__free_unpacked(command, NULL);
    return st;
}

int main(int argc, char **argv) {
    int status;
    struct err why = { "" };
    struct frame_reader reader;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0); /* no core, and no look into the memory by other processes of this user */
    if (!child_begin(&child, argc, argv, &status))
        return status;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    status_t st = give_up_privileges(&why);
    if (st == ST_OK)
        st = memory_init(&why);
    if (st == ST_OK)
        st = work(&reader, &why);
    frame_reader_done(&reader);
    if (st != ST_OK)
        fprintf(stderr, "trainyard-data: %s\n", why.msg);
    return st == ST_OK ? 0 : 1;
}
