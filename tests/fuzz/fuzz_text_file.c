/* Files of documents: any bytes are a text, or a sentence. The first byte says in which format they are read. */
#include "engine/data/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const fields[] = { "", "txt", "json.text", "a.b" };
    if (n < 1)
        return 0;
    char path[32];
    int file = memfd_create("data", MFD_CLOEXEC);
    if (file < 0 || write(file, data + 1, n - 1) != (ssize_t)(n - 1))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const struct text_format format = { .form = (enum text_form)(data[0] % 3),
                                        .document = fields[data[0] / 3 % 4],
                                        .separator = data[0] & 128 ? "|" : "" };
    struct data_file f = { .fd = -1 };
    struct err e;
    if (text_file_open(&f, &format, NULL, path, &e) == ST_OK) {
        char last;
        if (f.bytes > 0 && data_file_read(&f, f.bytes - 1, &last, 1, &e) != ST_OK)
            abort();
    }
    data_file_close(&f);
    close(file);
    return 0;
}
