#include "engine/data/source.h"

#include "engine/data/mixup.h"
#include "engine/data/source_kind.h"

#include <assert.h>
#include <string.h>

#define DATA_ADDRESS(name) &data_##name,
static const struct data_kind *const KINDS[] = { DATA_KINDS(DATA_ADDRESS) NULL };

const struct data_kind *data_kind_find(const char *name) {
    for (int i = 0; KINDS[i]; i++)
        if (strcmp(KINDS[i]->name, name) == 0)
            return KINDS[i];
    return NULL;
}

const int *data_int(const struct data_config *config, const char *name) {
    return member_int(config->kind->members, config->kind->n_members, config->settings, name);
}

/* Names the spec's field in errors of the data. */
static status_t name_field(status_t st, struct err *e) {
    return st == ST_INVALID_ARGUMENT || st == ST_NOT_FOUND ? err_prefix(e, st, "data: ") : st;
}

status_t source_open(const struct data_config *config, const struct source_options *options, struct source **ret,
                     struct err *e) {
    TRY(name_field(config->kind->open(config, options, ret, e), e));
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

int64_t source_mixed_samples(const struct source *s, int mixed, int64_t sample) {
    assert(mixed >= 0 && mixed < s->info.n_mixed && sample >= 0);
    return s->mixed_samples(s, mixed, sample);
}

status_t source_read(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                     const struct batch *to, struct err *e) {
    assert(first >= 0 && B >= 0);
    if (s->info.samples[split] > 0)
        return (s->mixup > 0 ? mixup_read : s->read)(s, split, split == SOURCE_TRAIN ? seed : 0, first, B, to, e);
    if (s->empty)
        return name_field(s->empty(s, split, e), e);
    return err_set(e, ST_INVALID_ARGUMENT, "data: there are no %s samples",
                   split == SOURCE_TRAIN ? "training" : "validation");
}
