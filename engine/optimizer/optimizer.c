#include "engine/optimizer/optimizer.h"

#include <assert.h>
#include <string.h>

#define OPTIMIZER_ADDRESS(name) &optimizer_##name,
static const struct optimizer_kind *const KINDS[] = { OPTIMIZER_KINDS(OPTIMIZER_ADDRESS) NULL };

const struct optimizer_kind *optimizer_kind_find(const char *name) {
    for (int i = 0; KINDS[i]; i++)
        if (strcmp(KINDS[i]->name, name) == 0)
            return KINDS[i];
    return NULL;
}

status_t optimizer_check(const struct optimizer_config *o, struct err *e) {
    if (!(o->kind->rate(o) >= 0))
        return err_set(e, ST_INVALID_ARGUMENT, "train.optimizer.%s.lr: %g is less than 0", o->kind->name,
                       o->kind->rate(o));
    return o->kind->check(o, e);
}

int64_t optimizer_state_elements(const struct optimizer_kind *kind, const struct parameter *p, int state) {
    assert(state >= 0 && state < kind->n_states);
    if (p->kind == PARAMETER_STATISTIC)
        return 0;
    return kind->state_elements ? kind->state_elements(p, state) : shape_elements(&p->shape);
}

struct shape optimizer_state_shape(const struct optimizer_kind *kind, const struct parameter *p, int state) {
    const int64_t n = optimizer_state_elements(kind, p, state);
    return n == shape_elements(&p->shape) ? p->shape : (struct shape){ .n = 1, .dim = { n } };
}

size_t optimizer_workspace(const struct optimizer_kind *kind, const struct kernels *k, const struct parameter *p) {
    return kind->workspace && p->kind == PARAMETER_WEIGHT ? kind->workspace(k, p) : 0;
}

void optimizer_rates(const struct optimizer_config *o, double learning_rate, double ret[OPTIMIZER_RATES]) {
    ret[0] = learning_rate;
    ret[1] = o->kind->second_rate ? o->kind->second_rate(o, learning_rate) : 0;
}

static bool can_step(const struct optimizer_kind *kind, const struct optimizer_shard *p) {
    return p->parameter->kind == PARAMETER_WEIGHT &&
           (!kind->whole_tensor || (p->first == 0 && p->count == shape_elements(&p->parameter->shape)));
}

static status_t step_averages(const struct optimizer_call *c, struct err *e) {
    struct span spans[OPTIMIZER_SHARDS];
    int n = 0;
    for (const struct optimizer_shard *p = c->shards; p < c->shards + c->n_shards; p++)
        if (p->ema)
            spans[n++] = (struct span){ .n = p->count, .p = p->ema, .x = p->master };
    return n ? c->kernels->scale_add(c->kernels, spans, n, c->ema_decay, 1 - c->ema_decay, c->update, e) : ST_OK;
}

status_t optimizer_step(const struct optimizer_config *o, const struct optimizer_call *c, struct err *e) {
    assert(c->n_shards > 0 && c->n_shards <= OPTIMIZER_SHARDS);
    for (int i = 0; i < c->n_shards; i++)
        assert(can_step(o->kind, &c->shards[i]));
    TRY(o->kind->step(o, c, e));
    return step_averages(c, e);
}
