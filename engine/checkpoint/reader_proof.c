/* Proves the bytes of a checkpoint:
 *
 *   1. check_cover: the segments of all files, sorted by position, must cover every tensor exactly once
 *   2. prove_files: every byte is read once, which gives the SHA-256 of each file (compared with its table) and the
 *      digests of all chunks. The readers of a gang share the files. They exchange once a second what they have found,
 *      so that none waits for long without a sign of the others, and all return the same error
 *   3. check_tensors: the chunk digests of all readers must give the tensors' digests in the manifest, and these must
 *      give weights_sha256 */
#include "engine/checkpoint/reader_state.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/checkpoint/gather.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND_MS = 1000 };

static int readers(const struct checkpoint_reader *r) {
    return r->options.exchange && r->options.world_size > 1 ? r->options.world_size : 1;
}

bool reader_proves(const struct checkpoint_reader *r, int rank) {
    return readers(r) == 1 || rank % readers(r) == r->options.rank;
}

/* --- 1. positions --- */

static int by_position(const void *a, const void *b) {
    const struct stored_segment *x = a, *y = b;
    return x->tensor != y->tensor ? (x->tensor > y->tensor) - (x->tensor < y->tensor)
                                  : (x->first > y->first) - (x->first < y->first);
}

static status_t check_cover(struct checkpoint_reader *r, struct err *e) {
    const struct manifest *m = r->manifest;
    int at = 0;
    if (r->n_segments > 0) /* else the array is NULL */
        qsort(r->segments, (size_t)r->n_segments, sizeof *r->segments, by_position);
    for (int i = 0; i < m->n_tensors; i++) {
        int64_t have = 0;
        for (; at < r->n_segments && r->segments[at].tensor == i && r->segments[at].first == have; at++)
            have += r->segments[at].count;
        if (have != checkpoint_tensor_elements(&m->tensors[i]))
            return err_set(e, ST_DATA_LOSS, "the checkpoint '%s' lacks elements of %s, from %lld on", r->directory,
                           m->tensors[i].name, (long long)have);
    }
    return at == r->n_segments ? ST_OK
                               : err_set(e, ST_DATA_LOSS, "the checkpoint '%s' has elements of %s twice", r->directory,
                                         m->tensors[r->segments[at].tensor].name);
}

/* --- 2. bytes --- */

/* The next bytes to hash: [at, end) of piece `piece` of a file. Piece 0 is the header, piece i + 1 segment i. */
struct hashing {
    struct checkpoint_reader *r;
    int file, piece;
    int64_t at, end;
    struct sha256 sha256;
    digest_t *chunks;
};

static bool is_done(const struct hashing *h) { return h->file >= h->r->manifest->world_size; }

static void begin_file(struct hashing *h, int from) {
    const int n = h->r->manifest->world_size;
    for (h->file = from; h->file < n && !reader_proves(h->r, h->file);)
        h->file++;
    if (is_done(h))
        return;
    posix_fadvise(h->r->fds[h->file], 0, 0, POSIX_FADV_SEQUENTIAL);
    sha256_begin(&h->sha256);
    h->piece = 0;
    h->at = 0;
    h->end = h->r->headers[h->file]->data_first;
    h->chunks = h->r->chunks[h->file];
}

static status_t end_file(struct hashing *h, const char *name, struct err *e) {
    digest_t digest;
    char hex[SHA256_HEX];
    sha256_final(&h->sha256, digest);
    sha256_hex(digest, hex);
    if (strcmp(hex, h->r->tables[h->file]->sha256) != 0)
        return reader_in_file(h->r, name,
                              err_set(e, ST_DATA_LOSS, "its bytes are not the ones that were written (SHA-256)"), e);
    begin_file(h, h->file + 1);
    return ST_OK;
}

static status_t hash_bytes(struct hashing *h, const char *name, struct err *e) {
    const size_t n = h->end - h->at < READ_BYTES ? (size_t)(h->end - h->at) : READ_BYTES;
    TRY(reader_read_at(h->r, name, h->r->fds[h->file], h->at, h->r->buffer, n, e));
    sha256_update(&h->sha256, h->r->buffer, n);
    h->at += (int64_t)n;
    if (h->piece > 0) {
        const int64_t elements = (int64_t)(n / sizeof(float));
        digest_data((const float *)(const void *)h->r->buffer, elements, h->chunks);
        h->chunks += digest_chunks(elements);
    }
    reader_progress(h->r);
    return ST_OK;
}

/* Hashes the next bytes, or goes to the next piece or file. */
static status_t hash_on(struct hashing *h, struct err *e) {
    const struct safetensors *header = h->r->headers[h->file];
    char name[CHECKPOINT_FILE_BYTES];
    checkpoint_data_file(h->file, name);
    if (h->at < h->end)
        return hash_bytes(h, name, e);
    if (h->piece == header->n_entries)
        return end_file(h, name, e);
    const struct safetensors_entry *next = &header->entries[h->piece++];
    h->at = header->data_first + next->begin;
    h->end = header->data_first + next->end;
    return ST_OK;
}

/* What a reader tells the others after each round. */
struct finding {
    int32_t done, lost; /* lost: DATA_LOSS in `file` */
    int32_t file;
    struct err why;
};

/* All findings of a round. Every reader returns the same error: that of the first file that is damaged. */
static status_t exchange_findings(const struct checkpoint_reader *r, const struct finding *mine, bool *ret_done,
                                  struct err *e) {
    const struct finding *first = NULL;
    struct bytes *all = alloc_zeroed((size_t)readers(r), sizeof *all);
    for (int i = 0; i < readers(r); i++)
        bytes_init(&all[i], sizeof *mine);
    status_t st = r->options.exchange(r->options.exchange_ctx, mine, sizeof *mine, all, e);
    *ret_done = true;
    for (int i = 0; i < readers(r) && st == ST_OK; i++) {
        const struct finding *f = (const struct finding *)(const void *)all[i].data;
        if (all[i].len != sizeof *f) {
            st = err_set(e, ST_INTERNAL, "reader %d of the checkpoint sent %zu bytes", i, all[i].len);
            break;
        }
        *ret_done &= f->done != 0;
        first = f->lost && (!first || f->file < first->file) ? f : first;
    }
    if (first && st == ST_OK)
        st = err_set(e, ST_DATA_LOSS, "%.*s", (int)sizeof first->why.msg - 1,
                     first->why.msg); /* another rank's bytes */
    for (int i = 0; i < readers(r); i++)
        bytes_done(&all[i]);
    free(all);
    return st;
}

/* All readers are in this exchange or behind it, so none disconnects while another is in the one before. */
static void await_all(const struct checkpoint_reader *r) {
    bool done;
    status_ignore(exchange_findings(r, &(struct finding){ .done = 1 }, &done, NULL));
}

static status_t prove_round(struct hashing *h, bool *ret_done, struct err *e) {
    const int64_t until = clock_mono_ms() + ROUND_MS;
    struct finding mine = { .done = 0 };
    status_t st = ST_OK;
    while (st == ST_OK && !is_done(h) && (readers(h->r) == 1 || clock_mono_ms() < until))
        st = hash_on(h, &mine.why);
    if (st != ST_OK && st != ST_DATA_LOSS)
        return err_set(e, st, "%s", mine.why.msg);
    if (readers(h->r) == 1) {
        *ret_done = true;
        return st == ST_OK ? ST_OK : err_set(e, st, "%s", mine.why.msg);
    }
    mine.done = st != ST_OK || is_done(h);
    mine.lost = st != ST_OK;
    mine.file = h->file;
    reader_progress(h->r);
    return exchange_findings(h->r, &mine, ret_done, e);
}

static status_t prove_files(struct checkpoint_reader *r, struct err *e) {
    struct hashing h = { .r = r };
    bool done = false;
    status_t st = ST_OK;
    begin_file(&h, 0);
    while (st == ST_OK && !done)
        st = prove_round(&h, &done, e);
    if (st == ST_DATA_LOSS && readers(r) > 1)
        await_all(r);
    return st;
}

/* --- 3. digests --- */

static status_t exchange_digests(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    const struct checkpoint_reader *r = ctx;
    reader_progress(r);
    return r->options.exchange(r->options.exchange_ctx, mine, n, all, e);
}

/* The segments that this reader has proved, as the snapshot of a writer. */
static status_t gather(struct checkpoint_reader *r, digest_t *digests, char weights[SHA256_HEX], struct err *e) {
    const struct manifest *m = r->manifest;
    CLEANUP(freep) struct checkpoint_segment *segments = alloc_zeroed((size_t)r->n_segments + 1, sizeof *segments);
    CLEANUP(freep) const digest_t **chunks = alloc_zeroed((size_t)r->n_segments + 1, sizeof(digest_t *));
    int n = 0;
    for (int i = 0; i < r->n_segments; i++) {
        const struct stored_segment *p = &r->segments[i];
        if (!p->chunks)
            continue;
        segments[n] = (struct checkpoint_segment){ .tensor = p->tensor, .first = p->first, .count = p->count };
        chunks[n++] = p->chunks;
    }
    const struct checkpoint_writer_config config = {
        .rank = r->options.rank, .world_size = readers(r), .exchange = exchange_digests, .exchange_ctx = r
    };
    const struct checkpoint_snapshot share = {
        .step = m->step, .tensors = m->tensors, .n_tensors = m->n_tensors, .segments = segments, .n_segments = n
    };
    return gather_digests(&config, &share, chunks, GATHER_BATCH, digests, weights, e);
}

static status_t check_tensors(struct checkpoint_reader *r, struct err *e) {
    const struct manifest *m = r->manifest;
    CLEANUP(freep) digest_t *digests = alloc_zeroed((size_t)m->n_tensors + 1, sizeof *digests);
    char weights[SHA256_HEX];
    TRY(gather(r, digests, weights, e));
    status_t st = ST_OK;
    for (int i = 0; i < m->n_tensors && st == ST_OK; i++)
        if (memcmp(digests[i], m->digests[i], sizeof digests[i]) != 0)
            st = err_set(e, ST_DATA_LOSS, "the checkpoint '%s' has another %s than its manifest lists", r->directory,
                         m->tensors[i].name);
    if (st == ST_OK && strcmp(weights, m->weights_sha256) != 0)
        st = err_set(e, ST_DATA_LOSS, "the checkpoint '%s' has other weights than its manifest lists", r->directory);
    if (st != ST_OK && readers(r) > 1)
        await_all(r);
    return st;
}

status_t reader_prove(struct checkpoint_reader *r, struct err *e) {
    TRY(check_cover(r, e));
    TRY(prove_files(r, e));
    return check_tensors(r, e);
}
