/* Opening proves the chain from the manifest down to the bytes:
 *
 *   1. read_manifest: its own checksum, then its format
 *   2. open_rank, for each rank that wrote: the table's checksum and format; its step, rank and world size must be the
 *      manifest's. Then the data file: its size, its header, and that its tensors are the segments of the table
 *   3. reader_prove (reader_proof.c): the segments of all ranks cover every tensor exactly once; the bytes of the files
 *      have the SHA-256 of the tables, and give the manifest's digests
 *
 * A file of another checkpoint, or a matching pair of files of another checkpoint, does not pass step 3.
 * checkpoint_reader_read then looks up the segments that overlap a range and reads them. */
#include "engine/checkpoint/reader.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/roots.h"
#include "engine/checkpoint/checksummed.h"
#include "engine/checkpoint/reader_state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void free_proof(struct checkpoint_reader *r) {
    for (int i = 0; r->chunks && i < r->manifest->world_size; i++) {
        free(r->chunks[i]);
        safetensors_free(r->headers[i]);
    }
    free(r->chunks);
    free(r->headers);
    r->chunks = NULL;
    r->headers = NULL;
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
    free_proof(r);
    free(r->tables);
    free(r->fds);
    free(r->segments);
    free(r->buffer);
    manifest_free(r->manifest);
    free(r);
    return NULL;
}

/* The text of a JSON file whose checksum is right. */
static status_t read_checksummed(const struct checkpoint_reader *r, const char *name, struct bytes *ret,
                                 struct err *e) {
    CLEANUP(closep) int fd = -1;
    int64_t size;
    TRY(reader_open_file(r, name, &fd, &size, e));
    if (size > (int64_t)CHECKPOINT_JSON_BYTES)
        return reader_in_file(r, name,
                              err_set(e, ST_DATA_LOSS, "it has %lld bytes (at most %zu are allowed)", (long long)size,
                                      CHECKPOINT_JSON_BYTES),
                              e);
    TRY(bytes_reserve(ret, (size_t)size, e));
    TRY(reader_read_at(r, name, fd, 0, ret->data, (size_t)size, e));
    ret->len = (size_t)size;
    status_t st = checksummed_check(ret->data, ret->len, e);
    return st == ST_OK ? ST_OK : reader_in_file(r, name, st, e);
}

static status_t read_manifest(struct checkpoint_reader *r, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    TRY(read_checksummed(r, CHECKPOINT_MANIFEST, &text, e));
    const status_t st = manifest_parse(text.data, text.len, &r->manifest, e);
    return st == ST_OK ? ST_OK : reader_in_file(r, CHECKPOINT_MANIFEST, st, e);
}

static status_t read_table(struct checkpoint_reader *r, int rank, struct err *e) {
    char name[CHECKPOINT_FILE_BYTES];
    checkpoint_table_file(rank, name);
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    TRY(read_checksummed(r, name, &text, e));
    const status_t st = rank_table_parse(text.data, text.len, &r->tables[rank], e);
    if (st != ST_OK)
        return reader_in_file(r, name, st, e);
    const struct rank_table *t = r->tables[rank];
    if (t->step != r->manifest->step || t->rank != rank || t->world_size != r->manifest->world_size)
        return reader_in_file(
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
    TRY(reader_read_at(r, name, fd, 0, length, sizeof length, e));
    status_t st = safetensors_header_end(length, size, &end, e);
    if (st != ST_OK)
        return reader_in_file(r, name, st, e);
    CLEANUP(freep) char *header = malloc((size_t)end);
    if (!header)
        return err_errno(e, "allocate a header of %lld bytes", (long long)end);
    TRY(reader_read_at(r, name, fd, 0, header, (size_t)end, e));
    st = safetensors_parse(header, (size_t)end, size, ret, e);
    return st == ST_OK ? ST_OK : reader_in_file(r, name, st, e);
}

static int compare_name(const void *key, const void *tensor) {
    return strcmp(key, ((const struct checkpoint_tensor *)tensor)->name);
}

const struct checkpoint_tensor *checkpoint_reader_find(const struct checkpoint_reader *r, const char *name) {
    return bsearch(name, r->manifest->tensors, (size_t)r->manifest->n_tensors, sizeof *r->manifest->tensors,
                   compare_name);
}

static void add_segment(struct checkpoint_reader *r, const struct stored_segment *p) {
    if (r->n_segments == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 64;
        r->segments = alloc_resize(r->segments, (size_t)r->capacity, sizeof *r->segments);
    }
    r->segments[r->n_segments++] = *p;
}

/* Adds the segments of a table with their positions in its data file. */
static status_t place_segments(struct checkpoint_reader *r, int rank, const char *name,
                               const struct safetensors *header, struct err *e) {
    const struct rank_table *t = r->tables[rank];
    if (header->n_entries != t->n_segments)
        return reader_in_file(
            r, name, err_set(e, ST_DATA_LOSS, "it has %d tensors and its table %d", header->n_entries, t->n_segments),
            e);
    int64_t n_chunks = 0;
    for (int i = 0; i < t->n_segments; i++)
        n_chunks += digest_chunks(t->segments[i].count);
    if (n_chunks > t->bytes / (int64_t)sizeof(float))
        return reader_in_file(r, name, err_set(e, ST_DATA_LOSS, "it has fewer elements than its table"), e);
    digest_t *chunks = NULL;
    if (reader_proves(r, rank) && !(chunks = malloc(((size_t)n_chunks + 1) * sizeof(digest_t))))
        return err_errno(e, "allocate %lld digests", (long long)n_chunks);
    r->chunks[rank] = chunks;
    for (int i = 0; i < t->n_segments; i++) {
        const struct rank_segment *p = &t->segments[i];
        const struct safetensors_entry *entry = &header->entries[i];
        const struct checkpoint_tensor *tensor = checkpoint_reader_find(r, p->tensor.name);
        char segment_name[SAFETENSORS_NAME_BYTES];
        safetensors_segment_name(&p->tensor, p->first, p->count, segment_name);
        if (!tensor || tensor->n_dims != p->tensor.n_dims ||
            memcmp(tensor->shape, p->tensor.shape, (size_t)tensor->n_dims * sizeof *tensor->shape) != 0)
            return reader_in_file(
                r, name, err_set(e, ST_DATA_LOSS, "the manifest has no tensor %s of its shape", segment_name), e);
        if (strcmp(entry->name, segment_name) != 0 || strcmp(entry->dtype, "F32") != 0 ||
            entry->end - entry->begin != p->count * 4)
            return reader_in_file(
                r, name, err_set(e, ST_DATA_LOSS, "%.200s is in the place of %s", entry->name, segment_name), e);
        struct stored_segment segment = { (int)(tensor - r->manifest->tensors), rank,  p->first, p->count,
                                          header->data_first + entry->begin,    chunks };
        add_segment(r, &segment);
        chunks += chunks ? digest_chunks(p->count) : 0;
    }
    return ST_OK;
}

static status_t open_rank(struct checkpoint_reader *r, int rank, struct err *e) {
    TRY(read_table(r, rank, e));
    char name[CHECKPOINT_FILE_BYTES];
    checkpoint_data_file(rank, name);
    int64_t size;
    TRY(reader_open_file(r, name, &r->fds[rank], &size, e));
    if (size != r->tables[rank]->bytes)
        return reader_in_file(r, name,
                              err_set(e, ST_DATA_LOSS, "it has %lld bytes, and %lld were written", (long long)size,
                                      (long long)r->tables[rank]->bytes),
                              e);
    CLEANUP(safetensors_freep) struct safetensors *header = NULL;
    TRY(read_header(r, name, r->fds[rank], size, &header, e));
    TRY(place_segments(r, rank, name, header, e));
    if (reader_proves(r, rank))
        r->headers[rank] = take_ptr(&header);
    return ST_OK;
}

static status_t check_folder(const struct roots *roots, const char *directory, struct err *e) {
    CLEANUP(closep) int fd = -1;
    struct stat st;
    status_t opened = roots_open(roots, directory, O_PATH, &fd, e);
    if (opened != ST_OK)
        return err_prefix(e, opened, "the checkpoint: ");
    if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(e, ST_NOT_FOUND, "the checkpoint '%s' is not a folder", directory);
    return ST_OK;
}

/* Reads the manifest only. */
static status_t begin(const char *directory, const struct checkpoint_reader_options *options,
                      struct checkpoint_reader **ret, struct err *e) {
    TRY(check_folder(options ? options->roots : NULL, directory, e));
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = alloc_zeroed(1, sizeof *r);
    r->buffer = alloc_zeroed(READ_BYTES, 1);
    snprintf(r->directory, sizeof r->directory, "%s", directory);
    if (options)
        r->options = *options;
    TRY(read_manifest(r, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

status_t checkpoint_layout(const struct roots *roots, const char *directory, char **ret, char *ret_data_sha256,
                           struct err *e) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    TRY(begin(directory, &(struct checkpoint_reader_options){ .roots = roots }, &r, e));
    *ret = alloc_copy_text(r->manifest->layout_json);
    if (ret_data_sha256)
        snprintf(ret_data_sha256, SHA256_HEX, "%s", r->manifest->data_sha256);
    return ST_OK;
}

/* Whether `first`, or a rank before this one, has the same tuning cache. */
static bool is_duplicate(const struct checkpoint_reader *r, int rank, int first) {
    bool found = strcmp(r->tables[first]->tuning_cache, r->tables[rank]->tuning_cache) == 0;
    for (int before = 0; before < rank && !found; before++)
        found = strcmp(r->tables[before]->tuning_cache, r->tables[rank]->tuning_cache) == 0;
    return found;
}

static status_t join_tuning_caches(const struct checkpoint_reader *r, int first, struct bytes *ret, struct err *e) {
    TRY(bytes_append(ret, r->tables[first]->tuning_cache, strlen(r->tables[first]->tuning_cache), e));
    for (int rank = 0; rank < r->manifest->world_size; rank++)
        if (!is_duplicate(r, rank, first))
            TRY(bytes_append(ret, r->tables[rank]->tuning_cache, strlen(r->tables[rank]->tuning_cache), e));
    return ST_OK;
}

status_t checkpoint_tuning_caches(const struct roots *roots, const char *directory, int rank, char **ret,
                                  struct err *e) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    TRY(begin(directory, &(struct checkpoint_reader_options){ .roots = roots }, &r, e));
    const int n = r->manifest->world_size;
    r->tables = alloc_zeroed((size_t)n, sizeof(struct rank_table *));
    for (int i = 0; i < n; i++)
        TRY(read_table(r, i, e));
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, (size_t)n * CHECKPOINT_TUNING_CACHE_BYTES);
    TRY(join_tuning_caches(r, rank < n ? rank : 0, &text, e));
    *ret = bytes_take(&text);
    return ST_OK;
}

status_t checkpoint_reader_open(const char *directory, const struct checkpoint_reader_options *options,
                                struct checkpoint_reader **ret, struct err *e) {
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    TRY(begin(directory, options, &r, e));
    const struct manifest *m = r->manifest;
    r->tables = alloc_zeroed((size_t)m->world_size, sizeof(struct rank_table *));
    r->fds = alloc_zeroed((size_t)m->world_size, sizeof *r->fds);
    r->chunks = alloc_zeroed((size_t)m->world_size, sizeof *r->chunks);
    r->headers = alloc_zeroed((size_t)m->world_size, sizeof(struct safetensors *));
    for (int rank = 0; rank < m->world_size; rank++)
        r->fds[rank] = -1;
    for (int rank = 0; rank < m->world_size; rank++)
        TRY(open_rank(r, rank, e));
    TRY(reader_prove(r, e));
    free_proof(r);
    r->info = (struct checkpoint_info){ .step = m->step,
                                        .updates = m->updates,
                                        .skipped = m->skipped,
                                        .loss_scale = m->loss_scale,
                                        .growth_count = m->growth_count,
                                        .samples = m->samples,
                                        .not_finite = m->not_finite,
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

/* The first segment that ends behind element `first` of a tensor: the last that begins at or before it. */
static int first_overlap(const struct checkpoint_reader *r, int tensor, int64_t first) {
    int low = 0, high = r->n_segments;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        const struct stored_segment *p = &r->segments[middle];
        if (p->tensor < tensor || (p->tensor == tensor && p->first <= first))
            low = middle;
        else
            high = middle;
    }
    return low;
}

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
    for (int i = first_overlap(r, tensor, first); i < r->n_segments && r->segments[i].tensor == tensor; i++) {
        const struct stored_segment *p = &r->segments[i];
        int64_t from = first > p->first ? first : p->first;
        int64_t to = end < p->first + p->count ? end : p->first + p->count;
        if (from >= to)
            break;
        char file[CHECKPOINT_FILE_BYTES];
        checkpoint_data_file(p->rank, file);
        for (int64_t at = from, n; at < to; at += n) { /* in steps, so that progress is reported */
            n = to - at < READ_BYTES ? to - at : READ_BYTES;
            TRY(reader_read_at(r, file, r->fds[p->rank], p->offset + (at - p->first) * 4, data + (at - first),
                               (size_t)n * sizeof *data, e));
            reader_progress(r);
        }
    }
    return ST_OK;
}
