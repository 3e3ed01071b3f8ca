#include "kernels/cpu/plain/ops.h"

/* Columns are divided for threads in blocks of this many floats: 4 cache lines, so that two threads never write to the
 * same line. */
enum { COLUMNS = 64 };

static status_t check_tokens(const int32_t *tokens, int64_t n, int64_t vocabulary, struct err *e) {
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return err_set(e, ST_INVALID_ARGUMENT, "token %d at position %lld is outside the vocabulary of %lld",
                           tokens[i], (long long)i, (long long)vocabulary);
    return ST_OK;
}

status_t PLAIN(embedding_forward)(const struct kernels *k, element_t *y, const int32_t *tokens, const element_t *wte,
                                  const element_t *wpe, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                  struct err *e) {
    TRY(check_tokens(tokens, batch * time, vocabulary, e));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t row = 0; row < batch * time; row++) {
        const element *token = AT(wte, tokens[row] * width), *position = AT_OR_NULL(wpe, row % time * width);
        for (int64_t c = 0; c < width; c++)
            *AT(y, row * width + c) = element_of(float_of(token[c]) + (wpe ? float_of(position[c]) : 0));
    }
    return ST_OK;
}

/* A thread owns columns, not rows. So one thread sums every element, in the order of the batch, also if tokens
 * repeat. */
status_t PLAIN(embedding_backward)(const struct kernels *k, float *dwte, float *dwpe, const int32_t *tokens,
                                   const element_t *dy, int64_t batch, int64_t time, int64_t width, int64_t vocabulary,
                                   int64_t positions, bool accumulate, void *workspace, struct err *e) {
    (void)workspace;
    if (!accumulate) {
        TRY(k->fill(k, dwte, 0, vocabulary * width, e));
        if (dwpe)
            TRY(k->fill(k, dwpe, 0, positions * width, e));
    }
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t begin = 0; begin < width; begin += COLUMNS) {
        const int64_t end = begin + COLUMNS < width ? begin + COLUMNS : width;
        for (int64_t row = 0; row < batch * time; row++) {
            float *token = dwte + tokens[row] * width, *position = dwpe ? dwpe + row % time * width : NULL;
            for (int64_t c = begin; c < end; c++)
                token[c] += float_of(*AT(dy, row * width + c));
            for (int64_t c = begin; position && c < end; c++)
                position[c] += float_of(*AT(dy, row * width + c));
        }
    }
    return ST_OK;
}
