/* What a checkpoint_reader holds, for reader.c, reader_file.c and reader_proof.c. Private to this folder. */
#ifndef ENGINE_CHECKPOINT_READER_STATE_H
#define ENGINE_CHECKPOINT_READER_STATE_H

#include "engine/checkpoint/digest.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/safetensors.h"

#include <limits.h>

enum { READ_BYTES = 1 << 20 };

/* A segment of a tensor and its position in a file. */
struct stored_segment {
    int tensor, rank;
    int64_t first, count, offset; /* offset: bytes, in that rank's safetensors file */
    const digest_t *chunks;       /* valid until the checkpoint is proved; NULL: another reader proves this file */
};

struct checkpoint_reader {
    char directory[PATH_MAX];
    struct checkpoint_reader_options options;
    struct manifest *manifest;
    struct checkpoint_info info;
    struct rank_table **tables;      /* (world_size) */
    int *fds;                        /* (world_size) */
    struct stored_segment *segments; /* sorted by tensor and first, after the proof */
    int n_segments, capacity;
    /* (world_size) of the files that this reader proves, else NULL; until the checkpoint is proved. */
    digest_t **chunks; /* of the segments, in the file's order */
    struct safetensors **headers;
    unsigned char *buffer; /* (READ_BYTES) */
};

void reader_progress(const struct checkpoint_reader *r);
/* Prefixes the error with the name of the file. */
status_t reader_in_file(const struct checkpoint_reader *r, const char *name, status_t st, struct err *e);
MUST_CHECK status_t reader_open_file(const struct checkpoint_reader *r, const char *name, int *ret_fd,
                                     int64_t *ret_bytes, struct err *e);
/* Exactly n bytes from `at`. */
MUST_CHECK status_t reader_read_at(const struct checkpoint_reader *r, const char *name, int fd, int64_t at, void *to,
                                   size_t n, struct err *e);

/* Whether this reader of the gang reads all bytes of the file that `rank` wrote. */
bool reader_proves(const struct checkpoint_reader *r, int rank);
/* After all files are open: proves all bytes, with the other readers of the gang. Sorts the segments. */
MUST_CHECK status_t reader_prove(struct checkpoint_reader *r, struct err *e);

#endif
