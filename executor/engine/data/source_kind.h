/* What a kind of data implements. Private to this folder: one open function a kind, one row in source.c. */
#ifndef EXECUTOR_ENGINE_DATA_SOURCE_KIND_H
#define EXECUTOR_ENGINE_DATA_SOURCE_KIND_H

#include "executor/engine/data/source.h"

/* First member of each kind's own struct. */
struct source {
    struct source_info info;
    /* As source_read, of a part that has samples. */
    status_t (*read)(const struct source *s, enum source_part part, int64_t seed, int64_t first, int B,
                     const struct batch *to, struct err *e);
    /* Frees everything, s itself too; takes what is half-built. */
    void (*close)(struct source *s);
    /* The sentence of a read from a part that has no sample; NULL = a general one. */
    status_t (*empty)(const struct source *s, enum source_part part, struct err *e);
};

typedef status_t source_open_fn(const struct data_config *config, const struct source_options *options,
                                struct source **ret, struct err *e);

source_open_fn source_open_text, source_open_tokens, source_open_images, source_open_idx, source_open_reconstruction;

#endif
