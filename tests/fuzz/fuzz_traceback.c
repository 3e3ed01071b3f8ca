/* What a program prints on stderr, and the file that torch.distributed.elastic writes for it. Any bytes give no
 * exception, or one whose texts are printable UTF-8 and whose sentence keeps its limit. */
#include "base/utf8.h"
#include "executor/program/traceback.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

static void check_text(const char *text, size_t bytes) {
    const size_t n = strnlen(text, bytes);
    assert(n < bytes && utf8_valid(text, n));
}

static void check(const struct exception *x) {
    check_text(x->type, sizeof x->type);
    check_text(x->message, sizeof x->message);
    check_text(x->file, sizeof x->file);
    check_text(x->function, sizeof x->function);
    assert(x->line >= 0 && x->kind <= EXCEPTION_PEER);
    for (size_t bytes = 64; bytes <= 240; bytes += 44) {
        char sentence[240];
        traceback_sentence(x, sentence, bytes);
        check_text(sentence, bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct exception x;
    for (int many = 0; many < 2; many++)
        if (traceback_find((const char *)data, n, many, &x))
            check(&x);
    CLEANUP(redactor_freep) struct redactor *none = redactor_new();
    redactor_ready(none);
    if (traceback_error_file((const char *)data, n, none, &x))
        check(&x);
    return 0;
}
