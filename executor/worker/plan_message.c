/* Fills the message Plan from a report of the planner, the configuration and the device's profile, and prints a
 * message as a table. The table reads nothing but the message, so that a client prints the same table for a plan
 * that it got from a service. Bytes are grouped by family (parameters, optimizer, gradients, activations, ...),
 * traffic by kind of collective and of link. */
#include "executor/worker/plan_message.h"

#include "base/alloc.h"
#include "engine/optimizer/optimizer.h"

#include <stdlib.h>
#include <string.h>

/* --- the message ---*/

static Trainyard__V1__PlannedFamily *family_new(const char *name, size_t bytes) {
    Trainyard__V1__PlannedFamily *family = alloc_zeroed(1, sizeof *family);
    trainyard__v1__planned_family__init(family);
    family->name = alloc_copy_text(name);
    family->bytes = (int64_t)bytes;
    return family;
}

static void add_rank(Trainyard__V1__Plan *plan, const struct stage_report *s, int stage) {
    Trainyard__V1__PlannedRank *m = plan->memory[plan->n_memory++] = alloc_zeroed(1, sizeof *m);
    trainyard__v1__planned_rank__init(m);
    m->rank = s->rank;
    m->stage = stage;
    m->bytes = (int64_t)s->bytes;
    m->families = alloc_zeroed(FAMILIES, sizeof *m->families);
    for (enum plan_family f = 0; f < FAMILIES; f++)
        m->families[m->n_families++] = family_new(plan_family_name(f), s->family_bytes[f]);
    m->host_bytes = (int64_t)host_memory_bytes(&s->host);
    m->host = alloc_zeroed(HOST_FAMILIES, sizeof *m->host);
    for (enum host_family f = 0; f < HOST_FAMILIES; f++)
        m->host[m->n_host++] = family_new(host_family_name(f), s->host.bytes[f]);
}

static void add_stage(Trainyard__V1__Plan *plan, const struct stage_report *s, const struct timeline_rank *time) {
    Trainyard__V1__PlannedStage *m = plan->stages[plan->n_stages++] = alloc_zeroed(1, sizeof *m);
    trainyard__v1__planned_stage__init(m);
    m->stage = time->stage;
    m->first_block = s->first_block;
    m->blocks = s->n_blocks;
    m->parameters = s->parameters;
    m->busy_seconds = time->busy;
    m->bubble = time->bubble;
    m->data_wait_seconds = time->data_wait;
    m->pipeline_wait_seconds = time->stage_wait;
}

static void add_wire(Trainyard__V1__Plan *m, const struct stage_report *s, int rank) {
    for (enum wire_kind k = 0; k < WIRE_KINDS; k++) {
        if (s->wire.intra_node[k] + s->wire.inter_node[k] == 0)
            continue;
        Trainyard__V1__PlannedLink *link = m->wire[m->n_wire++] = alloc_zeroed(1, sizeof *link);
        trainyard__v1__planned_link__init(link);
        link->name = alloc_copy_text(wire_kind_name(k));
        link->rank = rank;
        link->bytes = (int64_t)(s->wire.intra_node[k] + s->wire.inter_node[k]);
        link->far_bytes = (int64_t)s->wire.inter_node[k];
    }
}

static void add_stages(Trainyard__V1__Plan *m, const struct plan_report *r) {
    m->memory = alloc_zeroed((size_t)r->n_stages, sizeof *m->memory);
    m->stages = alloc_zeroed((size_t)r->n_stages, sizeof *m->stages);
    m->wire = alloc_zeroed((size_t)(r->n_stages * WIRE_KINDS), sizeof *m->wire);
    for (int s = 0; s < r->n_stages; s++) {
        add_rank(m, &r->stages[s], s);
        add_stage(m, &r->stages[s], &r->timeline.ranks[s]);
        add_wire(m, &r->stages[s], r->timeline.ranks[s].rank);
        m->optimizer_balance = r->stages[s].balance > m->optimizer_balance ? r->stages[s].balance
                                                                           : m->optimizer_balance;
    }
}

/* The spans of compute, by stage. Spans of one thing that follow each other are one. */
static void add_spans(Trainyard__V1__Plan *m, const struct timeline *t) {
    m->spans = alloc_zeroed(PLAN_MESSAGE_SPANS_MAX, sizeof *m->spans);
    for (int i = 0; i < t->n_spans; i++) {
        const struct timeline_span *s = &t->spans[i];
        Trainyard__V1__PlannedSpan *last = m->n_spans ? m->spans[m->n_spans - 1] : NULL;
        const int stage = t->ranks[s->number].stage;
        if (s->queue != QUEUE_COMPUTE)
            continue;
        if (last && last->stage == stage && last->micro_batch == s->micro_batch &&
            strcmp(last->work, timeline_work_name(s->work)) == 0 && s->begin <= last->end_seconds * (1 + 1e-9)) {
            last->end_seconds = s->end;
            continue;
        }
        if (m->n_spans == PLAN_MESSAGE_SPANS_MAX) {
            while (m->n_spans)
                protobuf_c_message_free_unpacked(&m->spans[--m->n_spans]->base, NULL);
            return;
        }
        Trainyard__V1__PlannedSpan *span = m->spans[m->n_spans++] = alloc_zeroed(1, sizeof *span);
        trainyard__v1__planned_span__init(span);
        span->stage = stage;
        span->work = alloc_copy_text(timeline_work_name(s->work));
        span->begin_seconds = s->begin;
        span->end_seconds = s->end;
        span->micro_batch = s->micro_batch;
    }
}

static void add_layout(Trainyard__V1__Plan *m, const struct plan_report *r, const struct engine_config *c) {
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
    m->pipeline_schedule = alloc_copy_text(l->schedule->name);
    m->recompute = alloc_copy_text(PLAN_RECOMPUTE_WORDS[l->recompute]);
    m->reduce = alloc_copy_text(PLAN_REDUCE_WORDS[l->reduce]);
    m->numerics = alloc_copy_text(ENGINE_NUMERICS_NAMES[c->train.numerics]);
    m->optimizer = alloc_copy_text(c->train.optimizer.kind->name);
}

static void fill(Trainyard__V1__Plan *m, const struct plan_facts *facts) {
    const struct plan_report *r = facts->report;
    add_layout(m, r, facts->config);
    add_stages(m, r);
    add_spans(m, &r->timeline);
    m->note = alloc_copy_text(facts->note);
    m->device = alloc_copy_text(facts->profile->name);
    m->device_source = alloc_copy_text(facts->profile->measured ? "measured here" : facts->profile->device);
    m->parameters = r->parameters;
    m->weight_bytes_per_parameter = r->weight_bytes;
    m->gradient_bytes_per_parameter = r->gradient_bytes;
    m->optimizer_bytes_per_parameter = r->optimizer_bytes;
    m->most_bytes = (int64_t)r->max_bytes;
    m->memory_bytes = (int64_t)facts->memory_bytes;
    m->largest_micro_batch = facts->largest_micro_batch;
    m->larger_exceeds_memory = facts->larger_exceeds_memory;
    m->step_seconds = r->timeline.seconds;
    m->bucket_bytes = r->layout.data > 1 ? facts->buckets.bytes : 0;
    m->bucket_gain = facts->buckets.seconds > 0 ? 1 - facts->buckets.seconds / facts->buckets.default_seconds : 0;
    m->bubble = r->bubble;
    m->bubble_formula = r->bubble_formula;
    m->utilization = r->utilization;
    m->model_flops = r->model_flops;
    m->samples_per_second = facts->config->train.global_batch / r->timeline.seconds;
    m->tokens_per_second = m->samples_per_second * facts->tokens_per_sample;
}

Trainyard__V1__Plan *plan_message_make(const struct plan_facts *facts) {
    Trainyard__V1__Plan *m = alloc_zeroed(1, sizeof *m);
    trainyard__v1__plan__init(m);
    fill(m, facts);
    return m;
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

/* With one lane a rank, ZeRO 2 and 3 hold parts of the gradients as soon as no lane has to be folded first. */
static bool keeps_whole_gradients(const Trainyard__V1__Plan *p) {
    return p->zero >= 2 && p->data > 1 && p->lanes == p->data && p->micro_batches > p->lanes &&
           strcmp(p->reduce, PLAN_REDUCE_WORDS[PLAN_REDUCE_STEP]) == 0;
}

static status_t table_head(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "layout   %d rank%s: data %d x pipeline %d", p->ranks, p->ranks == 1 ? "" : "s", p->data,
                     p->pipeline));
    if (p->pipeline > 1)
        TRY(bytes_printf(ret, e, " (%s%s", p->pipeline_schedule, p->virtual_stages > 1 ? "" : ")"));
    if (p->pipeline > 1 && p->virtual_stages > 1)
        TRY(bytes_printf(ret, e, ", %d virtual stages)", p->virtual_stages));
    TRY(bytes_printf(ret, e, ", zero %d, recompute %s\n", p->zero, p->recompute));
    TRY(bytes_printf(ret, e, "batch    %d sample%s = %d micro-batch%s of %d; lanes %d, reduce %s, numerics %s\n",
                     p->global_batch, p->global_batch == 1 ? "" : "s", p->micro_batches,
                     p->micro_batches == 1 ? "" : "es", p->micro_batch, p->lanes, p->reduce, p->numerics));
    if (*p->note)
        TRY(bytes_printf(ret, e, "         %s\n", p->note));
    if (keeps_whole_gradients(p))
        TRY(bytes_printf(ret, e,
                         "         reduce step keeps whole gradients on each rank until the end of the step; "
                         "train.reduce: micro_batch keeps a rank's part, and sends %d times as much\n",
                         p->micro_batches / p->lanes));
    TRY(bytes_printf(ret, e,
                     "model    %s parameters; bytes each, before sharding: weight %.4g, gradient %.4g, %s %.4g\n",
                     amount((double)p->parameters, "", 1000).text, p->weight_bytes_per_parameter,
                     p->gradient_bytes_per_parameter, p->optimizer, p->optimizer_bytes_per_parameter));
    if (p->zero > 0 && p->data > 1)
        TRY(bytes_printf(ret, e, "         the fullest data rank steps %.2f times the mean share\n",
                         p->optimizer_balance));
    return bytes_printf(ret, e, "device   %s (%s)\n\n", p->device, p->device_source);
}

static status_t table_limit(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    if (p->memory_bytes == 0)
        return bytes_printf(ret, e, "\n");
    TRY(bytes_printf(ret, e, "limit %s: %s; ", BYTES(p->memory_bytes),
                     p->most_bytes <= p->memory_bytes ? "it fits" : "IT DOES NOT FIT"));
    if (p->largest_micro_batch && p->larger_exceeds_memory)
        return bytes_printf(ret, e, "the largest micro-batch that fits is %d\n\n", p->largest_micro_batch);
    if (p->largest_micro_batch)
        return bytes_printf(ret, e,
                            "micro-batches of %d fit, and %d samples in %d lane%s cannot be cut into larger ones\n\n",
                            p->largest_micro_batch, p->global_batch, p->lanes, p->lanes == 1 ? "" : "s");
    return bytes_printf(ret, e, "no micro-batch fits\n\n");
}

static status_t table_families(Trainyard__V1__PlannedFamily *const *families, size_t n, bool names, struct bytes *ret,
                               struct err *e) {
    for (size_t f = 0; f < n; f++)
        TRY(bytes_printf(ret, e, " %13s", names ? families[f]->name : BYTES(families[f]->bytes)));
    return ST_OK;
}

/* On a CPU the memory of the device is memory of the host. */
static status_t table_host(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    TRY(bytes_printf(ret, e, "memory of its host beside that\n%5s %6s %18s", "stage", "rank", ""));
    TRY(table_families(p->memory[0]->host, p->memory[0]->n_host, true, ret, e));
    TRY(bytes_printf(ret, e, " %10s\n", "total"));
    for (size_t s = 0; s < p->n_memory; s++) {
        const Trainyard__V1__PlannedRank *m = p->memory[s];
        TRY(bytes_printf(ret, e, "%5d %6d %18s", m->stage, m->rank, ""));
        TRY(table_families(m->host, m->n_host, false, ret, e));
        TRY(bytes_printf(ret, e, " %10s\n", BYTES(m->host_bytes)));
    }
    return ST_OK;
}

static status_t table_memory(const Trainyard__V1__Plan *p, struct bytes *ret, struct err *e) {
    if (!p->n_memory)
        return ST_OK;
    TRY(bytes_printf(ret, e, "memory of a rank\n%5s %6s %7s %10s", "stage", "rank", "blocks", "parameters"));
    TRY(table_families(p->memory[0]->families, p->memory[0]->n_families, true, ret, e));
    TRY(bytes_printf(ret, e, " %10s\n", "total"));
    for (size_t s = 0; s < p->n_memory; s++) {
        const Trainyard__V1__PlannedRank *m = p->memory[s];
        TRY(bytes_printf(ret, e, "%5d %6d %7d %10s", m->stage, m->rank, p->stages[s]->blocks,
                         amount((double)p->stages[s]->parameters, "", 1000).text));
        TRY(table_families(m->families, m->n_families, false, ret, e));
        TRY(bytes_printf(ret, e, " %10s\n", BYTES(m->bytes)));
    }
    if (p->memory[0]->n_host)
        TRY(table_host(p, ret, e));
    return table_limit(p, ret, e);
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
    if (p->bucket_bytes)
        TRY(bytes_printf(ret, e, "\nbuckets of %s: gradients are reduced as they become ready",
                         BYTES(p->bucket_bytes)));
    if (p->bucket_gain > 0)
        TRY(bytes_printf(ret, e, "; a step is %.1f %% shorter than with the default", 100 * p->bucket_gain));
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
