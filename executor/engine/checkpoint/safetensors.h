/* The safetensors format (huggingface.co/docs/safetensors): 8 bytes of little-endian length, that many bytes of JSON
 * header, then the tensors' bytes. Strict, with tighter ceilings than the reference: a header of at most 16 MiB, at
 * most 65,536 tensors of at most 8 dimensions; offsets without gap or overlap in the header's order of offsets; every
 * byte of the file belongs to the header or to one tensor.
 *
 * Trainyard's files are plain safetensors: with one rank every tensor is there under its own name, so other programs
 * open them. With more ranks a tensor that is cut is stored as one-dimensional pieces named "NAME[FIRST:END]", by
 * elements, and __metadata__ has its full shape under "shape:NAME". For checkpoint/, pretrained/ and the fuzz target.
 */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_SAFETENSORS_H
#define EXECUTOR_ENGINE_CHECKPOINT_SAFETENSORS_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "executor/engine/checkpoint/tensor.h"

enum { SAFETENSORS_HEADER_BYTES = 16 << 20, SAFETENSORS_NAME_BYTES = CHECKPOINT_NAME_BYTES + 44 };

struct safetensors_entry {
    char *name;
    char dtype[8]; /* "F32", "BF16", ... */
    int n_dims;
    int64_t shape[CHECKPOINT_RANK];
    int64_t begin, end; /* bytes, from the end of the header */
};

struct safetensors {
    int64_t data_first;                /* where the tensors' bytes begin in the file */
    struct safetensors_entry *entries; /* by offset */
    int n_entries;
};

/* Parses the first n bytes of a file of file_bytes; n must reach to the header's end (safetensors_header_end says where
 * that is). DATA_LOSS says what is wrong, without the file's name. */
MUST_CHECK status_t safetensors_parse(const void *bytes, size_t n, int64_t file_bytes, struct safetensors **ret,
                                      struct err *e);
struct safetensors *safetensors_free(struct safetensors *s);
CLEANUP_DEFINE(struct safetensors *, safetensors_free)

/* Where the header ends, from the first 8 bytes of a file of file_bytes. DATA_LOSS when that cannot be. */
MUST_CHECK status_t safetensors_header_end(const unsigned char first[8], int64_t file_bytes, int64_t *ret,
                                           struct err *e);

/* The name of a piece: that of its tensor when it is whole. */
void safetensors_piece_name(const struct checkpoint_tensor *t, int64_t first, int64_t count,
                            char ret[SAFETENSORS_NAME_BYTES]);

/* Appends the length and the header of a file that holds these F32 pieces in this order, padded to 8 bytes. */
MUST_CHECK status_t safetensors_header(const struct checkpoint_tensor *tensors, const struct checkpoint_piece *pieces,
                                       int n_pieces, int64_t step, int rank, int world_size, struct bytes *ret,
                                       struct err *e);

#endif
