#include "executor/agent/data_checks.h"

#include "api/codec/message.h"
#include "api/spec/data_uri.h"
#include "api/spec/secret_fields.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/file.h"
#include "executor/agent/data_copies.h"
#include "executor/agent/data_order.h"
#include "executor/agent/shard_folders.h"
#include "executor/agent/worker_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A host has six seconds for a whole check (service/rpc/host_check.c). */
enum { PATIENCE_S = 3, LIMIT_MS = 4000, PROBLEM_BYTES = 480, FIELD_BYTES = 160 };
/* The controller waits for a minute (service/controller/checkpoint_objects.c). */
enum { REMOVE_PATIENCE_S = 20, REMOVE_LIMIT_MS = 50 * 1000 };

struct data_check {
    struct data_checks *list;
    struct data_check *next;
    Trainyard__V1__StartCheck *start;
    struct worker_process *process;
    struct reactor_timer limit;
    bool settled;  /* the check goes on, or has ended: only the process is left */
    bool unwanted; /* the check has ended */
};

struct data_checks {
    const struct host *host;
    struct data_checks_owner owner;
    struct data_check *first;
};

static void check_free(struct data_check *k) {
    for (struct data_check **link = &k->list->first; *link; link = &(*link)->next)
        if (*link == k) {
            *link = k->next;
            break;
        }
    reactor_timer_cancel(k->list->host->loop, &k->limit);
    worker_process_close(k->process);
    attempt_secrets_wipe(k->start->request->secrets, k->start->request->n_secrets);
    trainyard__v1__start_check__free_unpacked(k->start, NULL);
    free(k);
}

/* ---- findings ---- */

static void finding_send(struct data_check *k, Trainyard__V1__CheckFinding *finding) {
    k->list->owner.finding(k->list->owner.ctx, k->start->check, finding);
}

static bool names_field(const char *message) {
    return strncmp(message, "checkpoint.store: ", 18) == 0 || strncmp(message, "train.init_from: ", 17) == 0;
}

static void problem_send(struct data_check *k, const Trainyard__V1__DataReport *report) {
    Trainyard__V1__SpecProblem problem = TRAINYARD__V1__SPEC_PROBLEM__INIT;
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    char field[FIELD_BYTES], text[PROBLEM_BYTES];
    data_uri_field(k->start->request->spec, report->message, field, sizeof field);
    if (names_field(report->message)) /* trainyard-data knows the field */
        snprintf(text, sizeof text, "%s", report->message);
    else
        snprintf(text, sizeof text, "%s: %s", *k->start->request->remove ? "checkpoint.store" : field, report->message);
    problem.text = text;
    problem.of_host = report->cause != TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PROBLEM;
    finding.problem = &problem;
    finding_send(k, &finding);
}

static void unchecked_send(struct data_check *k, const char *why) {
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    char text[PROBLEM_BYTES];
    snprintf(text, sizeof text, "what the job needs of stores: %s", why);
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_UNCHECKED;
    finding.unchecked = text;
    finding_send(k, &finding);
}

static void go_on(struct data_check *k) {
    if (k->settled)
        return;
    k->settled = true;
    attempt_secrets_wipe(k->start->request->secrets, k->start->request->n_secrets);
    if (!k->unwanted)
        k->list->owner.done(k->list->owner.ctx, k->start);
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct data_check *k = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_DATA || !record->data->last || k->settled)
        return;
    if (record->data->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        problem_send(k, record->data);
    go_on(k);
    worker_process_kill(k->process, "has done its check");
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct data_check *k = ctx;
    char sentence[160], why[200];
    if (!drained)
        return;
    exit_status_sentence(exit, worker_process_killed_because(k->process), sentence, sizeof sentence);
    snprintf(why, sizeof why, "trainyard-data %s", sentence);
    if (!k->settled && !k->unwanted)
        unchecked_send(k, why);
    go_on(k);
    check_free(k);
}

static void limit_fire(void *ctx) {
    struct data_check *k = ctx;
    if (!k->settled && !k->unwanted)
        unchecked_send(k, "that took too long");
    go_on(k);
    worker_process_kill(k->process, "took too long and was killed");
}

/* ---- from the controller ---- */

static bool reaches_stores(const Trainyard__V1__WorkerCheck *request) {
    CLEANUP(freep) char *weights = shard_weights_pattern(request->spec, request->weights);
    return weights || data_copies_needed(request->spec) || spec_checkpoints_in_store(request->spec);
}

bool data_checks_needed(const Trainyard__V1__WorkerCheck *request) {
    size_t n_fields;
    if (*request->remove)
        return true;
    if (!request->spec || !reaches_stores(request))
        return false;
    free(spec_secret_fields(request->spec, &n_fields));
    return request->n_secrets == n_fields;
}

int data_checks_count(const struct data_checks *ds) {
    int n = 0;
    for (const struct data_check *k = ds->first; k; k = k->next)
        n += !k->settled;
    return n;
}

static status_t remove_send(struct data_check *k, const Trainyard__V1__DataFetch *keys,
                            const struct worker_process_owner *owner, struct err *e) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    Trainyard__V1__ObjectsRemove order = TRAINYARD__V1__OBJECTS_REMOVE__INIT;
    order.stores = keys->stores;
    order.n_stores = keys->n_stores;
    order.pattern = k->start->request->remove;
    order.patience_s = REMOVE_PATIENCE_S;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_REMOVE_OBJECTS;
    command.remove_objects = &order;
    return data_process_start(k->list->host, &command, owner, &k->process, e);
}

static status_t process_start(struct data_check *k, struct err *e) {
    const Trainyard__V1__WorkerCheck *request = k->start->request;
    if (!request->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "the order has no spec");
    Trainyard__V1__DataFetch *order = data_order_new(k->list->host, request->spec, request->secrets,
                                                     request->n_secrets);
    const struct worker_process_owner owner = {
        .ctx = k, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    order->check = true;
    char *weights = shard_weights_pattern(request->spec, request->weights);
    if (weights)
        order->weights = weights;
    if (spec_checkpoints_in_store(request->spec))
        order->marker = data_order_marker(k->list->host, request->spec);
    order->patience_s = PATIENCE_S;
    status_t st = *request->remove ? remove_send(k, order, &owner, e)
                                   : data_order_send(k->list->host, order, &owner, &k->process, e);
    data_order_free(order);
    return st;
}

void data_checks_start(struct data_checks *ds, const Trainyard__V1__StartCheck *start) {
    Trainyard__V1__StartCheck *own = NULL;
    struct err why;
    if (message_copy(&start->base, &own, &why) != ST_OK) {
        ds->owner.done(ds->owner.ctx, start);
        return;
    }
    struct data_check *k = alloc_zeroed(1, sizeof *k);
    *k = (struct data_check){ .list = ds, .next = ds->first, .start = own };
    k->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = k };
    ds->first = k;
    if (process_start(k, &why) == ST_OK) {
        reactor_timer_set(ds->host->loop, &k->limit, *own->request->remove ? REMOVE_LIMIT_MS : LIMIT_MS);
        return;
    }
    unchecked_send(k, why.msg);
    go_on(k);
    check_free(k);
}

void data_checks_stop(struct data_checks *ds, int64_t check) {
    for (struct data_check *k = ds->first; k; k = k->next)
        if (k->start->check == check && !k->unwanted) {
            k->unwanted = true;
            worker_process_kill(k->process, "was stopped");
        }
}

void data_checks_stop_all(struct data_checks *ds) {
    for (struct data_check *k = ds ? ds->first : NULL; k; k = k->next) {
        k->unwanted = true;
        worker_process_kill(k->process, "was stopped");
    }
}

struct data_checks *data_checks_new(const struct host *host, const struct data_checks_owner *owner) {
    struct data_checks *ds = alloc_zeroed(1, sizeof *ds);
    *ds = (struct data_checks){ .host = host, .owner = *owner };
    return ds;
}

struct data_checks *data_checks_free(struct data_checks *ds) {
    while (ds && ds->first)
        check_free(ds->first);
    free(ds);
    return NULL;
}
