/* Queries of a plan: which rank computes which micro-batch, and where a tensor, gradient or parameter lies. Everything
 * else in plan/ is built on these functions, and none of them changes a plan. */
#include "engine/plan/plan.h"

#include <stdlib.h>

struct plan *plan_free(struct plan *p) {
    if (!p)
        return NULL;
    for (int q = 0; q < QUEUES; q++)
        free(p->queue[q].items);
    for (int b = 0; b < p->n_buckets; b++)
        free(p->buckets[b].part_begin);
    for (int lifetime = 0; lifetime < LIFETIMES; lifetime++)
        free(p->tensors[lifetime]);
    for (int v = 0; p->virtual_stages && v < p->layout.virtual_stages; v++)
        for (int way = 0; way < WAYS; way++) {
            free(p->virtual_stages[v].receive[way].tensor);
            free(p->virtual_stages[v].send[way].tensor);
        }
    free(p->virtual_stages);
    free(p->block_stage);
    free(p->block_virtual_stage);
    free(p->use_begin);
    free(p->use_end);
    free(p->use_order);
    free(p->use_writers);
    free(p->use_stage);
    free(p->parameter_begin);
    free(p->parameter_stage);
    free(p->parameter_norm);
    free(p->buckets);
    free(p->shards);
    free(p->loaded);
    free(p->storage);
    free(p->gradient_copy);
    free(p->gradient_copy_of);
    free(p->upload_offset);
    free(p->statistic_offset);
    free(p->gathered_offset);
    free(p->staging_offset);
    free(p->sibling_offset);
    free(p->accumulator_offset);
    free(p->use_first);
    free(p);
    return NULL;
}

const char *plan_queue_name(enum plan_queue queue) {
    static const char *const names[QUEUES] = { "the compute queue", "the data queue", "the activations queue",
                                               "the gradients queue" };
    return names[queue];
}

/* --- who does what ---*/

int plan_stage(const struct plan_layout *l) { return l->rank / l->data; }
int plan_data_rank(const struct plan_layout *l) { return l->rank % l->data; }
int plan_ways(const struct plan_layout *l) {
    return l->kind == PLAN_TRAIN ? WAYS : l->kind == PLAN_AVERAGE ? 0 : WAY_BACKWARD;
}
int plan_own_micro_batches(const struct plan_layout *l) { return l->micro_batches / l->data; }

int plan_owner(const struct plan_layout *l, int k) {
    int d = l->kind == PLAN_TRAIN ? k % l->lanes / (l->lanes / l->data) : k % l->data;
    return (l->stages - 1) * l->data + d;
}

int plan_micro_batch(const struct plan_layout *l, int d, int q) {
    if (l->kind != PLAN_TRAIN)
        return q * l->data + d;
    int own = l->lanes / l->data, rounds = l->micro_batches / l->lanes;
    if (l->reduce == PLAN_REDUCE_STEP)
        return q % rounds * l->lanes + d * own + q / rounds;
    return q / own * l->lanes + d * own + q % own;
}

int plan_part_of(const struct plan_layout *l, int d) {
    int j = 0;
    for (int bit = 1; bit < l->data; bit *= 2, d /= 2)
        j = j * 2 + d % 2;
    return j;
}

bool plan_loads(const struct plan *p, int tensor) { return p->loaded[tensor]; }

/* --- places ---*/

struct plan_place plan_tensor_place(const struct plan *p, int t, int in_flight, enum plan_lifetime lifetime) {
    const struct tensor_place *at = &p->tensors[lifetime][t];
    bool batch = t < p->graph->n_tensors && p->graph->tensors[t].role == TENSOR_BATCH;
    struct plan_place place = { .family = batch ? FAMILY_BATCH : FAMILY_ACTIVATIONS, .offset = at->offset };
    if (at->offset != SIZE_MAX && in_flight > 0)
        place.offset += (size_t)(in_flight % at->copies) * at->stride;
    return place;
}

struct plan_place plan_upload_place(const struct plan *p, int t) {
    return (struct plan_place){ FAMILY_BATCH, p->upload_offset[t] };
}

size_t plan_tensor_bytes(const struct plan *p, int t) {
    if (t >= p->graph->n_tensors)
        t = p->graph->reverse[p->gradient_copy_of[t - p->graph->n_tensors]].d_out[0];
    return graph_tensor_bytes(p->graph, t);
}

enum plan_lifetime instruction_lifetime(const struct plan *p, const struct instruction *i) {
    if (i->kind == INSTRUCTION_LOAD || i->kind == INSTRUCTION_FORWARD)
        return LIFETIME_FORWARD;
    if (i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV)
        return i->payload == PAYLOAD_TENSOR && p->graph->tensors[i->op].role == TENSOR_ACTIVATION ? LIFETIME_FORWARD
                                                                                                  : LIFETIME_BACKWARD;
    return LIFETIME_BACKWARD;
}

int plan_bucket_at(const struct plan *p, int64_t at) {
    int low = 0, high = p->n_buckets;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->buckets[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n_buckets && p->buckets[low].begin <= at ? low : -1;
}

static struct plan_place sibling_place(const struct plan *p, int64_t at) {
    for (int s = 0; s < p->graph->n_uses; s++)
        if (p->use_begin[s] <= at && at < p->use_end[s])
            return (struct plan_place){ FAMILY_COMMUNICATION,
                                        p->sibling_offset[s] + (size_t)(at - p->use_begin[s]) * sizeof(float) };
    return (struct plan_place){ FAMILY_COMMUNICATION, SIZE_MAX };
}

struct plan_place plan_gradient_place(const struct plan *p, int buffer, int64_t at) {
    if (at >= p->gradient_elements)
        return sibling_place(p, at);
    if (buffer != p->accumulator && !(p->staged && buffer == 0))
        return (struct plan_place){ FAMILY_GRADIENTS, (size_t)(buffer * p->gradient_elements + at) * sizeof(float) };
    int b = plan_bucket_at(p, at);
    if (b < 0)
        return (struct plan_place){ FAMILY_GRADIENTS, SIZE_MAX };
    if (buffer != p->accumulator)
        return (struct plan_place){ FAMILY_COMMUNICATION,
                                    p->staging_offset[b] + (size_t)(at - p->buckets[b].begin) * sizeof(float) };
    int64_t begin, end;
    plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
    return (struct plan_place){ FAMILY_GRADIENTS, at < begin || at >= end ? SIZE_MAX
                                                                          : p->accumulator_offset[b] +
                                                                                (size_t)(at - begin) * sizeof(float) };
}

struct plan_place plan_parameter_place(const struct plan *p, int parameter) {
    const struct graph *g = p->graph;
    size_t element = dtype_bytes(g->element);
    if (p->layout.zero < 3)
        return (struct plan_place){ FAMILY_PARAMETERS, p->parameter_begin[parameter] < 0
                                                           ? SIZE_MAX
                                                           : (size_t)p->parameter_begin[parameter] * element };
    int64_t at = p->use_begin[g->parameters[parameter].first_use];
    int b = plan_bucket_at(p, at);
    if (b < 0 || p->gathered_offset[b] == SIZE_MAX)
        return (struct plan_place){ FAMILY_COMMUNICATION, SIZE_MAX };
    return (struct plan_place){ FAMILY_COMMUNICATION,
                                p->gathered_offset[b] + (size_t)(at - p->buckets[b].begin) * element };
}

struct plan_place plan_statistic_place(const struct plan *p, int parameter) {
    return (struct plan_place){ FAMILY_ACTIVATIONS, p->statistic_offset[parameter] };
}

void plan_gather_places(const struct plan *p, int bucket, struct plan_place *to, struct plan_place *own) {
    const struct plan_bucket *b = &p->buckets[bucket];
    size_t element = dtype_bytes(p->graph->element);
    int64_t begin, end;
    plan_own_range(p, bucket, plan_data_rank(&p->layout), &begin, &end);
    if (p->layout.zero == 3) {
        *to = (struct plan_place){ FAMILY_COMMUNICATION, p->gathered_offset[bucket] };
        *own = (struct plan_place){ FAMILY_PARAMETERS, (size_t)b->own_weight * element };
        return;
    }
    *to = (struct plan_place){ FAMILY_PARAMETERS, (size_t)b->parameter * element };
    *own = (struct plan_place){ FAMILY_PARAMETERS, (size_t)(b->parameter + begin - b->begin) * element };
}

struct plan_place plan_weight_place(const struct plan *p, const struct plan_shard *shard) {
    return (struct plan_place){ FAMILY_PARAMETERS, (size_t)shard->weight * dtype_bytes(p->graph->element) };
}

int64_t plan_part_begin(const struct plan *p, int bucket, int j) {
    const struct plan_bucket *b = &p->buckets[bucket];
    int64_t chunks = (b->end - b->begin) / PLAN_CHUNK;
    return b->begin + (b->part_begin ? b->part_begin[j] : (chunks * j + b->rotation) / p->layout.data) * PLAN_CHUNK;
}

void plan_own_range(const struct plan *p, int bucket, int d, int64_t *begin, int64_t *end) {
    if (p->layout.zero == 0) {
        *begin = p->buckets[bucket].begin;
        *end = p->buckets[bucket].end;
        return;
    }
    int j = plan_part_of(&p->layout, d);
    *begin = plan_part_begin(p, bucket, j);
    *end = plan_part_begin(p, bucket, j + 1);
}

size_t plan_chunk_sum_bytes(const struct plan *p) { return plan_aligned((size_t)p->norm_chunks * sizeof(double)); }

/* --- sizes ---*/

size_t plan_aligned(size_t n) { return (n + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN; }
int64_t plan_padded(int64_t n) { return (n + PLAN_CHUNK - 1) / PLAN_CHUNK * PLAN_CHUNK; }

size_t plan_bytes(const struct plan *p) {
    size_t total = 0;
    for (int f = 0; f < FAMILIES; f++)
        total += p->family_bytes[f];
    return total;
}

int plan_fullest(const struct plan *p, double *ret_balance) {
    int64_t max = -1, all = 0;
    int ret = 0;
    for (int d = 0; d < p->layout.data; d++) {
        int64_t own = 0;
        for (int b = 0; b < p->n_buckets; b++) {
            int64_t begin, end;
            plan_own_range(p, b, d, &begin, &end);
            own += end - begin;
        }
        all += own;
        if (own > max) {
            max = own;
            ret = d;
        }
    }
    *ret_balance = all > 0 ? (double)max * p->layout.data / (double)all : 1;
    return ret;
}
