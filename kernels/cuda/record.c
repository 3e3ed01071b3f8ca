/* The choices of an open table: begun from what an earlier part of the run has chosen, told as text. */
#include "kernels/cuda/choices.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status_t cuda_choices_open(struct cuda *c, const char *record, struct err *e) {
    c->choices = calloc(1, sizeof *c->choices);
    if (!c->choices)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the choices of a run");
    snprintf(c->choices->device, sizeof c->choices->device, "%s, %d processors, cuBLASLt %zu%s", c->name, c->processors,
             cuda_products_version(), c->table.fast ? ", fast" : "");
    const status_t st = record ? choices_take(c->choices, record, strlen(record), e) : ST_OK;
    return st == ST_INVALID_ARGUMENT ? err_prefix(e, ST_DATA_LOSS, "the run's record: ") : st;
}

void cuda_choices_close(struct cuda *c) {
    if (c->choices)
        choices_done(c->choices);
    free(c->choices);
    c->choices = NULL;
}

status_t cuda_record(const struct kernels *k, char **ret, struct err *e) {
    return choices_write(cuda_of(k)->choices, ret, e);
}
