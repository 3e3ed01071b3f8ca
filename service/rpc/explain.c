/* ExplainJob: why a job waits, and when it may start.
 *
 * The handler asks the loop of the controller for the scheduler's explanation, which comes from memory: reasons,
 * holders of slots and views of hosts. After that it reads the rows, so that a job that the scheduler has already
 * forgotten is found with its final state. The answer is then built in three parts:
 *   reasons    those of the scheduler; an origin that no longer exists comes first; a backoff gets its failure and end
 *   holders    the jobs that hold slots, each with an estimate of its end from the speed of its attempt. If the only
 *              reason is BUSY, the estimates together give an estimate of the job's start
 *   executors  the availability of each host, with the sentence from the executor's row. Lost executors are added only
 *              if the job lacks executors
 * Lists are limited to SCHEDULER_LISTED entries; the counts of omitted entries are in the answer. */
#include "service/rpc/explain.h"

#include "base/clock.h"
#include "base/limits.h"
#include "service/controller/controller.h"
#include "service/controller/row_state.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/store/executor.h"

#include <stdlib.h>
#include <string.h>

/* An answer under construction. */
struct answer {
    struct store *store;
    struct store_memory *m;
    struct arena *a;
    const struct scheduler_explanation *x;
    struct store_job row;
    Trainyard__V1__ExplainJobResponse out;
};

/* ---- reasons ---- */

static Trainyard__V1__WaitReason *add_reason(struct answer *w, enum scheduler_wait kind, const char *message,
                                             const char *remedy) {
    Trainyard__V1__WaitReason *r = arena_message(w->a, &trainyard__v1__wait_reason__descriptor);
    r->kind = (Trainyard__V1__WaitReason__Kind)kind;
    r->message = (char *)message;
    r->remedy = (char *)remedy;
    w->out.reasons[w->out.n_reasons++] = r;
    return r;
}

/* The first reason: a job whose origin is gone never starts, so other reasons do not matter. */
static status_t add_origin(struct answer *w, struct err *e) {
    const enum job_state state = w->x->state;
    bool gone = false;
    struct err why = { "" };
    if (w->x->live && (state == JOB_STATE_QUEUED || state == JOB_STATE_RESTARTING))
        TRY(store_job_origin_gone(w->store, w->row.id, &gone, &why, e));
    if (gone)
        add_reason(w, SCHEDULER_WAIT_ORIGIN_GONE, arena_printf(w->a, "%s", why.msg),
                   "none: it ends FAILED when its turn comes; cancel it, and submit it again with another origin");
    return ST_OK;
}

static void add_backoff(struct answer *w, const struct scheduler_reason *r) {
    const char *message = r->message;
    if (w->row.state == STORE_JOB_RESTARTING && *w->row.reason)
        message = arena_printf(w->a, "%s; attempt %d ended: %s", r->message, w->x->attempt, w->row.reason);
    const int64_t until_us = clock_wall_us() + (w->x->next_attempt_ms - clock_mono_ms()) * 1000;
    add_reason(w, r->kind, message, r->remedy)->until = convert_timestamp(w->a, until_us);
}

static status_t add_reasons(struct answer *w, struct err *e) {
    w->out.reasons = arena_alloc(w->a, (size_t)w->x->n_reasons + 2, sizeof *w->out.reasons);
    TRY(add_origin(w, e));
    for (int i = 0; i < w->x->n_reasons; i++) {
        const struct scheduler_reason *r = &w->x->reasons[i];
        if (r->kind == SCHEDULER_WAIT_BACKOFF)
            add_backoff(w, r);
        else
            add_reason(w, r->kind, r->message, r->remedy);
    }
    if (!w->x->live && w->row.state == STORE_JOB_QUEUED)
        add_reason(w, SCHEDULER_WAIT_NOTHING, "it is stored, and the scheduler has not read it yet",
                   "none is needed: the scheduler reads new jobs every few seconds");
    return ST_OK;
}

/* ---- holders of slots ---- */

int64_t explain_end_estimate_us(int64_t start_us, int64_t now_us, int64_t from_step, int64_t step, int64_t steps) {
    if (start_us <= 0 || now_us <= start_us || step <= from_step || steps < step)
        return 0;
    return now_us + (int64_t)((double)(now_us - start_us) * (double)(steps - step) / (double)(step - from_step));
}

static int sooner_first(const void *a, const void *b) {
    const struct explain_slots *x = a, *y = b;
    return x->ends_us < y->ends_us ? -1 : x->ends_us > y->ends_us;
}

int64_t explain_start_estimate_us(struct explain_slots *holders, size_t n, bool others, int lacking) {
    if (others)
        return 0;
    qsort(holders, n, sizeof *holders, sooner_first);
    for (size_t i = 0; i < n; i++) {
        lacking -= holders[i].ends_us ? holders[i].n : 0;
        if (holders[i].ends_us && lacking <= 0)
            return holders[i].ends_us;
    }
    return 0;
}

/* A holder whose row was deleted since the explanation keeps its name and its slots; the other fields are empty. */
static status_t convert_holder(struct answer *w, const struct scheduler_holder *h, Trainyard__V1__SlotHolder *ret,
                               int64_t *ret_ends_us, struct err *e) {
    struct store_job job;
    struct store_attempt attempt;
    ret->job = arena_printf(w->a, "jobs/%lld", (long long)h->job);
    ret->attempt = h->attempt;
    ret->slots = h->slots;
    status_t st = store_job_get(w->store, w->m, h->job, &job, e);
    if (st == ST_NOT_FOUND)
        return ST_OK;
    TRY(st);
    ret->display_name = (char *)job.name;
    ret->state = convert_job_state(job.state);
    ret->step = job.step;
    ret->steps = job.steps;
    st = store_attempt_get(w->store, w->m, h->job, h->attempt, &attempt, e);
    if (st == ST_NOT_FOUND)
        return ST_OK;
    TRY(st);
    ret->since = convert_timestamp(w->a, attempt.create_time_us);
    if (job.state == STORE_JOB_RUNNING && job.attempt == h->attempt)
        *ret_ends_us = explain_end_estimate_us(attempt.start_time_us, clock_wall_us(), attempt.from_step, job.step,
                                               job.steps);
    ret->end_estimate = convert_timestamp(w->a, *ret_ends_us);
    return ST_OK;
}

static status_t add_holders(struct answer *w, struct err *e) {
    const struct scheduler_explanation *x = w->x;
    struct explain_slots slots[SCHEDULER_LISTED] = { 0 };
    w->out.holders = arena_alloc(w->a, (size_t)x->n_holders + 1, sizeof *w->out.holders);
    w->out.holders_omitted = x->more_holders;
    for (int i = 0; i < x->n_holders; i++) {
        Trainyard__V1__SlotHolder *h = arena_message(w->a, &trainyard__v1__slot_holder__descriptor);
        slots[i].n = x->holders[i].slots;
        TRY(convert_holder(w, &x->holders[i], h, &slots[i].ends_us, e));
        w->out.holders[w->out.n_holders++] = h;
    }
    if (w->out.n_reasons == 1 && w->out.reasons[0]->kind == TRAINYARD__V1__WAIT_REASON__KIND__BUSY)
        w->out.start_estimate = convert_timestamp(
            w->a, explain_start_estimate_us(slots, w->out.n_holders, x->more_holders > 0, x->world_size - x->free));
    return ST_OK;
}

/* ---- executors ---- */

static const char *executor_reason(struct answer *w, const struct store_executor *row, const char *otherwise) {
    const struct store_device *quarantined = NULL;
    int n = 0;
    for (size_t i = 0; row && i < row->n_devices; i++)
        if (row->devices[i].quarantined && n++ == 0)
            quarantined = &row->devices[i];
    const char *word = row && *row->reason ? row->reason : otherwise;
    if (!quarantined || !word)
        return word;
    return arena_printf(w->a, "%s%s%s device %d is quarantined%s: %s", word, *word ? "; " : "", quarantined->kind,
                        quarantined->index, n > 1 ? ", as are others" : "", quarantined->reason);
}

static const char *detachment_text(enum scheduler_detachment detachment) {
    if (detachment == SCHEDULER_DETACHED_LEAVING)
        return "its agent is stopping";
    return detachment == SCHEDULER_DETACHED_STREAM_ENDED ? "it is disconnected"
                                                         : "it has not attached since this controller leads";
}

static const char *availability_text(struct answer *w, const struct scheduler_host_view *h,
                                     const struct store_executor *row) {
    const bool cuda = w->x->slot == SCHEDULER_SLOT_CUDA;
    switch (h->availability) {
    case SCHEDULER_HOST_TAKES:
        return executor_reason(w, cuda ? row : NULL, arena_printf(w->a, "%d of %d slots are free", h->free, h->slots));
    case SCHEDULER_HOST_FULL:
        return executor_reason(w, cuda ? row : NULL, arena_printf(w->a, "all of its slots (%d) are in use", h->slots));
    case SCHEDULER_HOST_FENCED:
        return arena_printf(w->a, "attempt %d of job %lld may still run there", h->fenced_attempt,
                            (long long)h->fenced_job);
    case SCHEDULER_HOST_DRAINED:
        return *h->reason ? arena_printf(w->a, "it is drained: %s", h->reason) : "it is drained";
    case SCHEDULER_HOST_LACKS: return arena_printf(w->a, "it does not offer '%s', which the job needs", h->reason);
    case SCHEDULER_HOST_AVOIDED: return arena_printf(w->a, "it has failed the job: %s", h->reason);
    case SCHEDULER_HOST_SINGLE_RANK: return executor_reason(w, row, "ranks on its devices cannot communicate");
    case SCHEDULER_HOST_WITHOUT:
        return cuda ? executor_reason(w, row, h->quarantined ? "" : "it has no CUDA devices")
                    : "it offers no cpu slots";
    default: return detachment_text(h->detachment);
    }
}

static void add_executor(struct answer *w, const char *id, const struct store_executor *row,
                         Trainyard__V1__ExecutorVerdict__Verdict state, int slots, int free, const char *message) {
    Trainyard__V1__ExecutorVerdict *v = arena_message(w->a, &trainyard__v1__executor_verdict__descriptor);
    v->executor = arena_printf(w->a, "executors/%s", id);
    v->hostname = (char *)(row ? row->hostname : "");
    v->verdict = state;
    v->slots = slots;
    v->slots_free = free;
    v->message = (char *)message;
    w->out.executors[w->out.n_executors++] = v;
}

static bool lacks_executors(const struct scheduler_explanation *x) {
    for (int i = 0; i < x->n_reasons; i++)
        if (x->reasons[i].kind == SCHEDULER_WAIT_NO_EXECUTOR || x->reasons[i].kind == SCHEDULER_WAIT_NO_SLOTS ||
            x->reasons[i].kind == SCHEDULER_WAIT_TOO_WIDE)
            return true;
    return false;
}

static const struct store_executor *row_of(const struct store_executor *rows, size_t n, const char *id) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].id, id) == 0)
            return &rows[i];
    return NULL;
}

/* A service may have lost many executors over time, so only a job that lacks executors lists them. */
static status_t add_lost(struct answer *w, const char *const *shown, struct err *e) {
    const size_t n_shown = (size_t)w->x->n_hosts;
    struct store_executor *rows;
    int64_t counts[3];
    size_t n;
    TRY(store_executor_counts(w->store, counts, e));
    TRY(store_executor_lost_list(w->store, w->m, shown, n_shown, SCHEDULER_LISTED - w->x->n_hosts, &rows, &n, e));
    for (size_t i = 0; i < n; i++)
        add_executor(w, rows[i].id, &rows[i], TRAINYARD__V1__EXECUTOR_VERDICT__VERDICT__LOST, 0, 0, rows[i].reason);
    if (counts[STORE_EXECUTOR_LOST] > (int64_t)n)
        w->out.executors_omitted += (int)(counts[STORE_EXECUTOR_LOST] - (int64_t)n);
    return ST_OK;
}

/* The proto's numbers are the scheduler's plus 1, or plus 2 from AVOIDED on: before it is LOST, which the scheduler
 * does not know. */
static Trainyard__V1__ExecutorVerdict__Verdict convert_availability(enum scheduler_host availability) {
    return (Trainyard__V1__ExecutorVerdict__Verdict)(availability + (availability < SCHEDULER_HOST_AVOIDED ? 1 : 2));
}

static status_t add_executors(struct answer *w, struct err *e) {
    const struct scheduler_explanation *x = w->x;
    const char *shown[SCHEDULER_LISTED];
    struct store_executor *rows;
    size_t n;
    if (x->waiting == 0)
        return ST_OK;
    for (int i = 0; i < x->n_hosts; i++)
        shown[i] = x->hosts[i].id;
    TRY(store_executor_some(w->store, w->m, shown, (size_t)x->n_hosts, &rows, &n, e));
    w->out.executors = arena_alloc(w->a, SCHEDULER_LISTED, sizeof *w->out.executors);
    w->out.executors_omitted = x->more_hosts;
    for (int i = 0; i < x->n_hosts; i++) {
        const struct scheduler_host_view *h = &x->hosts[i];
        const struct store_executor *row = row_of(rows, n, h->id);
        add_executor(w, h->id, row, convert_availability(h->availability), h->slots, h->free,
                     availability_text(w, h, row));
    }
    return lacks_executors(x) ? add_lost(w, shown, e) : ST_OK;
}

/* ---- the answer ---- */

/* "step 4 of 10", or "step 4": the number of steps of a program is not known. */
static const char *step_of(struct answer *w) {
    const long long step = w->row.step, steps = w->row.steps;
    return steps ? arena_printf(w->a, "step %lld of %lld", step, steps) : arena_printf(w->a, "step %lld", step);
}

static const char *summary_of(struct answer *w) {
    const struct store_job *row = &w->row;
    const long long steps = row->steps;
    if (w->x->live && w->x->state == JOB_STATE_RUNNING)
        return arena_printf(w->a, "%s, %s", w->x->summary, step_of(w));
    if (w->x->live)
        return w->x->summary;
    switch (row->state) {
    case STORE_JOB_QUEUED: return "waits for the scheduler to take it up";
    case STORE_JOB_SUCCEEDED: return steps ? arena_printf(w->a, "has ended after its %lld steps", steps) : "has ended";
    case STORE_JOB_FAILED:
        return arena_printf(w->a, "has ended at %s: %s; 'trainyard retry %lld' %s it", step_of(w), row->reason,
                            (long long)row->id, steps ? "continues" : "starts");
    case STORE_JOB_CANCELLED: return arena_printf(w->a, "has ended at %s: %s", step_of(w), row->reason);
    default: return *row->reason ? row->reason : "is between two states";
    }
}

static const char *with_loss(struct answer *w, const char *summary) {
    if (w->row.records_lost == 0)
        return summary;
    return arena_printf(w->a, "%s; %lld of its records are lost: 'trainyard events %lld' names them", summary,
                        (long long)w->row.records_lost, (long long)w->row.id);
}

static status_t answer(struct answer *w, struct rpc_call *call, struct err *e) {
    const struct scheduler_explanation *x = w->x;
    trainyard__v1__explain_job_response__init(&w->out);
    w->out.name = arena_printf(w->a, "jobs/%lld", (long long)w->row.id);
    w->out.state = convert_job_state(x->live ? row_state_write(x->state) : w->row.state);
    w->out.accelerator = (char *)w->row.accelerator;
    w->out.slots = w->row.world_size;
    w->out.slots_free = x->free;
    w->out.slots_attached = x->slots;
    w->out.position = x->position;
    w->out.waiting = x->waiting;
    w->out.summary = (char *)with_loss(w, summary_of(w));
    TRY(add_reasons(w, e));
    TRY(add_holders(w, e));
    TRY(add_executors(w, e));
    rpc_reply(call, &w->out.base);
    return ST_OK;
}

/* Ask the scheduler first: if it no longer knows the job, the row that is read afterwards has the final state. */
status_t explain_job(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    int64_t job, epoch;
    TRY(name_job(((const Trainyard__V1__ExplainJobRequest *)request)->name, &job, e));
    TRY(controller_leads(service, &epoch, e));
    CLEANUP(freep) struct scheduler_explanation *x = NULL;
    TRY(controller_explain(service, job, rpc_deadline(call, UNARY_DEADLINE_MS), &x, e));
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct answer w = { .store = controller_store(service), .m = m, .a = a, .x = x };
    TRY(rpc_found(call, store_job_get(w.store, m, job, &w.row, e), "JOB_NOT_FOUND"));
    return answer(&w, call, e);
}
