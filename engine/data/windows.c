#include "engine/data/windows.h"

#include "base/alloc.h"
#include "engine/data/sampler.h"
#include "engine/data/source_kind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct windows {
    struct source source;
    struct token_store store;
    int context;
};

static status_t too_short(const struct source *s, enum source_split split, struct err *e) {
    const struct windows *w = (const struct windows *)s;
    const long long train = (long long)w->store.tokens[SOURCE_TRAIN],
                    validation = (long long)w->store.tokens[SOURCE_VALIDATION];
    if (split == SOURCE_TRAIN)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "there %s %lld token%s for training (and %lld for validation); a sample of context %d needs %d",
                       train == 1 ? "is" : "are", train, train == 1 ? "" : "s", validation, w->context, w->context + 1);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "there %s %lld token%s for validation; a sample of context %d needs %d; give more text or a larger "
                   "validation split, or none",
                   validation == 1 ? "is" : "are", validation, validation == 1 ? "" : "s", w->context, w->context + 1);
}

/* The windows of an epoch lie end to end behind the epoch's offset. Where the offset leaves too few tokens for the last
 * one, it ends with the text and overlaps its neighbour. */
static int64_t window_start(const struct windows *w, enum source_split split, int64_t seed, int64_t sample) {
    const int64_t n = w->source.info.samples[split], last = w->store.tokens[split] - w->context - 1;
    const int64_t offset = split == SOURCE_TRAIN ? sampler_offset(seed, sample / n, w->context) : 0;
    const int64_t start = offset + sampler_index(split, seed, n, sample) * w->context;
    return start < last ? start : last;
}

static status_t read_windows(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                             const struct batch *to, struct err *e) {
    const struct windows *w = (const struct windows *)s;
    const int64_t T = w->context;
    int32_t *tokens = to->of[BATCH_TOKENS], *targets = to->of[BATCH_TARGETS];
    for (int b = 0; b < B; b++) {
        const int64_t start = window_start(w, split, seed, first + b);
        if (tokens)
            TRY(w->store.read(w->store.ctx, split, start, w->context, tokens + b * T, e));
        if (targets && !tokens) {
            TRY(w->store.read(w->store.ctx, split, start + 1, w->context, targets + b * T, e));
        } else if (targets) {
            /* Targets are the tokens shifted by one: only the last one is not in memory yet. */
            memcpy(targets + b * T, tokens + b * T + 1, (size_t)(T - 1) * sizeof *targets);
            TRY(w->store.read(w->store.ctx, split, start + T, 1, targets + (b + 1) * T - 1, e));
        }
    }
    return ST_OK;
}

static void close_windows(struct source *s) {
    struct windows *w = (struct windows *)s;
    w->store.close(w->store.ctx);
    free(w);
}

status_t windows_open(const struct token_store *store, int context, struct source **ret, struct err *e) {
    assert(context >= 1);
    struct windows *w = alloc_zeroed(1, sizeof *w);
    w->source = (struct source){ .read = read_windows, .close = close_windows, .empty = too_short };
    w->store = *store;
    w->context = context;
    struct source_info *info = &w->source.info;
    info->inputs[0] = (struct source_input){ .input = BATCH_TOKENS, .n_dims = 1, .dim = { context } };
    info->inputs[1] = (struct source_input){ .input = BATCH_TARGETS, .n_dims = 1, .dim = { context } };
    info->n_inputs = 2;
    info->vocabulary = store->vocabulary;
    info->tokenizer = store->tokenizer;
    info->memory_bytes = store->memory_bytes;
    snprintf(info->sha256, sizeof info->sha256, "%s", store->sha256);
    for (int split = 0; split < SOURCE_SPLITS; split++) {
        info->tokens[split] = store->tokens[split];
        info->samples[split] = store->tokens[split] > 0 ? (store->tokens[split] - 1) / context : 0;
    }
    if (info->samples[SOURCE_TRAIN] == 0) {
        status_t st = too_short(&w->source, SOURCE_TRAIN, e);
        free(w);
        return st;
    }
    *ret = &w->source;
    return ST_OK;
}
