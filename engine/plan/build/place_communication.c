/* Addresses in FAMILY_COMMUNICATION: gathered weights, staged buckets, siblings' gradients from other stages. Lowering
 * has recorded at which instructions of a micro-batch each of them is alive (building.alive). Two that are never alive
 * together share bytes. Greedy by size, as in place_tensors.c. */
#include "engine/plan/build/building.h"

#include <stdlib.h>

struct object {
    int number; /* in building.alive */
    size_t bytes, offset;
    bool used;
};

static bool overlap(const struct building *b, int x, int y) {
    const uint64_t *p = b->alive + (size_t)x * (size_t)b->words, *q = b->alive + (size_t)y * (size_t)b->words;
    for (int i = 0; i < b->words; i++)
        if (p[i] & q[i])
            return true;
    return false;
}

static int by_size(const void *a, const void *b) {
    const struct object *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->number - y->number;
}

static status_t place(const struct building *b, struct object *o, int n, size_t *ret_bytes, struct err *e) {
    CLEANUP(freep) struct object **placed = NULL;
    TRY(array_new(&placed, n, e));
    size_t total = 0;
    qsort(o, (size_t)n, sizeof *o, by_size);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) {
            const struct object *q = placed[k];
            if (!overlap(b, o[i].number, q->number))
                continue;
            if (o[i].offset + o[i].bytes <= q->offset)
                break;
            if (o[i].offset < q->offset + q->bytes)
                o[i].offset = q->offset + q->bytes;
        }
        if (total < o[i].offset + o[i].bytes)
            total = o[i].offset + o[i].bytes;
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > o[i].offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = &o[i];
    }
    *ret_bytes = total;
    return ST_OK;
}

static bool ever_alive(const struct building *b, int x) {
    for (int i = 0; i < b->words; i++)
        if (b->alive[(size_t)x * (size_t)b->words + (size_t)i])
            return true;
    return false;
}

static status_t place_objects(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    CLEANUP(freep) struct object *o = NULL;
    TRY(array_new(&o, 2 * p->n_buckets, e));
    int n = 0;
    for (int i = 0; b->alive && i < 2 * p->n_buckets; i++) {
        const struct plan_bucket *bucket = &p->buckets[i % p->n_buckets];
        size_t element = i < p->n_buckets ? dtype_bytes(p->graph->element) : sizeof(float);
        if (ever_alive(b, i))
            o[n++] = (struct object){ .number = i,
                                      .bytes = plan_aligned((size_t)(bucket->end - bucket->begin) * element) };
    }
    TRY(place(b, o, n, &p->family_bytes[FAMILY_COMMUNICATION], e));
    for (int i = 0; i < n; i++) {
        int bucket = o[i].number % p->n_buckets;
        *(o[i].number < p->n_buckets ? &p->gathered_offset[bucket] : &p->staging_offset[bucket]) = o[i].offset;
    }
    return ST_OK;
}

static void place_siblings(struct plan *p) {
    for (int s = 0; s < p->graph->n_uses; s++) {
        if (p->use_begin[s] < p->gradient_elements || p->layout.kind != PLAN_TRAIN)
            continue;
        p->sibling_offset[s] = p->family_bytes[FAMILY_COMMUNICATION];
        p->family_bytes[FAMILY_COMMUNICATION] += (size_t)(p->use_end[s] - p->use_begin[s]) * sizeof(float);
    }
}

/* Own parts, one after another. */
static status_t place_accumulator(struct plan *p, struct err *e) {
    if (p->accumulator < 0)
        return ST_OK;
    TRY(array_new(&p->accumulator_offset, p->n_buckets, e));
    for (int b = 0; b < p->n_buckets; b++) {
        int64_t begin, end;
        plan_own_range(p, b, plan_data_rank(&p->layout), &begin, &end);
        p->accumulator_offset[b] = p->family_bytes[FAMILY_GRADIENTS];
        p->family_bytes[FAMILY_GRADIENTS] += (size_t)(end - begin) * sizeof(float);
    }
    return ST_OK;
}

status_t plan_place_communication(struct building *b, struct err *e) {
    struct plan *p = b->plan;
    TRY(array_new(&p->gathered_offset, p->n_buckets, e));
    TRY(array_new(&p->staging_offset, p->n_buckets, e));
    TRY(array_new(&p->sibling_offset, p->graph->n_uses, e));
    for (int i = 0; i < p->n_buckets; i++)
        p->gathered_offset[i] = p->staging_offset[i] = SIZE_MAX;
    for (int s = 0; s < p->graph->n_uses; s++)
        p->sibling_offset[s] = SIZE_MAX;
    TRY(place_objects(b, e));
    place_siblings(p);
    if (p->layout.kind == PLAN_TRAIN && !p->staged)
        p->family_bytes[FAMILY_GRADIENTS] = (size_t)p->lane_buffers * (size_t)p->gradient_elements * sizeof(float);
    TRY(place_accumulator(p, e));
    p->family_bytes[FAMILY_PARAMETERS] = plan_aligned((size_t)p->parameter_elements * dtype_bytes(p->graph->element));
    p->family_bytes[FAMILY_WORKSPACE] = plan_chunk_sum_bytes(p) + plan_aligned(p->layout.workspace_bytes);
    return ST_OK;
}
