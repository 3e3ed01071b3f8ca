/* A data kind: one struct in one file of this folder, which source.h's DATA_KINDS names.
 *
 * The table of members is the only description of the settings for the rest of the program: executor/worker fills
 * them from the fields of the same name in spec.proto. */
#ifndef ENGINE_DATA_SOURCE_KIND_H
#define ENGINE_DATA_SOURCE_KIND_H

#include "base/member.h"
#include "engine/data/source.h"

struct data_kind {
    const char *name;             /* the member of the spec's `data` */
    const struct member *members; /* of the settings */
    int n_members;
    /* As source_open. The caller completes info.reading_threads. */
    status_t (*open)(const struct data_config *config, const struct source_options *options, struct source **ret,
                     struct err *e);
};

/* First member of each kind's own struct. */
struct source {
    struct source_info info;
    double mixup; /* alpha; > 0: source_read mixes what `read` reads (mixup.h) */
    /* As source_read, for a split that has samples. */
    status_t (*read)(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                     const struct batch *to, struct err *e);
    /* As source_mixed_samples; NULL if info.n_mixed is 0. */
    int64_t (*mixed_samples)(const struct source *s, int mixed, int64_t sample);
    /* Frees everything, s included. s may be incomplete. */
    void (*close)(struct source *s);
    /* Sets the error of a read from an empty split; NULL = a general one. */
    status_t (*empty)(const struct source *s, enum source_split split, struct err *e);
};

#endif
