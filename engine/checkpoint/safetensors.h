/* The safetensors format (huggingface.co/docs/safetensors): 8 bytes of little-endian length, that many bytes of JSON
 * header, then the tensors' bytes. Strict, with lower limits than the reference: a header of at most 16 MiB, at
 * most 65,536 tensors of at most 8 dimensions; offsets without gap or overlap in the header's order of offsets; every
 * byte of the file belongs to the header or to one tensor.
 *
 * Trainyard's files are plain safetensors: with one rank, every tensor has its own name, so other programs can
 * open them. With several ranks, a tensor that is divided is stored as one-dimensional segments named
 * "NAME[FIRST:END]" (elements), and __metadata__ has its full shape under "shape:NAME". Used by checkpoint/,
 * pretrained/ and the fuzz target. */
#ifndef ENGINE_CHECKPOINT_SAFETENSORS_H
#define ENGINE_CHECKPOINT_SAFETENSORS_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "engine/checkpoint/tensor.h"

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

/* Parses the first n bytes of a file of file_bytes bytes; n must include the whole header (safetensors_header_end). The
 * message of DATA_LOSS states the error, without the file's name. */
MUST_CHECK status_t safetensors_parse(const void *bytes, size_t n, int64_t file_bytes, struct safetensors **ret,
                                      struct err *e);
struct safetensors *safetensors_free(struct safetensors *s);
CLEANUP_DEFINE(struct safetensors *, safetensors_free)

/* Offset of the header's end, from the first 8 bytes of a file of file_bytes bytes. DATA_LOSS if it is impossible. */
MUST_CHECK status_t safetensors_header_end(const unsigned char first[8], int64_t file_bytes, int64_t *ret,
                                           struct err *e);

/* The name of a segment: its tensor's name if it is the whole tensor. */
void safetensors_segment_name(const struct checkpoint_tensor *t, int64_t first, int64_t count,
                              char ret[SAFETENSORS_NAME_BYTES]);

/* Appends the length and the header of a file that holds these F32 segments in this order, padded to 8 bytes. */
MUST_CHECK status_t safetensors_header(const struct checkpoint_tensor *tensors,
                                       const struct checkpoint_segment *segments, int n_segments, int64_t step,
                                       int rank, int world_size, struct bytes *ret, struct err *e);

#endif
