#include "engine/plan/cost/plan_report.h"

#include "base/array.h"
#include "engine/optimizer/optimizer.h"
#include "engine/plan/build/choose.h"
#include "engine/plan/build/plan_build.h"
#include "engine/plan/verify/verify.h"

#include <stdlib.h>
#include <string.h>

static int64_t elements_of(const struct graph *g, int parameter) {
    return shape_elements(&g->parameters[parameter].shape);
}

/* --- whole model ---*/

static void count_parameters(const struct graph *g, const struct plan_layout *l, struct plan_report *r) {
    const struct optimizer_kind *kind = l->optimizer;
    double states = 0;
    for (int i = 0; i < g->n_parameters; i++) {
        if (g->parameters[i].kind != PARAMETER_WEIGHT)
            continue;
        r->parameters += elements_of(g, i);
        for (int s = 0; kind && s < kind->n_states; s++)
            states += (double)optimizer_state_elements(kind, &g->parameters[i], s);
    }
    double element = (double)dtype_bytes(g->element), n = r->parameters ? (double)r->parameters : 1;
    r->weight_bytes = element;
    r->gradient_bytes = sizeof(float);
    r->optimizer_bytes = sizeof(float) * states / n + (g->element == DTYPE_F32 ? 0 : sizeof(float)) +
                         (l->ema ? sizeof(float) : 0);
}

/* --- a stage ---*/

static status_t weigh_stage(const struct plan *p, const struct host_memory_rule *host, struct stage_report *s,
                            struct err *e) {
    CLEANUP(plan_freep) struct plan *other = NULL;
    const struct plan *full = p;
    struct plan_layout layout = p->layout;
    layout.rank = plan_stage(&layout) * layout.data + plan_fullest(p, &s->balance);
    if (layout.rank != p->layout.rank) {
        TRY(plan_build(p->graph, &layout, &other, e));
        full = other;
    }
    s->rank = full->layout.rank;
    memcpy(s->family_bytes, full->family_bytes, sizeof s->family_bytes);
    s->bytes = plan_bytes(full);
    if (host)
        host->weigh(host->ctx, full, &s->host);
    s->limited_bytes = s->bytes + (host && host->limited ? host_memory_bytes(&s->host) : 0);
    return ST_OK;
}

static void describe_stage(const struct plan *p, struct stage_report *s) {
    s->first_block = -1;
    for (int b = 0; b < p->graph->n_blocks; b++) {
        if (p->block_virtual_stage[b] < 0)
            continue;
        s->first_block = s->first_block < 0 ? b : s->first_block;
        s->n_blocks++;
    }
    for (int i = 0; i < p->graph->n_parameters; i++)
        if (p->parameter_stage[i] == plan_stage(&p->layout) && p->graph->parameters[i].kind == PARAMETER_WEIGHT)
            s->parameters += elements_of(p->graph, i);
}

/* --- time ---*/

static void judge_time(const struct graph *g, const struct plan_profile *f, struct plan_report *r) {
    const struct plan_layout *l = &r->layout;
    const struct timeline *t = &r->timeline;
    const double own = plan_own_micro_batches(l);
    struct phase_seconds seconds = { 0 };
    for (int s = 0; s < t->n; s++) {
        const double *work = t->ranks[s].work;
        r->bubble += t->ranks[s].bubble / t->n;
        seconds.forward += work[TIMELINE_FORWARD] / own / t->n;
        seconds.backward_input += (work[TIMELINE_BACKWARD] + work[TIMELINE_RECOMPUTE]) / own / t->n;
        seconds.backward_weight += work[TIMELINE_WEIGHT] / own / t->n;
    }
    double idle = schedule_bubble(l->schedule, l->stages, l->virtual_stages, &seconds);
    double ideal = own * (seconds.forward + seconds.backward_input + seconds.backward_weight);
    r->bubble_formula = idle + ideal > 0 ? idle / (idle + ideal) : 0;
    r->model_flops = graph_flops(g) * l->micro_batches;
    double peak = f->product_flops[g->element] > 0 ? f->product_flops[g->element] : f->product_flops[DTYPE_F32];
    r->utilization = t->seconds > 0 ? r->model_flops / (t->seconds * l->world_size * peak) : 0;
}

static status_t report_column(const struct plan *const *plans, int n, const struct host_memory_rule *host,
                              const struct plan_profile *profile, struct plan_report *r, struct err *e) {
    struct plan_profile f = *profile;
    TRY(plan_verify(plans, n, e));
    TRY(timeline_simulate(plans, n, &(struct timeline_costs){ .seconds = timeline_profile_seconds, .ctx = &f },
                          &r->timeline, e));
    r->layout = plans[0]->layout;
    for (int s = 0; s < n; s++) {
        TRY(weigh_stage(plans[s], host, &r->stages[s], e));
        describe_stage(plans[s], &r->stages[s]);
        r->stages[s].wire = step_cost_wire(plans[s], profile);
        r->max_bytes = r->stages[s].limited_bytes > r->max_bytes ? r->stages[s].limited_bytes : r->max_bytes;
    }
    count_parameters(plans[0]->graph, &r->layout, r);
    judge_time(plans[0]->graph, profile, r);
    return ST_OK;
}

status_t plan_report_make(const struct graph *graph, const struct plan_layout *layout,
                          const struct host_memory_rule *host, const struct plan_profile *profile,
                          struct plan_report *ret, struct err *e) {
    struct plan_layout l = *layout;
    int data = l.data > 1 ? l.data : 1, n = l.stages > 1 ? l.stages : 1;
    CLEANUP(freep) struct plan **plans = NULL;
    struct plan_report r = { .n_stages = n };
    TRY(array_new(&plans, n, e));
    status_t st = array_new(&r.stages, n, e);
    for (int s = 0; s < n && st == ST_OK; s++) {
        l.rank = s * data;
        st = plan_build(graph, &l, &plans[s], e);
    }
    if (st == ST_OK)
        st = report_column((const struct plan *const *)plans, n, host, profile, &r, e);
    for (int s = 0; s < n; s++)
        plan_free(plans[s]);
    if (st == ST_OK)
        *ret = r;
    else
        plan_report_done(&r);
    return st;
}

void plan_report_done(struct plan_report *r) {
    timeline_done(&r->timeline);
    free(r->stages);
    *r = (struct plan_report){ 0 };
}
