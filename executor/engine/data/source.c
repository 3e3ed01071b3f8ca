#include "executor/engine/data/source.h"

#include "executor/engine/data/source_kind.h"

#include <assert.h>
#include <stddef.h>

status_t source_open(const struct data_config *config, const struct source_options *options, struct source **ret,
                     struct err *e) {
    static source_open_fn *const kinds[] = {
        [DATA_TEXT] = source_open_text,
        [DATA_TOKENS] = source_open_tokens,
        [DATA_IMAGES] = source_open_images,
        [DATA_IDX] = source_open_idx,
        [DATA_RECONSTRUCTION] = source_open_reconstruction,
    };
    assert((size_t)config->kind < sizeof kinds / sizeof *kinds);
    TRY(kinds[config->kind](config, options, ret, e));
    if ((*ret)->info.reading_threads == 0)
        (*ret)->info.reading_threads = 1;
    return ST_OK;
}

struct source *source_close(struct source *s) {
    if (s)
        s->close(s);
    return NULL;
}

const struct source_info *source_info(const struct source *s) { return &s->info; }

const struct source_input *source_find(const struct source *s, enum batch_input input) {
    for (int i = 0; i < s->info.n_inputs; i++)
        if (s->info.inputs[i].input == input)
            return &s->info.inputs[i];
    return NULL;
}

int64_t source_elements(const struct source *s, enum batch_input input) {
    const struct source_input *found = source_find(s, input);
    int64_t n = found != NULL;
    for (int i = 0; found && i < found->n_dims; i++)
        n *= found->dim[i];
    return n;
}

status_t source_read(const struct source *s, enum source_part part, int64_t seed, int64_t first, int B,
                     const struct batch *to, struct err *e) {
    assert(first >= 0 && B >= 0);
    if (s->info.samples[part] > 0)
        return s->read(s, part, seed, first, B, to, e);
    if (s->empty)
        return s->empty(s, part, e);
    return err_set(e, ST_INVALID_ARGUMENT, "the data has no %s samples",
                   part == SOURCE_TRAIN ? "training" : "validation");
}
