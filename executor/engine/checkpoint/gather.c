#include "executor/engine/checkpoint/gather.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* 2 TiB of state on one rank. */
#define BLOB_BYTES ((size_t)64 << 20)

/* What a rank says: its step, and for each piece a head and its chunks' digests. All ranks have one byte order. */
struct piece_head {
    int64_t tensor, first, count;
};

/* A piece as some rank told it; chunks point into that rank's blob. */
struct told {
    struct piece_head head;
    const digest_t *chunks;
    int rank;
};

static status_t write_blob(const struct checkpoint_snapshot *s, digest_t *const *chunks, struct bytes *blob,
                           struct err *e) {
    TRY(bytes_append(blob, &s->step, sizeof s->step, e));
    for (int i = 0; i < s->n_pieces; i++) {
        struct piece_head head = { s->pieces[i].tensor, s->pieces[i].first, s->pieces[i].count };
        TRY(bytes_append(blob, &head, sizeof head, e));
        TRY(bytes_append(blob, chunks[i], (size_t)digest_chunks(head.count) * sizeof *chunks[i], e));
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

/* Appends a rank's pieces to list, which has room for `room`. */
static status_t read_blob(const struct checkpoint_snapshot *s, int rank, const struct bytes *blob, struct told *list,
                          int room, int *n, struct err *e) {
    size_t at = 0;
    int64_t step;
    if (take(blob, &at, &step, sizeof step) != ST_OK || step != s->step)
        return err_set(e, ST_INTERNAL, "rank %d is not writing the checkpoint of step %lld", rank, (long long)s->step);
    while (at < blob->len) {
        struct told *t = &list[*n];
        if (*n == room || take(blob, &at, &t->head, sizeof t->head) != ST_OK || t->head.tensor < 0 ||
            t->head.tensor >= s->n_tensors || t->head.first < 0 || t->head.first % CHECKPOINT_CHUNK_ELEMENTS ||
            t->head.count < 1)
            return err_set(e, ST_INTERNAL, "rank %d tells of pieces that cannot be", rank);
        size_t bytes = (size_t)digest_chunks(t->head.count) * sizeof *t->chunks;
        if (t->head.count > (int64_t)blob->len * CHECKPOINT_CHUNK_ELEMENTS || blob->len - at < bytes)
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
    const struct piece_head *x = &((const struct told *)a)->head, *y = &((const struct told *)b)->head;
    return x->tensor != y->tensor ? (x->tensor > y->tensor) - (x->tensor < y->tensor)
                                  : (x->first > y->first) - (x->first < y->first);
}

/* list (n) is sorted by place: every tensor's pieces follow each other without gap. */
static status_t join(const struct checkpoint_snapshot *s, const struct told *list, int n, digest_t *digests,
                     struct err *e) {
    int at = 0;
    struct sha256 *sha256 = sha256_new();
    status_t st = ST_OK;
    for (int i = 0; i < s->n_tensors && st == ST_OK; i++) {
        int64_t have = 0, elements = checkpoint_tensor_elements(&s->tensors[i]);
        for (; at < n && list[at].head.tensor == i && list[at].head.first == have; at++) {
            sha256_update(sha256, list[at].chunks, (size_t)digest_chunks(list[at].head.count) * sizeof(digest_t));
            have += list[at].head.count;
        }
        if (have != elements)
            st = err_set(e, ST_INTERNAL, "the ranks' pieces of %s end at element %lld of %lld", s->tensors[i].name,
                         (long long)have, (long long)elements);
        sha256_final(sha256, digests[i]);
    }
    sha256_free(sha256);
    if (st == ST_OK && at != n)
        return err_set(e, ST_INTERNAL, "rank %d writes a piece of %s that another rank writes too", list[at].rank,
                       s->tensors[list[at].head.tensor].name);
    return st;
}

static status_t gather_into(const struct checkpoint_writer_config *config, const struct checkpoint_snapshot *s,
                            digest_t *const *chunks, struct bytes *all, digest_t *digests, struct err *e) {
    struct bytes mine;
    bytes_init(&mine, BLOB_BYTES);
    status_t st = write_blob(s, chunks, &mine, e);
    if (st == ST_OK)
        st = config->world_size > 1 ? config->exchange(config->exchange_ctx, mine.data, mine.len, all, e)
                                    : bytes_append(&all[0], mine.data, mine.len, e);
    bytes_done(&mine);
    if (st != ST_OK)
        return err_prefix(e, st, "exchange the digests of step %lld: ", (long long)s->step);

    size_t room = 0;
    for (int r = 0; r < config->world_size; r++)
        room += all[r].len / sizeof(struct piece_head);
    CLEANUP(freep) struct told *list = malloc((room + 1) * sizeof *list);
    if (!list)
        return err_errno(e, "allocate %zu pieces", room);
    int n = 0;
    for (int r = 0; r < config->world_size; r++)
        TRY(read_blob(s, r, &all[r], list, (int)room, &n, e));
    qsort(list, (size_t)n, sizeof *list, by_place);
    return join(s, list, n, digests, e);
}

status_t gather_digests(const struct checkpoint_writer_config *config, const struct checkpoint_snapshot *snapshot,
                        digest_t *const *chunks, digest_t *digests, char weights_sha256[SHA256_HEX], struct err *e) {
    struct bytes *all = malloc((size_t)config->world_size * sizeof *all);
    if (!all)
        return err_errno(e, "allocate %d blobs", config->world_size);
    for (int r = 0; r < config->world_size; r++)
        bytes_init(&all[r], BLOB_BYTES);
    status_t st = gather_into(config, snapshot, chunks, all, digests, e);
    for (int r = 0; r < config->world_size; r++)
        bytes_done(&all[r]);
    free(all);
    if (st != ST_OK)
        return st;
    return digest_weights(snapshot->tensors, (const digest_t *)digests, snapshot->n_tensors, weights_sha256, e);
}
