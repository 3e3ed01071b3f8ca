/* A model family: one struct in one file of this folder, which model.h's MODEL_KINDS names.
 *
 * The table of members is the only description of the shape for the rest of the program: executor/worker fills a
 * shape from the fields of the same name in spec.proto, and model_json.c writes a checkpoint's record from it and reads
 * it back. Ranges and defaults are options in spec.proto. `build` checks only what would break the graph, since its
 * callers in tests and tools have no spec. */
#ifndef ENGINE_MODEL_KIND_H
#define ENGINE_MODEL_KIND_H

#include "base/member.h"
#include "engine/graph/graph.h"

/* The properties of the data that a model needs; 0 if the data has no such property. */
struct model_data {
    int vocabulary; /* tokens are 0 .. vocabulary - 1 */
    int classes;    /* labels are 0 .. classes - 1 */
    int channels, height, width;
    bool mixup; /* samples have partners and shares (engine/data/mixup.h) */
};

enum model_samples { MODEL_TOKENS, MODEL_LABELLED_IMAGES, MODEL_MEASUREMENTS };

struct model_kind {
    const char *name; /* the member of the spec's `model` */
    enum model_samples samples;
    const struct member *members; /* of the shape */
    int n_members;
    /* Sets members that depend on the data, other than `vocabulary` and `classes`, which model_resolve sets by their
     * names. NULL: there are none. */
    void (*resolve)(void *shape, const struct model_data *data);
    /* Adds the blocks to a graph whose micro_batch is set. The shape is complete. INVALID_ARGUMENT names the field. */
    MUST_CHECK status_t (*build)(const void *shape, const struct model_data *data, struct graph *g, struct err *e);
};

#endif
