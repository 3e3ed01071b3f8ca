/* SweepService. CreateSweep makes one sweep per request id, as CreateJob does: sweep_judge checks the request, one
 * transaction stores the sweep or finds the one of an earlier request, and the task that creates jobs is woken
 * (controller/sweeps.c). A refused request is first compared with the stored ones, because the world may have changed
 * since.
 *
 * The values of a trial are not stored: they follow from the sweep's spec and the number. The metric of a trial whose
 * end is stored is in its row; that of a running one is read from its series. Pages of trials are limited by number and
 * by bytes. */
#include "api/spec/sweep.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/controller/sweeps.h"
#include "service/rpc/convert_sweep.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/refusal.h"
#include "service/rpc/request_id.h"
#include "service/rpc/services.h"
#include "service/rpc/submitter.h"
#include "service/rpc/sweep_judge.h"
#include "service/store/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the values of one page of trials: the rest of a message is small. */
enum { PAGE_VALUES_BYTES = 1 << 20, NUMBER_BYTES = 32 };

/* ---- replies ---- */

static status_t unpack(const struct store_sweep *row, Trainyard__V1__SweepSpec **ret, struct err *e) {
    *ret = trainyard__v1__sweep_spec__unpack(NULL, row->spec_bytes, row->spec);
    return *ret ? ST_OK : err_set(e, ST_INTERNAL, "the stored spec of sweeps/%s cannot be read", row->name);
}

/* The newest metric of a trial whose end is not stored. */
static status_t read_metric(struct controller *c, const Trainyard__V1__SweepSpec *spec, struct store_trial *t,
                            struct err *e) {
    const char *metric = spec->metric;
    if (!t->open || !t->job)
        return ST_OK;
    status_t st = store_metric_last(controller_store(c), t->job, &metric, 1, &t->metric, e);
    t->has_metric = st == ST_OK && !isnan(t->metric);
    return st == ST_NOT_FOUND ? ST_OK : st; /* it was deleted meanwhile */
}

static status_t read_best(struct controller *c, struct store_memory *m, struct arena *a, const struct store_sweep *row,
                          const Trainyard__V1__SweepSpec *spec, Trainyard__V1__Sweep *ret, struct err *e) {
    struct store_trial *best;
    size_t n;
    if (!row->best)
        return ST_OK;
    TRY(store_trial_list(controller_store(c), m, row->id, row->best - 1, 1, &best, &n, e));
    if (n == 1)
        ret->best = convert_trial(a, spec, best);
    return ST_OK;
}

static status_t reply_row(struct controller *c, struct rpc_call *call, struct store_memory *m,
                          const struct store_sweep *row, const struct spec_problems *unchecked, struct err *e) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    CLEANUP(sweep_freep) Trainyard__V1__SweepSpec *spec = NULL;
    char *lines[SPEC_PROBLEMS];
    TRY(unpack(row, &spec, e));
    Trainyard__V1__Sweep *sweep = convert_sweep(a, row, spec);
    TRY(read_best(c, m, a, row, spec, sweep, e));
    sweep->n_unchecked = unchecked ? lines_of(unchecked, lines) : 0;
    sweep->unchecked = lines;
    rpc_reply(call, &sweep->base);
    return ST_OK;
}

static status_t find_sweep(struct controller *c, struct rpc_call *call, struct store_memory *m, const char *name,
                           struct store_sweep *ret, struct err *e) {
    const char *plain;
    TRY(name_sweep(name, &plain, e));
    return rpc_found(call, store_sweep_get(controller_store(c), m, plain, ret, e), "SWEEP_NOT_FOUND");
}

static status_t reply_named(struct controller *c, struct rpc_call *call, const char *name, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_sweep row;
    TRY(find_sweep(c, call, m, name, &row, e));
    return reply_row(c, call, m, &row, NULL, e);
}

/* ---- create, validate ---- */

static status_t store_new(struct controller *c, struct rpc_call *call, const char *request_id, const char *user,
                          const struct sweep_judgement *j, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    int64_t epoch;
    uint8_t digest[SHA256_BYTES];
    TRY(controller_leads(c, &epoch, e));
    const size_t n = trainyard__v1__sweep_spec__get_packed_size(j->spec);
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(n, 1);
    trainyard__v1__sweep_spec__pack(j->spec, packed);
    sweep_digest(j->spec, digest);
    const struct store_sweep_new new = { .name = j->spec->name,
                                         .request_id = request_id,
                                         .user = user,
                                         .request_digest = digest,
                                         .spec = packed,
                                         .spec_bytes = n,
                                         .maximize = sweep_maximizes(j->spec),
                                         .trials = sweep_trials(j->spec) };
    struct store_sweep row;
    status_t st = store_sweep_create(controller_store(c), m, epoch, &new, &row, e);
    st = controller_write_status(c, epoch, st, e);
    sweeps_wake(controller_sweeps(c)); /* also after a failure: the answer to the COMMIT may be lost */
    TRY(st);
    log_event(LOG_INFO, "sweep_created", "sweep", LOG_STR(row.name), "trials", LOG_INT(row.trials), NULL);
    return reply_row(c, call, m, &row, &j->first.hosts.unchecked, e);
}

/* NOT_FOUND: the request id is not known. */
static status_t reply_if_known(struct controller *c, struct rpc_call *call, const char *request_id,
                               const struct sweep_judgement *j, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_sweep row;
    uint8_t digest[SHA256_BYTES];
    if (!j->spec)
        return ST_NOT_FOUND;
    sweep_digest(j->spec, digest);
    TRY(store_sweep_requested(controller_store(c), m, request_id, digest, &row, e));
    return reply_row(c, call, m, &row, NULL, e);
}

static status_t create_judged(struct controller *c, struct rpc_call *call, const Trainyard__V1__CreateSweepRequest *in,
                              struct sweep_judgement *j, struct err *e) {
    char request_id[REQUEST_ID_BYTES];
    struct err why = { "" };
    const struct sweep_request asked = { .spec = in->spec,
                                         .wait_for_hosts = in->wait_for_hosts,
                                         .skip_check = in->skip_check,
                                         .from = 1,
                                         .deadline = rpc_deadline(call, UNARY_DEADLINE_MS),
                                         .call = call };
    const char *user;
    TRY(submitter_name(call, in->user, &user, e));
    TRY(request_id_read(in->request_id, request_id, e));
    const bool given = request_id[0] != '\0';
    if (!given)
        TRY(request_id_make(request_id, e));
    status_t st = sweep_judge(c, &asked, j, &why);
    if (st == ST_OK && j->problems.n == 0)
        return store_new(c, call, request_id, user, j, e);
    if (given) {
        status_t known = reply_if_known(c, call, request_id, j, e);
        if (known != ST_NOT_FOUND)
            return known;
    }
    *e = why;
    return st == ST_OK ? refuse_spec(call, &j->problems, e) : st;
}

static status_t create_sweep(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    struct sweep_judgement j = { 0 };
    status_t st = create_judged(service, call, (const void *)request, &j, e);
    sweep_judgement_done(&j);
    return st;
}

/* How many trials a page has whose values are as long as they can be. */
static int page_trials(const Trainyard__V1__SweepSpec *spec, int asked) {
    size_t bytes = 1;
    for (size_t i = 0; i < spec->n_parameters; i++) {
        size_t longest = NUMBER_BYTES;
        for (size_t k = 0; k < spec->parameters[i]->value->n_choices; k++) {
            const size_t n = strlen(spec->parameters[i]->value->choices[k]);
            longest = n > longest ? n : longest;
        }
        bytes += longest;
    }
    const size_t fit = PAGE_VALUES_BYTES / bytes + 1;
    return (size_t)asked < fit ? asked : (int)fit;
}

static void reply_judged(struct rpc_call *call, const struct sweep_judgement *j, int first, int size) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    char *problems[SPEC_PROBLEMS], *unchecked[SPEC_PROBLEMS];
    Trainyard__V1__ValidateSweepResponse out = TRAINYARD__V1__VALIDATE_SWEEP_RESPONSE__INIT;
    out.n_problems = lines_of(&j->problems, problems);
    out.problems = problems;
    out.n_unchecked = lines_of(&j->first.hosts.unchecked, unchecked);
    out.unchecked = unchecked;
    if (j->problems.n == 0) {
        const int trials = sweep_trials(j->spec), page = page_trials(j->spec, size);
        out.parameters = convert_parameters(a, j->spec);
        out.n_parameters = j->spec->n_parameters;
        out.trials = arena_alloc(a, (size_t)page, sizeof *out.trials);
        for (int i = 0; i < page && first + i <= trials; i++)
            out.trials[out.n_trials++] = convert_trial_values(a, j->spec, first + i);
        out.next_trial = first + page <= trials ? first + page : 0;
    }
    rpc_reply(call, &out.base);
}

static status_t validate_sweep(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ValidateSweepRequest *in = (const void *)request;
    const int first = in->first_trial ? in->first_trial : 1;
    struct sweep_judgement j = { 0 };
    int size;
    TRY(page_size(in->page_size, &size, e));
    if (first < 1 || first > SWEEP_MAX_TRIALS)
        return err_set(e, ST_INVALID_ARGUMENT, "first_trial: %d is not from 1 to %d", first, SWEEP_MAX_TRIALS);
    const struct sweep_request asked = { .spec = in->spec,
                                         .wait_for_hosts = in->wait_for_hosts,
                                         .skip_check = in->skip_check,
                                         .from = first,
                                         .to = first == 1 ? 0 : first + size - 1,
                                         .deadline = rpc_deadline(call, UNARY_DEADLINE_MS),
                                         .call = call };
    status_t st = sweep_judge(service, &asked, &j, e);
    if (st == ST_OK)
        reply_judged(call, &j, first, size);
    sweep_judgement_done(&j);
    return st;
}

/* ---- read ---- */

static status_t get_sweep(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    return reply_named(service, call, ((const Trainyard__V1__GetSweepRequest *)request)->name, e);
}

static status_t list_sweeps(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListSweepsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_sweep *rows;
    int64_t before = 0;
    size_t n;
    int size;
    TRY(page_size(in->page_size, &size, e));
    TRY(page_token_read(in->page_token, "", &before, e));
    TRY(store_sweep_list(controller_store(service), m, before, size, &rows, &n, e));
    Trainyard__V1__ListSweepsResponse out = TRAINYARD__V1__LIST_SWEEPS_RESPONSE__INIT;
    char token[PAGE_TOKEN_BYTES];
    out.sweeps = arena_alloc(a, n, sizeof *out.sweeps);
    out.n_sweeps = n;
    for (size_t i = 0; i < n; i++)
        out.sweeps[i] = convert_sweep(a, &rows[i], NULL);
    if (n == (size_t)size) {
        page_token_write(rows[n - 1].id, "", token);
        out.next_page_token = token;
    }
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t reply_trials(struct controller *c, struct rpc_call *call, struct store_memory *m,
                             const struct store_sweep *row, const Trainyard__V1__ListTrialsRequest *in, int size,
                             struct err *e) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    CLEANUP(sweep_freep) Trainyard__V1__SweepSpec *spec = NULL;
    Trainyard__V1__ListTrialsResponse out = TRAINYARD__V1__LIST_TRIALS_RESPONSE__INIT;
    char token[PAGE_TOKEN_BYTES];
    struct store_trial *rows;
    int64_t after = 0;
    size_t n;
    TRY(page_token_read(in->page_token, row->name, &after, e));
    TRY(unpack(row, &spec, e));
    size = page_trials(spec, size);
    TRY(store_trial_list(controller_store(c), m, row->id, (int)after, size, &rows, &n, e));
    out.sweep = convert_sweep(a, row, spec);
    TRY(read_best(c, m, a, row, spec, out.sweep, e));
    out.trials = arena_alloc(a, n, sizeof *out.trials);
    out.n_trials = n;
    for (size_t i = 0; i < n; i++) {
        TRY(read_metric(c, spec, &rows[i], e));
        out.trials[i] = convert_trial(a, spec, &rows[i]);
    }
    if (n == (size_t)size) {
        page_token_write(rows[n - 1].number, row->name, token);
        out.next_page_token = token;
    }
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t list_trials(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListTrialsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_sweep row;
    int size;
    TRY(page_size(in->page_size, &size, e));
    TRY(find_sweep(service, call, m, in->name, &row, e));
    return reply_trials(service, call, m, &row, in, size, e);
}

/* ---- cancel, delete ---- */

static status_t cancel_sweep(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const char *name;
    int64_t epoch;
    TRY(name_sweep(((const Trainyard__V1__CancelSweepRequest *)request)->name, &name, e));
    TRY(controller_leads(service, &epoch, e));
    status_t st = rpc_found(call, store_sweep_cancel(controller_store(service), epoch, name, e), "SWEEP_NOT_FOUND");
    TRY(controller_write_status(service, epoch, st, e));
    log_event(LOG_INFO, "sweep_cancelled", "sweep", LOG_STR(name), "by", LOG_STR(rpc_caller(call)), NULL);
    sweeps_wake(controller_sweeps(service));
    return reply_named(service, call, name, e);
}

static status_t delete_sweep(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const char *name;
    int64_t epoch;
    TRY(name_sweep(((const Trainyard__V1__DeleteSweepRequest *)request)->name, &name, e));
    TRY(controller_leads(service, &epoch, e));
    status_t st = rpc_found(call, store_sweep_delete(controller_store(service), epoch, name, e), "SWEEP_NOT_FOUND");
    TRY(controller_write_status(service, epoch, st, e));
    log_event(LOG_INFO, "sweep_deleted", "sweep", LOG_STR(name), "by", LOG_STR(rpc_caller(call)), NULL);
    Trainyard__V1__DeleteSweepResponse out = TRAINYARD__V1__DELETE_SWEEP_RESPONSE__INIT;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "CreateSweep", .kind = RPC_UNARY, .unary = create_sweep },
    { .name = "ValidateSweep", .kind = RPC_UNARY, .unary = validate_sweep },
    { .name = "GetSweep", .kind = RPC_UNARY, .unary = get_sweep },
    { .name = "ListSweeps", .kind = RPC_UNARY, .unary = list_sweeps },
    { .name = "ListTrials", .kind = RPC_UNARY, .unary = list_trials },
    { .name = "CancelSweep", .kind = RPC_UNARY, .unary = cancel_sweep },
    { .name = "DeleteSweep", .kind = RPC_UNARY, .unary = delete_sweep },
};

const struct rpc_service rpc_sweep_service = { &trainyard__v1__sweep_service__descriptor, methods,
                                               sizeof methods / sizeof *methods };
