#include "executor/engine/checkpoint/gather.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a rank says in a batch: its step, and for each part of a piece a head and its chunks' digests. All ranks have
 * one byte order. A batch is a range of the chunks of all tensors, numbered through. */
struct part_head {
    int64_t tensor, first, count; /* elements */
};

/* A part as some rank told it; chunks point into that rank's blob. */
struct told {
    struct part_head head;
    const digest_t *chunks;
    int rank;
};

/* How far the digests have come: everything before element `have` of `tensor`. */
struct gathering {
    const struct checkpoint_writer_config *config;
    const struct checkpoint_snapshot *snapshot;
    int64_t *base; /* (n_tensors + 1) the number of a tensor's first chunk */
    struct sha256 sha256;
    digest_t *digests;
    int tensor;
    int64_t have;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* The part of this rank's piece i in chunks [begin, end); a count of 0: none. */
static struct part_head part_of(const struct gathering *g, int i, int64_t begin, int64_t end) {
    const struct checkpoint_piece *p = &g->snapshot->pieces[i];
    const int64_t base = g->base[p->tensor], first = p->first / CHECKPOINT_CHUNK_ELEMENTS + base;
    const int64_t from = most(first, begin), to = least(first + digest_chunks(p->count), end);
    if (from >= to)
        return (struct part_head){ 0 };
    const int64_t at = (from - base) * CHECKPOINT_CHUNK_ELEMENTS;
    return (struct part_head){ p->tensor, at,
                               least((to - base) * CHECKPOINT_CHUNK_ELEMENTS, p->first + p->count) - at };
}

static status_t write_blob(const struct gathering *g, int64_t begin, int64_t end, struct bytes *blob, struct err *e) {
    const struct checkpoint_snapshot *s = g->snapshot;
    TRY(bytes_append(blob, &s->step, sizeof s->step, e));
    for (int i = 0; i < s->n_pieces; i++) {
        const struct part_head head = part_of(g, i, begin, end);
        if (head.count == 0)
            continue;
        const size_t bytes = (size_t)digest_chunks(head.count) * sizeof(digest_t);
        TRY(bytes_append(blob, &head, sizeof head, e));
        TRY(bytes_reserve(blob, bytes, e));
        digest_data(s->data[i] + (head.first - s->pieces[i].first), head.count,
                    (digest_t *)(void *)(blob->data + blob->len));
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

/* Appends a rank's parts to list, which has room for as many heads as its bytes could be, and one more. */
static status_t read_blob(const struct checkpoint_snapshot *s, int rank, const struct bytes *blob, struct told *list,
                          int *n, struct err *e) {
    size_t at = 0;
    int64_t step;
    if (take(blob, &at, &step, sizeof step) != ST_OK || step != s->step)
        return err_set(e, ST_INTERNAL, "rank %d is not writing the checkpoint of step %lld", rank, (long long)s->step);
    while (at < blob->len) {
        struct told *t = &list[*n];
        if (take(blob, &at, &t->head, sizeof t->head) != ST_OK || t->head.tensor < 0 ||
            t->head.tensor >= s->n_tensors || t->head.first < 0 || t->head.first % CHECKPOINT_CHUNK_ELEMENTS ||
            t->head.count < 1)
            return err_set(e, ST_INTERNAL, "rank %d tells of pieces that cannot be", rank);
        const bool fits = t->head.count <= (int64_t)blob->len * CHECKPOINT_CHUNK_ELEMENTS;
        const size_t bytes = fits ? (size_t)digest_chunks(t->head.count) * sizeof *t->chunks : 0;
        if (!fits || blob->len - at < bytes)
            return err_set(e, ST_INTERNAL, "rank %d tells of %lld elements without their digests", rank,
                           (long long)t->head.count);
        t->chunks = (const digest_t *)(const void *)(blob->data + at);
        t->rank = rank;
        at += bytes;
        ++*n;
    }
    return ST_OK;
}

static int by_place(const void *a, const void *b) {
    const struct part_head *x = &((const struct told *)a)->head, *y = &((const struct told *)b)->head;
    return x->tensor != y->tensor ? (x->tensor > y->tensor) - (x->tensor < y->tensor)
                                  : (x->first > y->first) - (x->first < y->first);
}

/* list (n) is sorted by place and of one batch: it goes on where the batch before ended, without gap. */
static status_t join(struct gathering *g, const struct told *list, int n, int64_t end, struct err *e) {
    const struct checkpoint_snapshot *s = g->snapshot;
    int at = 0;
    for (; g->tensor < s->n_tensors && g->base[g->tensor] < end; g->tensor++, g->have = 0) {
        const int64_t elements = checkpoint_tensor_elements(&s->tensors[g->tensor]);
        const int64_t to = least(elements, (end - g->base[g->tensor]) * CHECKPOINT_CHUNK_ELEMENTS);
        for (; at < n && list[at].head.tensor == g->tensor && list[at].head.first == g->have; at++) {
            sha256_update(&g->sha256, list[at].chunks, (size_t)digest_chunks(list[at].head.count) * sizeof(digest_t));
            g->have += list[at].head.count;
        }
        if (g->have != to)
            return err_set(e, ST_INTERNAL, "the ranks' pieces of %s end at element %lld of %lld",
                           s->tensors[g->tensor].name, (long long)g->have, (long long)elements);
        if (to < elements)
            break;
        sha256_final(&g->sha256, g->digests[g->tensor]);
    }
    if (at != n)
        return err_set(e, ST_INTERNAL, "rank %d writes a piece of %s that another rank writes too", list[at].rank,
                       s->tensors[list[at].head.tensor].name);
    return ST_OK;
}

static status_t read_blobs(struct gathering *g, const struct bytes *all, int64_t end, struct err *e) {
    size_t room = 0;
    for (int r = 0; r < g->config->world_size; r++)
        room += all[r].len / sizeof(struct part_head);
    CLEANUP(freep) struct told *list = malloc((room + 1) * sizeof *list);
    if (!list)
        return err_errno(e, "allocate %zu pieces", room);
    int n = 0;
    for (int r = 0; r < g->config->world_size; r++)
        TRY(read_blob(g->snapshot, r, &all[r], list, &n, e));
    qsort(list, (size_t)n, sizeof *list, by_place);
    return join(g, list, n, end, e);
}

/* Twice what a batch's digests take: heads are smaller than the chunks that they are for. */
static size_t blob_most(int64_t batch) { return ((size_t)batch + 64) * 2 * sizeof(digest_t); }

static status_t gather_batch(struct gathering *g, int64_t begin, int64_t batch, struct err *e) {
    const struct checkpoint_writer_config *c = g->config;
    struct bytes mine, *all = malloc((size_t)c->world_size * sizeof *all);
    if (!all)
        return err_errno(e, "allocate %d blobs", c->world_size);
    bytes_init(&mine, blob_most(batch));
    for (int r = 0; r < c->world_size; r++)
        bytes_init(&all[r], blob_most(batch));
    status_t st = write_blob(g, begin, begin + batch, &mine, e);
    if (st == ST_OK)
        st = c->world_size > 1 ? c->exchange(c->exchange_ctx, mine.data, mine.len, all, e)
                               : bytes_append(&all[0], mine.data, mine.len, e);
    st = st == ST_OK ? read_blobs(g, all, begin + batch, e)
                     : err_prefix(e, st, "exchange the digests of step %lld: ", (long long)g->snapshot->step);
    bytes_done(&mine);
    for (int r = 0; r < c->world_size; r++)
        bytes_done(&all[r]);
    free(all);
    return st;
}

status_t gather_digests(const struct checkpoint_writer_config *config, const struct checkpoint_snapshot *snapshot,
                        int64_t batch, digest_t *digests, char weights_sha256[SHA256_HEX], struct err *e) {
    CLEANUP(freep) int64_t *base = calloc((size_t)snapshot->n_tensors + 1, sizeof *base);
    if (!base)
        return err_errno(e, "allocate an index of %d tensors", snapshot->n_tensors);
    for (int i = 0; i < snapshot->n_tensors; i++)
        base[i + 1] = base[i] + digest_chunks(checkpoint_tensor_elements(&snapshot->tensors[i]));
    struct gathering g = { .config = config, .snapshot = snapshot, .base = base, .digests = digests };
    sha256_begin(&g.sha256);
    status_t st = ST_OK;
    for (int64_t at = 0; at < base[snapshot->n_tensors] && st == ST_OK; at += batch)
        st = gather_batch(&g, at, batch, e);
    if (st != ST_OK)
        return st;
    return digest_weights(snapshot->tensors, (const digest_t *)digests, snapshot->n_tensors, weights_sha256, e);
}
