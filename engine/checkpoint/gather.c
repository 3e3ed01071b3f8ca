/* Every tensor's digest is the SHA-256 of its chunks' digests in order, but its chunks are spread over the ranks. The
 * chunks of all tensors are numbered consecutively, and handled in batches of bounded size. For each batch:
 *
 *   1. write_blob: this rank digests the chunks of its segments that are in the batch, and appends for each part of a
 *      segment a head (tensor, first element, count) and the digests
 *   2. the ranks exchange these blobs
 *   3. read_blobs: all heads of all ranks are sorted by position
 *   4. join: the digests go into the hash of their tensor, in order. A gap or an overlap is an error, so this step also
 *      proves that the ranks' segments cover every tensor exactly once
 *
 * Every rank does the same and gets the same digests. */
#include "engine/checkpoint/gather.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The part of a segment that is in a batch. A blob is the step, then for each part its head and its chunks' digests.
 * All ranks have the same byte order. */
struct part_head {
    int64_t tensor, first, count; /* elements */
};

/* A part that a rank sent; chunks point into that rank's blob. */
struct received_part {
    struct part_head head;
    const digest_t *chunks;
    int rank;
};

/* Digests are complete for all elements before element `have` of `tensor`. */
struct gathering {
    const struct checkpoint_writer_config *config;
    const struct checkpoint_snapshot *snapshot;
    const digest_t *const *chunks; /* by segment; NULL: computed from the snapshot's data */
    int64_t *base;                 /* (n_tensors + 1) the number of a tensor's first chunk */
    struct sha256 sha256;
    digest_t *digests;
    int tensor;
    int64_t have;
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* The part of this rank's segment i in chunks [begin, end); count 0: none. */
static struct part_head part_of(const struct gathering *g, int i, int64_t begin, int64_t end) {
    const struct checkpoint_segment *p = &g->snapshot->segments[i];
    const int64_t base = g->base[p->tensor], first = p->first / CHECKPOINT_CHUNK_ELEMENTS + base;
    const int64_t from = max64(first, begin), to = min64(first + digest_chunks(p->count), end);
    if (from >= to)
        return (struct part_head){ 0 };
    const int64_t at = (from - base) * CHECKPOINT_CHUNK_ELEMENTS;
    return (struct part_head){ p->tensor, at,
                               min64((to - base) * CHECKPOINT_CHUNK_ELEMENTS, p->first + p->count) - at };
}

/* Of the blob, so that it is allocated once. */
static size_t blob_bytes(const struct gathering *g, int64_t begin, int64_t end) {
    size_t bytes = sizeof g->snapshot->step;
    for (int i = 0; i < g->snapshot->n_segments; i++) {
        const struct part_head head = part_of(g, i, begin, end);
        if (head.count > 0)
            bytes += sizeof head + (size_t)digest_chunks(head.count) * sizeof(digest_t);
    }
    return bytes;
}

static status_t write_blob(const struct gathering *g, int64_t begin, int64_t end, struct bytes *blob, struct err *e) {
    const struct checkpoint_snapshot *s = g->snapshot;
    TRY(bytes_reserve(blob, blob_bytes(g, begin, end), e));
    TRY(bytes_append(blob, &s->step, sizeof s->step, e));
    for (int i = 0; i < s->n_segments; i++) {
        const struct part_head head = part_of(g, i, begin, end);
        if (head.count == 0)
            continue;
        const size_t bytes = (size_t)digest_chunks(head.count) * sizeof(digest_t);
        TRY(bytes_append(blob, &head, sizeof head, e));
        TRY(bytes_reserve(blob, bytes, e));
        const int64_t at = head.first - s->segments[i].first;
        if (g->chunks)
            memcpy(blob->data + blob->len, g->chunks[i] + at / CHECKPOINT_CHUNK_ELEMENTS, bytes);
        else
            digest_data(s->data[i] + at, head.count, (digest_t *)(void *)(blob->data + blob->len));
        blob->len += bytes;
    }
    return ST_OK;
}

static status_t take(const struct bytes *blob, size_t *at, void *ret, size_t n) {
    if (blob->len - *at < n)
        return ST_INTERNAL;
    memcpy(ret, blob->data + *at, n);
    *at += n;
    return ST_OK;
}

/* Appends a rank's parts to list, which has capacity for as many heads as fit in the blob, and one more. */
static status_t read_blob(const struct checkpoint_snapshot *s, int rank, const struct bytes *blob,
                          struct received_part *list, int *n, struct err *e) {
    size_t at = 0;
    int64_t step;
    if (take(blob, &at, &step, sizeof step) != ST_OK || step != s->step)
        return err_set(e, ST_INTERNAL, "rank %d is not writing the checkpoint of step %lld", rank, (long long)s->step);
    while (at < blob->len) {
        struct received_part *t = &list[*n];
        if (take(blob, &at, &t->head, sizeof t->head) != ST_OK || t->head.tensor < 0 ||
            t->head.tensor >= s->n_tensors || t->head.first < 0 || t->head.first % CHECKPOINT_CHUNK_ELEMENTS ||
            t->head.count < 1)
            return err_set(e, ST_INTERNAL, "rank %d sent an impossible segment", rank);
        const bool fits = t->head.count <= (int64_t)blob->len * CHECKPOINT_CHUNK_ELEMENTS;
        const size_t bytes = fits ? (size_t)digest_chunks(t->head.count) * sizeof *t->chunks : 0;
        if (!fits || blob->len - at < bytes)
            return err_set(e, ST_INTERNAL, "rank %d sent %lld elements without their digests", rank,
                           (long long)t->head.count);
        t->chunks = (const digest_t *)(const void *)(blob->data + at);
        t->rank = rank;
        at += bytes;
        ++*n;
    }
    return ST_OK;
}

static int by_position(const void *a, const void *b) {
    const struct part_head *x = &((const struct received_part *)a)->head, *y = &((const struct received_part *)b)->head;
    return x->tensor != y->tensor ? (x->tensor > y->tensor) - (x->tensor < y->tensor)
                                  : (x->first > y->first) - (x->first < y->first);
}

/* list (n): the parts of one batch, sorted by position. They must start at the end of the batch before, without a
 * gap. */
static status_t join(struct gathering *g, const struct received_part *list, int n, int64_t end, struct err *e) {
    const struct checkpoint_snapshot *s = g->snapshot;
    int at = 0;
    for (; g->tensor < s->n_tensors && g->base[g->tensor] < end; g->tensor++, g->have = 0) {
        const int64_t elements = checkpoint_tensor_elements(&s->tensors[g->tensor]);
        const int64_t to = min64(elements, (end - g->base[g->tensor]) * CHECKPOINT_CHUNK_ELEMENTS);
        for (; at < n && list[at].head.tensor == g->tensor && list[at].head.first == g->have; at++) {
            sha256_update(&g->sha256, list[at].chunks, (size_t)digest_chunks(list[at].head.count) * sizeof(digest_t));
            g->have += list[at].head.count;
        }
        if (g->have != to)
            return err_set(e, ST_INTERNAL, "the ranks' segments of %s end at element %lld of %lld",
                           s->tensors[g->tensor].name, (long long)g->have, (long long)elements);
        if (to < elements)
            break;
        sha256_final(&g->sha256, g->digests[g->tensor]);
    }
    if (at != n)
        return err_set(e, ST_INTERNAL, "rank %d writes a segment of %s that another rank writes, too", list[at].rank,
                       s->tensors[list[at].head.tensor].name);
    return ST_OK;
}

static status_t read_blobs(struct gathering *g, const struct bytes *all, int64_t end, struct err *e) {
    size_t capacity = 0;
    for (int r = 0; r < g->config->world_size; r++)
        capacity += all[r].len / (sizeof(struct part_head) + sizeof(digest_t)); /* a part has a chunk or more */
    CLEANUP(freep) struct received_part *list = alloc_zeroed(capacity + 1, sizeof *list);
    int n = 0;
    for (int r = 0; r < g->config->world_size; r++)
        TRY(read_blob(g->snapshot, r, &all[r], list, &n, e));
    qsort(list, (size_t)n, sizeof *list, by_position);
    return join(g, list, n, end, e);
}

/* Twice the size of a batch's digests: a head is not larger than the digests of its part need. */
static size_t max_blob_bytes(int64_t batch) { return ((size_t)batch + 64) * 2 * sizeof(digest_t); }

static status_t gather_batch(struct gathering *g, int64_t begin, int64_t batch, struct err *e) {
    const struct checkpoint_writer_config *c = g->config;
    struct bytes mine, *all = alloc_zeroed((size_t)c->world_size, sizeof *all);
    bytes_init(&mine, max_blob_bytes(batch));
    for (int r = 0; r < c->world_size; r++)
        bytes_init(&all[r], max_blob_bytes(batch));
    status_t st = write_blob(g, begin, begin + batch, &mine, e);
    if (st == ST_OK && c->world_size > 1) {
        st = c->exchange(c->exchange_ctx, mine.data, mine.len, all, e);
    } else if (st == ST_OK) {
        all[0] = mine;
        bytes_init(&mine, 0);
    }
    st = st == ST_OK ? read_blobs(g, all, begin + batch, e)
                     : err_prefix(e, st, "exchange the digests of step %lld: ", (long long)g->snapshot->step);
    bytes_done(&mine);
    for (int r = 0; r < c->world_size; r++)
        bytes_done(&all[r]);
    free(all);
    return st;
}

status_t gather_digests(const struct checkpoint_writer_config *config, const struct checkpoint_snapshot *snapshot,
                        const digest_t *const *chunks, int64_t batch, digest_t *digests,
                        char weights_sha256[SHA256_HEX], struct err *e) {
    CLEANUP(freep) int64_t *base = alloc_zeroed((size_t)snapshot->n_tensors + 1, sizeof *base);
    for (int i = 0; i < snapshot->n_tensors; i++)
        base[i + 1] = base[i] + digest_chunks(checkpoint_tensor_elements(&snapshot->tensors[i]));
    struct gathering g = { .config = config, .snapshot = snapshot, .chunks = chunks, .base = base, .digests = digests };
    sha256_begin(&g.sha256);
    status_t st = ST_OK;
    for (int64_t at = 0; at < base[snapshot->n_tensors] && st == ST_OK; at += batch)
        st = gather_batch(&g, at, batch, e);
    if (st == ST_OK)
        digest_weights(snapshot->tensors, (const digest_t *)digests, snapshot->n_tensors, weights_sha256);
    return st;
}

size_t checkpoint_digest_bytes(size_t state_bytes, size_t own_bytes, int world_size) {
    const size_t chunk = CHECKPOINT_CHUNK_ELEMENTS * sizeof(float), batch = (size_t)GATHER_BATCH * chunk;
    const size_t whole = state_bytes < batch ? state_bytes : batch, own = own_bytes < whole ? own_bytes : whole;
    const size_t digests = whole / chunk * sizeof(digest_t);
    const size_t list = digests / (sizeof(struct part_head) + sizeof(digest_t)) * sizeof(struct received_part);
    return digests + list + (world_size > 1 ? own / chunk * sizeof(digest_t) : 0);
}
