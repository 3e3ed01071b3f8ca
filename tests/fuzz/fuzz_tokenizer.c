/* tokenizer.json, and a text under it: what the parser accepts must encode any text, or say why not, to tokens that it
 * decodes, and be written and read again. The text stands behind the first NUL byte. */
#include "engine/data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

static void use(const struct tokenizer *t, const char *text, size_t n) {
    struct err e;
    struct bytes back;
    int32_t tokens[2 * MOST + 1];
    size_t made;
    if (n > MOST)
        n = MOST;
    if (tokenizer_encode(t, text, n, tokens, tokenizer_capacity(t, n), &made, &e) != ST_OK)
        return;
    bytes_init(&back, 1 << 26);
    if (tokenizer_decode(t, tokens, made, &back, &e) != ST_OK)
        abort();
    bytes_done(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct tokenizer *t = NULL, *again = NULL;
    struct err e;
    char *json = NULL;
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t head = end ? (size_t)(end - data) : n;
    if (tokenizer_new_bpe((const char *)data, head, &t, &e) != ST_OK)
        return 0;
    if (tokenizer_vocabulary(t) < 1)
        abort();
    if (end)
        use(t, (const char *)end + 1, n - head - 1);
    use(t, "it's 12 a\n\n<|endoftext|>", 24);
    if (tokenizer_to_json(t, &json, &e) != ST_OK || tokenizer_from_json(json, &again, &e) != ST_OK ||
        tokenizer_vocabulary(again) != tokenizer_vocabulary(t))
        abort();
    free(json);
    tokenizer_free(t);
    tokenizer_free(again);
    return 0;
}
