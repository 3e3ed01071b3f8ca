/* A safetensors file's beginning from anyone: the parser refuses or returns entries that fit the file. The first two
 * bytes choose how much the file has after what is given. */
#include "engine/checkpoint/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2)
        return 0;
    int64_t more = data[0] << 8 | data[1];
    struct safetensors *s = NULL;
    struct err e;
    if (safetensors_parse(data + 2, n - 2, (int64_t)(n - 2) + more, &s, &e) != ST_OK)
        return 0;
    int64_t at = s->data_first;
    for (int i = 0; i < s->n_entries; i++) {
        if (s->entries[i].begin + s->data_first != at || s->entries[i].end < s->entries[i].begin)
            abort();
        at = s->data_first + s->entries[i].end;
    }
    if (at != (int64_t)(n - 2) + more)
        abort();
    safetensors_free(s);
    return 0;
}
