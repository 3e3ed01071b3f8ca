#include "engine/run/step_control.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int step_control_results(const struct plan *plan) {
    return plan->layout.micro_batches * (plan->layout.kind == PLAN_EVALUATE ? plan->graph->micro_batch : 1);
}

static size_t result_values(const struct plan *plan) {
    return (size_t)step_control_results(plan) * (size_t)(1 + plan->graph->n_reports);
}

static size_t step_control_bytes(const struct plan *plan) {
    return sizeof(struct step_control) + result_values(plan) * sizeof(double);
}

int64_t step_control_result_words(const struct plan *plan) { return 1 + (int64_t)result_values(plan); }

/* --- opening --- */

static int loads_of(const struct plan *plan) {
    const struct instruction_list *compute = &plan->queue[QUEUE_COMPUTE];
    int n = 0;
    for (int i = 0; i < compute->n; i++)
        n += compute->items[i].kind == INSTRUCTION_LOAD;
    return n;
}

static void measure(struct step_controls *c, const struct plan *const *plans, int n) {
    for (int p = 0; p < n; p++) {
        const struct graph *g = plans[p]->graph;
        c->bytes = step_control_bytes(plans[p]) > c->bytes ? step_control_bytes(plans[p]) : c->bytes;
        for (int b = 0; b < g->n_batch; b++)
            if (plan_loads(plans[p], g->batch[b]))
                c->input_bytes[g->tensors[g->batch[b]].input] = graph_batch_bytes(g, g->batch[b]);
    }
    c->max_batches = loads_of(plans[0]) > 1 ? loads_of(plans[0]) : 1;
    c->max_staged = c->max_batches < CONTROL_STAGED ? c->max_batches : CONTROL_STAGED;
}

static status_t open_copy(struct step_controls *c, struct step_control_copy *s, struct err *e) {
    const struct kernels *k = c->kernels;
    void *p = NULL;
    TRY(k->host_memory_new(k, c->bytes, &p, e));
    s->host = p;
    memset(s->host, 0, c->bytes);
    TRY(k->event_new(k, &s->event, e));
    for (int i = 0; k->deferred && i < BATCH_INPUTS; i++)
        if (c->input_bytes[i] > 0) {
            TRY(k->host_memory_new(k, (size_t)c->max_staged * c->input_bytes[i], &p, e));
            s->staging[i] = p;
        }
    return ST_OK;
}

status_t step_control_open(struct step_controls *c, const struct kernels *k, const struct plan *const *plans, int n,
                           struct err *e) {
    *c = (struct step_controls){ .kernels = k };
    measure(c, plans, n);
    void *device = NULL;
    TRY(k->memory_new(k, c->bytes, &device, e));
    c->device = device;
    for (int i = 0; i < CONTROL_STEPS; i++)
        TRY(open_copy(c, &c->copies[i], e));
    return step_control_set(c, &(struct decision){ .scale = 1 }, e);
}

void step_control_close(struct step_controls *c) {
    const struct kernels *k = c->kernels;
    if (!k)
        return;
    status_ignore(k->finish(k, NULL));
    for (int i = 0; i < CONTROL_STEPS; i++) {
        struct step_control_copy *s = &c->copies[i];
        k->event_free(k, s->event);
        for (int b = 0; b < BATCH_INPUTS; b++)
            k->host_memory_free(k, s->staging[b]);
        k->host_memory_free(k, s->host);
    }
    k->memory_free(k, c->device);
    c->kernels = NULL;
}

status_t step_control_set(struct step_controls *c, const struct decision *first, struct err *e) {
    assert(c->begun == c->taken);
    struct step_control *host = c->copies[0].host;
    memset(host, 0, c->bytes);
    host->decision = *first;
    TRY(c->kernels->upload(c->kernels, c->device, host, c->bytes, e));
    return c->kernels->finish(c->kernels, e);
}

/* --- a step --- */

struct step_control_copy *step_control_newest(struct step_controls *c) {
    return &c->copies[(c->begun - 1) % CONTROL_STEPS];
}

struct step_control *step_control_begin(struct step_controls *c) {
    assert(c->begun - c->taken < CONTROL_STEPS);
    c->begun++;
    struct step_control_copy *s = step_control_newest(c);
    s->staged = 0;
    return s->host;
}

status_t step_control_stage(struct step_controls *c, struct batch *batch, struct err *e) {
    struct step_control_copy *s = step_control_newest(c);
    if (s->staged == c->max_staged) {
        TRY(c->kernels->finish(c->kernels, e));
        s->staged = 0;
    }
    for (int i = 0; i < BATCH_INPUTS; i++)
        if (batch->of[i] && s->staging[i]) {
            char *to = s->staging[i] + (size_t)s->staged * c->input_bytes[i];
            batch->of[i] = memcpy(to, batch->of[i], c->input_bytes[i]);
        }
    s->staged++;
    return ST_OK;
}

status_t step_control_upload(struct step_controls *c, struct err *e) {
    const size_t from = offsetof(struct step_control, step), to = offsetof(struct step_control, losses);
    return c->kernels->upload(c->kernels, (char *)c->device + from, (const char *)step_control_newest(c)->host + from,
                              to - from, e);
}

status_t step_control_download(struct step_controls *c, const struct plan *plan, struct err *e) {
    return c->kernels->download(c->kernels, step_control_newest(c)->host, c->device, step_control_bytes(plan), e);
}

status_t step_control_end(struct step_controls *c, struct err *e) {
    return c->kernels->event_record(c->kernels, step_control_newest(c)->event, e);
}

status_t step_control_take(struct step_controls *c, const struct step_control **ret, struct err *e) {
    assert(c->taken < c->begun);
    struct step_control_copy *s = &c->copies[c->taken % CONTROL_STEPS];
    TRY(c->kernels->event_wait(c->kernels, s->event, e));
    c->taken++;
    *ret = s->host;
    return ST_OK;
}
