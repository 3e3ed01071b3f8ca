#include "executor/engine/checkpoint/reader.h"

#include "base/file.h"
#include "executor/engine/checkpoint/manifest.h"
#include "executor/engine/checkpoint/safetensors.h"
#include "executor/engine/checkpoint/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { READ_BYTES = 1 << 20 };

/* Where a range of a tensor's elements lies. */
struct place {
    int tensor, rank;
    int64_t first, count, offset; /* offset: bytes, in that rank's safetensors file */
    const digest_t *chunks;       /* until the checkpoint is verified */
};

struct checkpoint_reader {
    char directory[PATH_MAX];
    struct checkpoint_reader_options options;
    struct manifest *manifest;
    struct checkpoint_info info;
    struct rank_table **tables; /* (world_size) */
    int *fds;                   /* (world_size) */
    struct place *places;       /* sorted by tensor and first */
    int n_places, room;
    digest_t *
        *chunks; /* (world_size) of the pieces of each rank's file, in its order; until the checkpoint is verified */
    unsigned char *buffer; /* (READ_BYTES) */
};

static void free_chunks(struct checkpoint_reader *r) {
    for (int i = 0; r->chunks && i < r->manifest->world_size; i++)
        free(r->chunks[i]);
    free(r->chunks);
    r->chunks = NULL;
}

struct checkpoint_reader *checkpoint_reader_close(struct checkpoint_reader *r) {
    if (!r)
        return NULL;
    for (int i = 0; r->manifest && i < r->manifest->world_size; i++) {
        if (r->tables)
            rank_table_free(r->tables[i]);
        if (r->fds && r->fds[i] >= 0)
            close(r->fds[i]);
    }
    free_chunks(r);
    free(r->tables);
    free(r->fds);
    free(r->places);
    free(r->buffer);
    manifest_free(r->manifest);
    free(r);
    return NULL;
}

static void tell_progress(const struct checkpoint_reader *r) {
    if (r->options.progress)
        r->options.progress(r->options.ctx);
}

/* A device that cannot give back what was written has lost it. */
static status_t lost_by_errno(struct err *e, const char *verb, const char *directory, const char *name) {
    bool gone = errno == EIO || errno == ENOENT;
    status_t st = err_errno(e, "%s '%s/%s'", verb, directory, name);
    return gone ? ST_DATA_LOSS : st;
}

static status_t in_file(const struct checkpoint_reader *r, const char *name, status_t st, struct err *e) {
    return err_prefix(e, st, "'%s/%s': ", r->directory, name);
}

static status_t open_file(const struct checkpoint_reader *r, const char *name, int *ret_fd, int64_t *ret_bytes,
                          struct err *e) {
    char path[PATH_MAX + CHECKPOINT_FILE_BYTES];
    snprintf(path, sizeof path, "%s/%s", r->directory, name);
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return lost_by_errno(e, "open", r->directory, name);
    if (!S_ISREG(st.st_mode))
        return in_file(r, name, err_set(e, ST_DATA_LOSS, "it is not a regular file"), e);
    *ret_bytes = st.st_size;
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

/* Exactly n bytes from `at`. */
static status_t read_at(const struct checkpoint_reader *r, const char *name, int fd, int64_t at, void *to, size_t n,
                        struct err *e) {
    for (char *p = to; n;) {
        ssize_t k = pread(fd, p, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return lost_by_errno(e, "read", r->directory, name);
        if (k == 0)
            return in_file(r, name, err_set(e, ST_DATA_LOSS, "it ends at byte %lld", (long long)at), e);
        p += k;
        at += k;
        n -= (size_t)k;
    }
    return ST_OK;
}

/* A sealed JSON file's text, proved. */
static status_t read_sealed(const struct checkpoint_reader *r, const char *name, struct bytes *ret, struct err *e) {
    CLEANUP(closep) int fd = -1;
    int64_t size;
    TRY(open_file(r, name, &fd, &size, e));
    if (size > (int64_t)CHECKPOINT_JSON_BYTES)
        return in_file(r, name,
                       err_set(e, ST_DATA_LOSS, "it has %lld bytes (at most %zu are allowed)", (long long)size,
                               CHECKPOINT_JSON_BYTES),
                       e);
    TRY(bytes_reserve(ret, (size_t)size, e));
    TRY(read_at(r, name, fd, 0, ret->data, (size_t)size, e));
    ret->len = (size_t)size;
    status_t st = sealed_check(ret->data, ret->len, e);
    return st == ST_OK ? ST_OK : in_file(r, name, st, e);
}

static status_t read_manifest(struct checkpoint_reader *r, struct err *e) {
    struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    status_t st = read_sealed(r, CHECKPOINT_MANIFEST, &text, e);
    if (st == ST_OK && (st = manifest_parse(text.data, text.len, &r->manifest, e)) != ST_OK)
        st = in_file(r, CHECKPOINT_MANIFEST, st, e);
    bytes_done(&text);
    return st;
}

static status_t read_table(struct checkpoint_reader *r, int rank, struct err *e) {
    char name[CHECKPOINT_FILE_BYTES];
    checkpoint_table_file(rank, name);
    struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    status_t st = read_sealed(r, name, &text, e);
    if (st == ST_OK && (st = rank_table_parse(text.data, text.len, &r->tables[rank], e)) != ST_OK)
        st = in_file(r, name, st, e);
    bytes_done(&text);
    if (st != ST_OK)
        return st;
    const struct rank_table *t = r->tables[rank];
    if (t->step != r->manifest->step || t->rank != rank || t->world_size != r->manifest->world_size)
        return in_file(
            r, name,
            err_set(e, ST_DATA_LOSS, "it is of rank %d of %d at step %lld; the manifest is of %d at step %lld", t->rank,
                    t->world_size, (long long)t->step, r->manifest->world_size, (long long)r->manifest->step),
            e);
    return ST_OK;
}

static status_t read_header(const struct checkpoint_reader *r, const char *name, int fd, int64_t size,
                            struct safetensors **ret, struct err *e) {
    unsigned char length[8];
    int64_t end;
    TRY(read_at(r, name, fd, 0, length, sizeof length, e));
    status_t st = safetensors_header_end(length, size, &end, e);
    if (st != ST_OK)
        return in_file(r, name, st, e);
    CLEANUP(freep) char *header = malloc((size_t)end);
    if (!header)
        return err_errno(e, "allocate a header of %lld bytes", (long long)end);
    TRY(read_at(r, name, fd, 0, header, (size_t)end, e));
    st = safetensors_parse(header, (size_t)end, size, ret, e);
    return st == ST_OK ? ST_OK : in_file(r, name, st, e);
}

static int compare_name(const void *key, const void *tensor) {
    return strcmp(key, ((const struct checkpoint_tensor *)tensor)->name);
}

const struct checkpoint_tensor *checkpoint_reader_find(const struct checkpoint_reader *r, const char *name) {
    return bsearch(name, r->manifest->tensors, (size_t)r->manifest->n_tensors, sizeof *r->manifest->tensors,
                   compare_name);
}

static status_t add_place(struct checkpoint_reader *r, const struct place *p, struct err *e) {
    if (r->n_places == r->room) {
        int room = r->room ? 2 * r->room : 64;
        struct place *places = realloc(r->places, (size_t)room * sizeof *places);
        if (!places)
            return err_errno(e, "allocate %d pieces", room);
        r->places = places;
        r->room = room;
    }
    r->places[r->n_places++] = *p;
    return ST_OK;
}

/* The pieces of a table, as they lie in its file, become places. */
static status_t place_pieces(struct checkpoint_reader *r, int rank, const char *name, const struct safetensors *header,
                             struct err *e) {
    const struct rank_table *t = r->tables[rank];
    if (header->n_entries != t->n_pieces)
        return in_file(
            r, name, err_set(e, ST_DATA_LOSS, "it has %d tensors and its table %d", header->n_entries, t->n_pieces), e);
    int64_t n_chunks = 0;
    for (int i = 0; i < t->n_pieces; i++)
        n_chunks += digest_chunks(t->pieces[i].count);
    if (n_chunks > t->bytes / (int64_t)sizeof(float))
        return in_file(r, name, err_set(e, ST_DATA_LOSS, "it has fewer elements than its table"), e);
    const digest_t *chunks = r->chunks[rank] = malloc(((size_t)n_chunks + 1) * sizeof(digest_t));
    if (!chunks)
        return err_errno(e, "allocate %lld digests", (long long)n_chunks);
    for (int i = 0; i < t->n_pieces; i++) {
        const struct rank_piece *p = &t->pieces[i];
        const struct safetensors_entry *entry = &header->entries[i];
        const struct checkpoint_tensor *tensor = checkpoint_reader_find(r, p->tensor.name);
        char piece_name[SAFETENSORS_NAME_BYTES];
        safetensors_piece_name(&p->tensor, p->first, p->count, piece_name);
        if (!tensor || tensor->n_dims != p->tensor.n_dims ||
            memcmp(tensor->shape, p->tensor.shape, (size_t)tensor->n_dims * sizeof *tensor->shape) != 0)
            return in_file(r, name, err_set(e, ST_DATA_LOSS, "the manifest has no tensor %s of its shape", piece_name),
                           e);
        if (strcmp(entry->name, piece_name) != 0 || strcmp(entry->dtype, "F32") != 0 ||
            entry->end - entry->begin != p->count * 4)
            return in_file(r, name, err_set(e, ST_DATA_LOSS, "%.200s stands where %s should", entry->name, piece_name),
                           e);
        struct place place = { (int)(tensor - r->manifest->tensors), rank,  p->first, p->count,
                               header->data_first + entry->begin,    chunks };
        TRY(add_place(r, &place, e));
        chunks += digest_chunks(p->count);
    }
    return ST_OK;
}

/* Hashes bytes [at, end) of a file, and where chunks is not NULL each chunk of them too. */
static status_t hash_bytes(const struct checkpoint_reader *r, const char *name, int fd, int64_t at, int64_t end,
                           struct sha256 *sha256, digest_t *chunks, struct err *e) {
    for (; at < end; at += READ_BYTES) {
        size_t n = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
        TRY(read_at(r, name, fd, at, r->buffer, n, e));
        sha256_update(sha256, r->buffer, n);
        if (chunks) {
            digest_data((const float *)(const void *)r->buffer, (int64_t)(n / sizeof(float)), chunks);
            chunks += digest_chunks((int64_t)(n / sizeof(float)));
        }
        tell_progress(r);
    }
    return ST_OK;
}

/* Reads the file once: proves it by its table, and digests its pieces' chunks on the way. */
static status_t verify_bytes(const struct checkpoint_reader *r, int rank, const char *name,
                             const struct safetensors *header, struct err *e) {
    const struct rank_table *t = r->tables[rank];
    const int fd = r->fds[rank];
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = hash_bytes(r, name, fd, 0, header->data_first, &sha256, NULL, e);
    digest_t *chunks = r->chunks[rank];
    for (int i = 0; i < t->n_pieces && st == ST_OK; i++) {
        const struct safetensors_entry *entry = &header->entries[i];
        st = hash_bytes(r, name, fd, header->data_first + entry->begin, header->data_first + entry->end, &sha256,
                        chunks, e);
        chunks += digest_chunks(t->pieces[i].count);
    }
    digest_t digest;
    char hex[SHA256_HEX];
    sha256_final(&sha256, digest);
    sha256_hex(digest, hex);
    if (st == ST_OK && strcmp(hex, t->sha256) != 0)
        st = in_file(r, name, err_set(e, ST_DATA_LOSS, "its bytes are not the ones that were written (SHA-256)"), e);
    return st;
}

static status_t open_rank(struct checkpoint_reader *r, int rank, struct err *e) {
    TRY(read_table(r, rank, e));
    char name[CHECKPOINT_FILE_BYTES];
    checkpoint_data_file(rank, name);
    int64_t size;
    TRY(open_file(r, name, &r->fds[rank], &size, e));
    if (size != r->tables[rank]->bytes)
        return in_file(r, name,
                       err_set(e, ST_DATA_LOSS, "it has %lld bytes, and %lld were written", (long long)size,
                               (long long)r->tables[rank]->bytes),
                       e);
    CLEANUP(safetensors_freep) struct safetensors *header = NULL;
    TRY(read_header(r, name, r->fds[rank], size, &header, e));
    TRY(place_pieces(r, rank, name, header, e));
    return verify_bytes(r, rank, name, header, e);
}

static int by_place(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return x->tensor != y->tensor ? (x->tensor > y->tensor) - (x->tensor < y->tensor)
                                  : (x->first > y->first) - (x->first < y->first);
}

/* Every tensor of the manifest is there once, with the digest that it says, and so is the model's. */
static status_t verify_tensors(struct checkpoint_reader *r, struct err *e) {
    const struct manifest *m = r->manifest;
    if (r->n_places > 0) /* else there is no array to point at */
        qsort(r->places, (size_t)r->n_places, sizeof *r->places, by_place);
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = ST_OK;
    int at = 0;
    for (int i = 0; i < m->n_tensors && st == ST_OK; i++) {
        const char *name = m->tensors[i].name;
        int64_t have = 0;
        digest_t digest;
        for (; at < r->n_places && r->places[at].tensor == i && r->places[at].first == have; at++) {
            sha256_update(&sha256, r->places[at].chunks, (size_t)digest_chunks(r->places[at].count) * sizeof(digest_t));
            have += r->places[at].count;
        }
        sha256_final(&sha256, digest);
        if (have != checkpoint_tensor_elements(&m->tensors[i]))
            st = err_set(e, ST_DATA_LOSS, "the checkpoint '%s' lacks elements of %s from %lld on", r->directory, name,
                         (long long)have);
        else if (memcmp(digest, m->digests[i], sizeof digest) != 0)
            st = err_set(e, ST_DATA_LOSS, "the checkpoint '%s' has another %s than its manifest says", r->directory,
                         name);
    }
    if (st == ST_OK && at != r->n_places)
        st = err_set(e, ST_DATA_LOSS, "the checkpoint '%s' has elements of %s twice", r->directory,
                     m->tensors[r->places[at].tensor].name);
    char weights[SHA256_HEX];
    if (st == ST_OK && (st = digest_weights(m->tensors, m->digests, m->n_tensors, weights, e)) == ST_OK &&
        strcmp(weights, m->weights_sha256) != 0)
        st = err_set(e, ST_DATA_LOSS, "the checkpoint '%s' has other weights than its manifest says", r->directory);
    return st;
}

static status_t check_folder(const char *directory, struct err *e) {
    struct stat st;
    if (stat(directory, &st) < 0)
        return err_errno(e, "open the checkpoint '%s'", directory);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ST_NOT_FOUND, "the checkpoint '%s' is not a folder", directory);
    return ST_OK;
}

/* With the manifest read, and nothing else. */
static status_t begin(const char *directory, struct checkpoint_reader **ret, struct err *e) {
    TRY(check_folder(directory, e));
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = calloc(1, sizeof *r);
    if (!r || !(r->buffer = malloc(READ_BYTES)))
        return err_errno(e, "allocate a checkpoint reader");
    snprintf(r->directory, sizeof r->directory, "%s", directory);
    TRY(read_manifest(r, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

status_t checkpoint_layout(const char *directory, char **ret, struct err *e) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    TRY(begin(directory, &r, e));
    *ret = strdup(r->manifest->layout_json);
    return *ret ? ST_OK : err_errno(e, "copy the layout of a checkpoint");
}

/* Whether `first`, or a rank before this one, has the same record. */
static bool has_been_told(const struct checkpoint_reader *r, int rank, int first) {
    bool told = strcmp(r->tables[first]->record, r->tables[rank]->record) == 0;
    for (int before = 0; before < rank && !told; before++)
        told = strcmp(r->tables[before]->record, r->tables[rank]->record) == 0;
    return told;
}

static status_t join_records(const struct checkpoint_reader *r, int first, struct bytes *ret, struct err *e) {
    TRY(bytes_append(ret, r->tables[first]->record, strlen(r->tables[first]->record), e));
    for (int rank = 0; rank < r->manifest->world_size; rank++)
        if (!has_been_told(r, rank, first))
            TRY(bytes_append(ret, r->tables[rank]->record, strlen(r->tables[rank]->record), e));
    return ST_OK;
}

status_t checkpoint_records(const char *directory, int rank, char **ret, struct err *e) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    TRY(begin(directory, &r, e));
    const int n = r->manifest->world_size;
    if (!(r->tables = calloc((size_t)n, sizeof(struct rank_table *))))
        return err_errno(e, "allocate %d tables", n);
    for (int i = 0; i < n; i++)
        TRY(read_table(r, i, e));
    struct bytes text;
    bytes_init(&text, (size_t)n * CHECKPOINT_RECORD_BYTES);
    status_t st = join_records(r, rank < n ? rank : 0, &text, e);
    if (st == ST_OK)
        *ret = bytes_take(&text);
    bytes_done(&text);
    return st;
}

status_t checkpoint_reader_open(const char *directory, const struct checkpoint_reader_options *options,
                                struct checkpoint_reader **ret, struct err *e) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    TRY(begin(directory, &r, e));
    if (options)
        r->options = *options;
    const struct manifest *m = r->manifest;
    r->tables = calloc((size_t)m->world_size, sizeof(struct rank_table *));
    r->fds = malloc((size_t)m->world_size * sizeof *r->fds);
    r->chunks = calloc((size_t)m->world_size, sizeof *r->chunks);
    if (!r->tables || !r->fds || !r->chunks)
        return err_errno(e, "allocate %d tables", m->world_size);
    for (int rank = 0; rank < m->world_size; rank++)
        r->fds[rank] = -1;
    for (int rank = 0; rank < m->world_size; rank++)
        TRY(open_rank(r, rank, e));
    TRY(verify_tensors(r, e));
    free_chunks(r);
    r->info = (struct checkpoint_info){ .step = m->step,
                                        .updates = m->updates,
                                        .skipped = m->skipped,
                                        .loss_scale = m->loss_scale,
                                        .growth_count = m->growth_count,
                                        .spike_norms = m->spike_norms,
                                        .n_spike_norms = m->n_spike_norms,
                                        .world_size = m->world_size,
                                        .numerics_id = m->numerics_id,
                                        .data_sha256 = m->data_sha256,
                                        .weights_sha256 = m->weights_sha256,
                                        .spec_json = m->spec_json,
                                        .layout_json = m->layout_json,
                                        .tokenizer_json = m->tokenizer_json,
                                        .tensors = m->tensors,
                                        .n_tensors = m->n_tensors };
    *ret = take_ptr(&r);
    return ST_OK;
}

const struct checkpoint_info *checkpoint_reader_info(const struct checkpoint_reader *r) { return &r->info; }

status_t checkpoint_reader_read(struct checkpoint_reader *r, const char *name, int64_t first, int64_t count,
                                float *data, struct err *e) {
    const struct checkpoint_tensor *t = checkpoint_reader_find(r, name);
    if (!t)
        return err_set(e, ST_NOT_FOUND, "the checkpoint '%s' has no tensor %s", r->directory, name);
    int64_t elements = checkpoint_tensor_elements(t);
    if (first < 0 || count < 0 || count > elements - first)
        return err_set(e, ST_OUT_OF_RANGE, "elements %lld to %lld are outside the tensor %s of %lld", (long long)first,
                       (long long)(first + count), name, (long long)elements);
    int tensor = (int)(t - r->manifest->tensors);
    int64_t end = first + count;
    for (int i = 0; i < r->n_places; i++) {
        const struct place *p = &r->places[i];
        int64_t from = first > p->first ? first : p->first;
        int64_t to = end < p->first + p->count ? end : p->first + p->count;
        if (p->tensor != tensor || from >= to)
            continue;
        char file[CHECKPOINT_FILE_BYTES];
        checkpoint_data_file(p->rank, file);
        for (int64_t at = from, n; at < to; at += n) { /* in steps, so that progress is told */
            n = to - at < READ_BYTES ? to - at : READ_BYTES;
            TRY(read_at(r, file, r->fds[p->rank], p->offset + (at - p->first) * 4, data + (at - first),
                        (size_t)n * sizeof *data, e));
            tell_progress(r);
        }
    }
    return ST_OK;
}
