/* config.json and model.safetensors.index.json of anyone's folder: parsers that trust nothing. A model that parses is
 * written again and must parse to the same. */
#include "engine/pretrained/config_json.h"
#include "engine/pretrained/weights_folder.h"

#include <stdlib.h>
#include <string.h>

/* gpt.c and llama.c have the real ones, and the engine with them. */
const struct model_kind model_gpt = { .name = "gpt" }, model_llama = { .name = "llama" };

static void write_again(const struct model_config *m, struct bytes *text) {
    struct err e;
    bytes_init(text, 1 << 20);
    if (config_json_write(m, text, &e) != ST_OK)
        abort();
}

static void config(const char *text, size_t n) {
    struct model_config m, again;
    struct bytes first, second;
    struct err e;
    if (config_json_parse(text, n, &m, &e) != ST_OK)
        return;
    write_again(&m, &first);
    if (config_json_parse(first.data, first.len, &again, &e) != ST_OK)
        abort();
    write_again(&again, &second);
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
        abort();
    bytes_done(&first);
    bytes_done(&second);
}

static void index_(const char *text, size_t n) {
    char **names = NULL;
    int count = 0;
    struct err e;
    if (weights_folder_index_parse(text, n, &names, &count, &e) != ST_OK)
        return;
    for (int i = 0; i < count; i++) {
        if (strchr(names[i], '/') || !*names[i])
            abort();
        free(names[i]);
    }
    free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    config((const char *)data, n);
    index_((const char *)data, n);
    return 0;
}
