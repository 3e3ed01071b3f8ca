/* manifest.json and rank-<r>.json behind their seals, and the tokenizer within: parsers that trust nothing. What parses
 * is written again and must parse again. */
#include "engine/checkpoint/checksummed.h"
#include "engine/checkpoint/manifest.h"
#include "engine/data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void manifest(const char *text, size_t n) {
    struct manifest *m = NULL, *again = NULL;
    struct err e;
    struct bytes written;
    if (manifest_parse(text, n, &m, &e) != ST_OK)
        return;
    struct tokenizer *t = NULL;
    if (tokenizer_from_json(m->tokenizer_json, &t, &e) == ST_OK && tokenizer_vocabulary(t) < 1)
        abort();
    tokenizer_free(t);
    char weights[SHA256_HEX];
    bytes_init(&written, CHECKPOINT_JSON_BYTES);
    digest_weights(m->tensors, m->digests, m->n_tensors, weights);
    if (manifest_write(m, &written, &e) != ST_OK || checksummed_check(written.data, written.len, &e) != ST_OK ||
        manifest_parse(written.data, written.len, &again, &e) != ST_OK || again->n_tensors != m->n_tensors)
        abort();
    bytes_done(&written);
    manifest_free(m);
    manifest_free(again);
}

static void table(const char *text, size_t n) {
    struct rank_table *t = NULL, *again = NULL;
    struct err e;
    struct bytes written;
    if (rank_table_parse(text, n, &t, &e) != ST_OK)
        return;
    bytes_init(&written, CHECKPOINT_JSON_BYTES);
    if (rank_table_write(t, &written, &e) != ST_OK || checksummed_check(written.data, written.len, &e) != ST_OK ||
        rank_table_parse(written.data, written.len, &again, &e) != ST_OK || again->n_segments != t->n_segments ||
        strcmp(again->tuning_cache, t->tuning_cache) != 0)
        abort();
    bytes_done(&written);
    rank_table_free(t);
    rank_table_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct err e;
    status_ignore(checksummed_check((const char *)data, n, &e));
    manifest((const char *)data, n);
    table((const char *)data, n);
    return 0;
}
