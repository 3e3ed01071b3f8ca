/* The manifest of a program's checkpoint behind its checksum: what parses leads only downwards, is written again and
 * parses again to the same. */
#include "engine/checkpoint/checksummed.h"
#include "executor/worker/file_manifest.h"

#include <stdlib.h>
#include <string.h>

static void check_name(const char *name) {
    if (*name == '/' || strstr(name, "//") || strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 ||
        strstr(name, "/../"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct file_manifest *m = NULL, *again = NULL;
    struct err e;
    struct bytes written;
    if (file_manifest_parse((const char *)data, n, &m, &e) != ST_OK)
        return 0;
    check_name(m->path);
    for (size_t i = 0; i < m->n; i++)
        check_name(m->files[i].name);
    bytes_init(&written, FILE_MANIFEST_BYTES);
    if (file_manifest_write(m, &written, &e) != ST_OK || checksummed_check(written.data, written.len, &e) != ST_OK ||
        file_manifest_parse(written.data, written.len, &again, &e) != ST_OK || again->n != m->n ||
        strcmp(again->path, m->path) != 0 || file_manifest_bytes(again) != file_manifest_bytes(m))
        abort();
    bytes_done(&written);
    file_manifest_free(m);
    file_manifest_free(again);
    return 0;
}
