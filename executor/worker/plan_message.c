#include "executor/worker/plan_message.h"

#include "base/array.h"
#include "executor/engine/optimizer/optimizer.h"

#include <stdlib.h>
#include <string.h>

static status_t copy(char **ret, const char *text, struct err *e) {
    const size_t n = strlen(text) + 1;
    char *s = NULL;
    TRY(array_new(&s, (int)n, e));
    *ret = memcpy(s, text, n);
    return ST_OK;
}

/* --- the message ---*/

/* Each adds what it makes before it fills it in, so that whatever fails the message owns all there is. */

static status_t add_rank(Trainyard__V1__Plan *plan, const struct stage_report *s, int stage, struct err *e) {
    TRY(array_new(&plan->memory[plan->n_memory], 1, e));
    Trainyard__V1__PlannedRank *m = plan->memory[plan->n_memory++];
    trainyard__v1__planned_rank__init(m);
    m->rank = s->rank;
    m->stage = stage;
    m->bytes = (int64_t)s->bytes;
    TRY(array_new(&m->families, FAMILIES, e));
    for (enum plan_family f = 0; f < FAMILIES; f++) {
        TRY(array_new(&m->families[f], 1, e));
        Trainyard__V1__PlannedFamily *family = m->families[m->n_families++];
        trainyard__v1__planned_family__init(family);
        TRY(copy(&family->name, plan_family_name(f), e));
        family->bytes = (int64_t)s->family_bytes[f];
    }
    return ST_OK;
}

static status_t add_stage(Trainyard__V1__Plan *plan, const struct stage_report *s, const struct timeline_rank *time,
                          struct err *e) {
    TRY(array_new(&plan->stages[plan->n_stages], 1, e));
    Trainyard__V1__PlannedStage *m = plan->stages[plan->n_stages++];
    trainyard__v1__planned_stage__init(m);
    m->stage = time->stage;
    m->first_block = s->first_block;
    m->blocks = s->n_blocks;
    m->parameters = s->parameters;
    m->busy_seconds = time->busy;
    m->bubble = time->bubble;
    m->data_wait_seconds = time->data_wait;
    m->pipeline_wait_seconds = time->stage_wait;
    return ST_OK;
}

static status_t add_wire(Trainyard__V1__Plan *m, const struct stage_report *s, int rank, struct err *e) {
    for (enum wire_kind k = 0; k < WIRE_KINDS; k++) {
        if (s->wire.near[k] + s->wire.far[k] == 0)
            continue;
        TRY(array_new(&m->wire[m->n_wire], 1, e));
        Trainyard__V1__PlannedLink *link = m->wire[m->n_wire++];
        trainyard__v1__planned_link__init(link);
        TRY(copy(&link->name, wire_kind_name(k), e));
        link->rank = rank;
        link->bytes = (int64_t)(s->wire.near[k] + s->wire.far[k]);
        link->far_bytes = (int64_t)s->wire.far[k];
    }
    return ST_OK;
}

static status_t add_stages(Trainyard__V1__Plan *m, const struct plan_report *r, struct err *e) {
    TRY(array_new(&m->memory, r->n_stages, e));
    TRY(array_new(&m->stages, r->n_stages, e));
    TRY(array_new(&m->wire, r->n_stages * WIRE_KINDS, e));
    for (int s = 0; s < r->n_stages; s++) {
        TRY(add_rank(m, &r->stages[s], s, e));
        TRY(add_stage(m, &r->stages[s], &r->timeline.ranks[s], e));
        TRY(add_wire(m, &r->stages[s], r->timeline.ranks[s].rank, e));
        m->optimizer_balance = r->stages[s].balance > m->optimizer_balance ? r->stages[s].balance
                                                                           : m->optimizer_balance;
    }
    return ST_OK;
}

static status_t add_layout(Trainyard__V1__Plan *m, const struct plan_report *r, const struct engine_config *c,
                           struct err *e) {
    const struct plan_layout *l = &r->layout;
    m->ranks = l->world_size;
    m->data = l->data;
    m->pipeline = l->stages;
    m->virtual_stages = l->virtual_stages;
    m->zero = c->layout.zero;
    m->micro_batch = c->train.micro_batch;
    m->global_batch = c->train.global_batch;
    m->lanes = l->lanes;
    m->micro_batches = l->micro_batches;
    TRY(copy(&m->pipeline_schedule, PLAN_SCHEDULE_WORDS[l->schedule], e));
    TRY(copy(&m->recompute, PLAN_RECOMPUTE_WORDS[l->recompute], e));
    TRY(copy(&m->reduce, PLAN_REDUCE_WORDS[l->reduce], e));
    TRY(copy(&m->numerics, ENGINE_NUMERICS_WORDS[c->train.numerics], e));
    return copy(&m->optimizer, c->train.optimizer.kind->name, e);
}

static status_t fill(Trainyard__V1__Plan *m, const struct plan_facts *facts, struct err *e) {
    const struct plan_report *r = facts->report;
    TRY(add_layout(m, r, facts->config, e));
    TRY(add_stages(m, r, e));
    TRY(copy(&m->note, facts->note, e));
    TRY(copy(&m->device, facts->profile->name, e));
    TRY(copy(&m->device_source, facts->profile->measured ? "measured here" : facts->profile->device, e));
    m->parameters = r->parameters;
    m->weight_bytes_per_parameter = r->weight_bytes;
    m->gradient_bytes_per_parameter = r->gradient_bytes;
    m->optimizer_bytes_per_parameter = r->optimizer_bytes;
    m->most_bytes = (int64_t)r->most_bytes;
    m->memory_bytes = (int64_t)facts->memory_bytes;
    m->largest_micro_batch = facts->largest_micro_batch;
    m->step_seconds = r->timeline.seconds;
    m->bubble = r->bubble;
    m->bubble_formula = r->bubble_formula;
    m->utilization = r->utilization;
    m->model_flops = r->model_flops;
    m->samples_per_second = facts->config->train.global_batch / r->timeline.seconds;
    m->tokens_per_second = m->samples_per_second * facts->tokens_per_sample;
    return ST_OK;
}

Trainyard__V1__Plan *plan_message_free(Trainyard__V1__Plan *m) {
    if (m)
        protobuf_c_message_free_unpacked(&m->base, NULL);
    return NULL;
}

status_t plan_message_make(const struct plan_facts *facts, Trainyard__V1__Plan **ret, struct err *e) {
    CLEANUP(plan_message_freep) Trainyard__V1__Plan *m = NULL;
    TRY(array_new(&m, 1, e));
    trainyard__v1__plan__init(m);
    TRY(fill(m, facts, e));
    *ret = take_ptr(&m);
    return ST_OK;
}

/* --- the table ---*/

struct amount {
    char text[24];
};

static struct amount amount(double x, const char *unit, double base) {
    static const char *const prefix[2][6] = { { "", "k", "M", "G", "T", "P" }, { "", "Ki", "Mi", "Gi", "Ti", "Pi" } };
    int i = 0;
    for (; x >= base && i < 5; i++)
        x /= base;
    struct amount a;
    snprintf(a.text, sizeof a.text, i ? "%.3g %s%s" : "%.4g %s%s", x, prefix[base > 1000][i], unit);
    size_t n = strlen(a.text);
    if (n && a.text[n - 1] == ' ')
        a.text[n - 1] = '\0';
    return a;
}
#define BYTES(x) (amount((double)(x), "B", 1024).text)

static status_t table_head(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "layout   %d rank%s: data %d x pipeline %d", p->ranks, p->ranks == 1 ? "" : "s", p->data,
                     p->pipeline));
    if (p->pipeline > 1)
        TRY(bytes_printf(ret, e, " (%s%s", p->pipeline_schedule, p->virtual_stages > 1 ? "" : ")"));
    if (p->pipeline > 1 && p->virtual_stages > 1)
        TRY(bytes_printf(ret, e, ", %d virtual stages)", p->virtual_stages));
    TRY(bytes_printf(ret, e, ", zero %d, recompute %s\n", p->zero, p->recompute));
    TRY(bytes_printf(ret, e, "batch    %d samples = %d micro-batches of %d; lanes %d, reduce %s, numerics %s\n",
                     p->global_batch, p->micro_batches, p->micro_batch, p->lanes, p->reduce, p->numerics));
    if (*p->note)
        TRY(bytes_printf(ret, e, "         %s\n", p->note));
    TRY(bytes_printf(ret, e,
                     "model    %s parameters; bytes each, before sharding: weight %.4g, gradient %.4g, %s %.4g\n",
                     amount((double)p->parameters, "", 1000).text, p->weight_bytes_per_parameter,
                     p->gradient_bytes_per_parameter, p->optimizer, p->optimizer_bytes_per_parameter));
    if (p->zero > 0 && p->data > 1)
        TRY(bytes_printf(ret, e, "         the fullest data rank steps %.2f times the mean share\n",
                         p->optimizer_balance));
    return bytes_printf(ret, e, "device   %s (%s)\n\n", p->device, p->device_source);
}

static status_t table_memory(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "memory of a rank\n%5s %6s %7s %10s", "stage", "rank", "blocks", "parameters"));
    for (size_t f = 0; p->n_memory && f < p->memory[0]->n_families; f++)
        TRY(bytes_printf(ret, e, " %13s", p->memory[0]->families[f]->name));
    TRY(bytes_printf(ret, e, " %10s\n", "total"));
    for (size_t s = 0; s < p->n_memory; s++) {
        const Trainyard__V1__PlannedRank *m = p->memory[s];
        TRY(bytes_printf(ret, e, "%5d %6d %7d %10s", m->stage, m->rank, p->stages[s]->blocks,
                         amount((double)p->stages[s]->parameters, "", 1000).text));
        for (size_t f = 0; f < m->n_families; f++)
            TRY(bytes_printf(ret, e, " %13s", BYTES(m->families[f]->bytes)));
        TRY(bytes_printf(ret, e, " %10s\n", BYTES(m->bytes)));
    }
    if (p->memory_bytes == 0)
        return bytes_printf(ret, e, "\n");
    TRY(bytes_printf(ret, e, "limit %s: %s; ", BYTES(p->memory_bytes),
                     p->most_bytes <= p->memory_bytes ? "it fits" : "IT DOES NOT FIT"));
    if (p->largest_micro_batch)
        return bytes_printf(ret, e, "the largest micro-batch that fits is %d\n\n", p->largest_micro_batch);
    return bytes_printf(ret, e, "no micro-batch fits\n\n");
}

static status_t table_wire(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    if (!p->n_wire)
        return ST_OK;
    TRY(bytes_printf(ret, e, "sent by a rank in a step\n"));
    for (size_t i = 0; i < p->n_wire; i++) {
        const Trainyard__V1__PlannedLink *link = p->wire[i];
        bool again = i && p->wire[i - 1]->rank == link->rank;
        if (!again)
            TRY(bytes_printf(ret, e, "%srank %-5d", i ? "\n" : "", link->rank));
        TRY(bytes_printf(ret, e, "  %s %s", link->name, BYTES(link->bytes)));
        if (link->far_bytes)
            TRY(bytes_printf(ret, e, " (%s between nodes)", BYTES(link->far_bytes)));
    }
    return bytes_printf(ret, e, "\n\n");
}

static status_t table_time(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "time     %.4g s a step, %.4g samples/s", p->step_seconds, p->samples_per_second));
    if (p->tokens_per_second > 0)
        TRY(bytes_printf(ret, e, ", %s tokens/s", amount(p->tokens_per_second, "", 1000).text));
    TRY(bytes_printf(ret, e, "; %.1f %% of the devices' peak\n", 100 * p->utilization));
    if (p->pipeline > 1)
        TRY(bytes_printf(ret, e, "bubble   %.1f %% (the formula of %s with equal stages: %.1f %%)\n", 100 * p->bubble,
                         p->pipeline_schedule, 100 * p->bubble_formula));
    return ST_OK;
}

status_t plan_message_table(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    TRY(table_head(p, ret, e));
    TRY(table_memory(p, ret, e));
    TRY(table_wire(p, ret, e));
    return table_time(p, ret, e);
}
