#include "engine/plan/cost/step_cost.h"

#include "engine/optimizer/optimizer.h"
#include "engine/plan/op_cost.h"

static double shard_elements(const struct plan *p, const struct instruction *i) {
    double n = 0;
    for (int64_t k = i->begin; k < i->end && k < p->n_shards; k++)
        n += (double)p->shards[k].count;
    return n;
}

/* Gradient, master and states are read, master and states written, and the weight where it is no master. */
static double step_bytes(const struct plan *p) {
    const struct optimizer_kind *kind = p->layout.optimizer;
    double states = kind ? kind->n_states : 0;
    double element = p->graph->element == DTYPE_F32 ? 0 : (double)dtype_bytes(p->graph->element);
    return 4 + 8 + 8 * states + element + (p->layout.ema ? 8 : 0);
}

struct op_cost step_cost_work(const struct plan *p, const struct instruction *i) {
    double bytes = 0;
    switch (i->kind) {
    case INSTRUCTION_FORWARD:
    case INSTRUCTION_RECOMPUTE: return cost_forward(p->graph, i->op);
    case INSTRUCTION_BACKWARD_INPUT: return cost_backward_input(p->graph, i->op);
    case INSTRUCTION_BACKWARD_WEIGHT: return cost_backward_weight(p->graph, i->op);
    case INSTRUCTION_LOAD:
        for (int b = 0; b < p->graph->n_batch; b++)
            if (plan_loads(p, p->graph->batch[b]))
                bytes += (double)plan_tensor_bytes(p, p->graph->batch[b]) +
                         (p->layout.uploads_ahead ? (double)graph_batch_bytes(p->graph, p->graph->batch[b]) : 0);
        break;
    case INSTRUCTION_COPY_GRADIENT: bytes = 2 * (double)plan_tensor_bytes(p, p->gradient_copy[i->op]); break;
    case INSTRUCTION_ADD: bytes = (i->first ? 8.0 : 12.0) * (double)(i->end - i->begin); break;
    case INSTRUCTION_ADD_USE: bytes = 12 * shard_elements(p, i); break;
    case INSTRUCTION_NORM: bytes = 4 * shard_elements(p, i); break;
    case INSTRUCTION_DECIDE: bytes = 8 * (double)p->norm_chunks; break;
    case INSTRUCTION_STATISTICS: bytes = 2 * (double)p->statistics_bytes; break;
    case INSTRUCTION_SWITCH_AVERAGES: bytes = 16 * shard_elements(p, i); break;
    case INSTRUCTION_STEP: bytes = step_bytes(p) * shard_elements(p, i); break;
    default: break;
    }
    return (struct op_cost){ .bytes = bytes };
}

/* --- the wire ---*/

static double transfer_seconds(const struct plan_profile *f, int from, int to, double bytes) {
    const struct plan_link *link = plan_profile_link(f, from, to);
    return link->seconds + bytes / link->bytes_per_second;
}

static int rank_of(const struct plan *p, int d) { return plan_stage(&p->layout) * p->layout.data + d; }

/* One way of recursive halving (or doubling) of this many bytes over the data ranks. */
static double halving_seconds(const struct plan *p, double bytes, const struct plan_profile *f) {
    double seconds = 0;
    int d = plan_data_rank(&p->layout);
    for (int step = 1; step < p->layout.data; step *= 2) {
        bytes /= 2;
        seconds += transfer_seconds(f, p->layout.rank, rank_of(p, d ^ step), bytes);
    }
    return seconds;
}

static double bucket_bytes(const struct plan *p, int bucket, double element) {
    return (double)(p->buckets[bucket].end - p->buckets[bucket].begin) * element;
}

/* A small thing that every rank of a group learns of: as many rounds as it takes to double up to all of them. */
static double exchange_seconds(const struct plan *p, const struct instruction *i, double bytes,
                               const struct plan_profile *f) {
    const struct plan_layout *l = &p->layout;
    int members = i->group == GROUP_WORLD ? l->world_size : i->group == GROUP_DATA ? l->data : l->stages;
    int distance = i->group == GROUP_STAGES ? l->data : 1;
    double seconds = 0;
    for (int step = 1; step < members; step *= 2)
        seconds += transfer_seconds(f, 0, step * distance, bytes);
    return seconds;
}

static double cargo_bytes(const struct plan *p, const struct instruction *i) {
    double element = (double)dtype_bytes(p->graph->element);
    switch (i->payload) {
    case PAYLOAD_TENSOR: return (double)plan_tensor_bytes(p, i->op);
    case PAYLOAD_GRADIENT: return (double)(i->end - i->begin) * sizeof(float);
    default: return (double)(i->end - i->begin) * element;
    }
}

double step_cost_seconds(const struct plan *p, enum plan_queue queue, const struct instruction *i,
                         const struct plan_profile *f) {
    if (queue == QUEUE_COMPUTE) {
        if (i->kind == INSTRUCTION_WAIT || i->kind == INSTRUCTION_DROP)
            return 0;
        struct op_cost work = step_cost_work(p, i);
        return work.flops + work.bytes > 0 ? plan_profile_seconds(f, p->graph->element, work.flops, work.bytes) : 0;
    }
    switch (i->kind) {
    case INSTRUCTION_REDUCE:
        return halving_seconds(p, bucket_bytes(p, i->entry, sizeof(float)), f) * (p->layout.zero ? 1 : 2);
    case INSTRUCTION_GATHER:
        return halving_seconds(p, bucket_bytes(p, i->entry, (double)dtype_bytes(p->graph->element)), f);
    case INSTRUCTION_EXCHANGE: return exchange_seconds(p, i, 256, f);
    case INSTRUCTION_EXCHANGE_NORMS: return exchange_seconds(p, i, 8 * (double)p->norm_chunks, f);
    case INSTRUCTION_EXCHANGE_STATISTICS: return exchange_seconds(p, i, (double)p->statistics_bytes, f);
    default: {
        double bytes = cargo_bytes(p, i);
        return bytes > 0 ? transfer_seconds(f, p->layout.rank, i->peer, bytes) : 0;
    }
    }
}

const char *wire_kind_name(enum wire_kind kind) {
    static const char *const names[WIRE_KINDS] = { "reduce", "gather", "activations", "gradients", "shared" };
    return names[kind];
}

static void send(struct wire_bytes *w, const struct plan_profile *f, enum wire_kind kind, int from, int to,
                 double bytes) {
    *(plan_profile_link(f, from, to) == &f->intra_node ? &w->intra_node[kind] : &w->inter_node[kind]) += bytes;
}

static void send_halves(struct wire_bytes *w, const struct plan *p, const struct plan_profile *f, enum wire_kind kind,
                        double bytes, int ways) {
    for (int step = 1; step < p->layout.data; step *= 2) {
        bytes /= 2;
        send(w, f, kind, p->layout.rank, rank_of(p, plan_data_rank(&p->layout) ^ step), ways * bytes);
    }
}

struct wire_bytes step_cost_wire(const struct plan *p, const struct plan_profile *f) {
    struct wire_bytes w = { 0 };
    for (int k = 0; k < p->queue[QUEUE_DATA].n; k++) {
        const struct instruction *i = &p->queue[QUEUE_DATA].items[k];
        if (i->kind == INSTRUCTION_REDUCE)
            send_halves(&w, p, f, WIRE_REDUCE, bucket_bytes(p, i->entry, sizeof(float)), p->layout.zero ? 1 : 2);
        else if (i->kind == INSTRUCTION_GATHER)
            send_halves(&w, p, f, WIRE_GATHER, bucket_bytes(p, i->entry, (double)dtype_bytes(p->graph->element)), 1);
    }
    for (enum plan_queue q = QUEUE_ACTIVATIONS; q <= QUEUE_GRADIENTS; q++)
        for (int k = 0; k < p->queue[q].n; k++) {
            const struct instruction *i = &p->queue[q].items[k];
            enum wire_kind kind = i->payload != PAYLOAD_TENSOR ? WIRE_SHARED
                                  : q == QUEUE_ACTIVATIONS     ? WIRE_ACTIVATIONS
                                                               : WIRE_GRADIENTS;
            if (i->kind == INSTRUCTION_SEND)
                send(&w, f, kind, p->layout.rank, i->peer, cargo_bytes(p, i));
        }
    return w;
}
