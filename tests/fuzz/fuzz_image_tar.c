/* Tar archives of images: whatever the bytes are, the files that are found lie within the archive, and the archive as
 * the data of a job is samples, or a sentence. The checksums of headers are put right first, so that what is behind
 * them is reached. */
#include "engine/data/image_tar.h"
#include "engine/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static status_t found(void *ctx, const char *name, int64_t offset, int64_t bytes, struct err *e) {
    const struct data_file *f = ctx;
    (void)e;
    if (!*name || strlen(name) >= TAR_NAME_BYTES || offset < 512 || bytes < 0 || bytes > f->bytes - offset)
        abort();
    return ST_OK;
}

static void put_checksums(uint8_t *data, size_t n) {
    for (size_t at = 0; at + 512 <= n; at += 512) {
        unsigned sum = 0;
        if (memcmp(data + at + 148, "??????", 6) != 0) /* a header, as the corpus writes one */
            continue;
        for (size_t i = 0; i < 512; i++)
            sum += i >= 148 && i < 156 ? ' ' : data[at + i];
        snprintf((char *)data + at + 148, 7, "%06o", sum);
    }
}

static void open_source(const char *path) {
    const struct member_file file = { .name = "a.tar", .path = path };
    const struct data_config config = { .kind = &data_images, .images = { .train_files = { &file, 1 }, .size = 4 } };
    struct source *s = NULL;
    struct err e;
    if (source_open(&config, &(struct source_options){ .threads = 1 }, &s, &e) == ST_OK)
        source_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char path[32];
    struct data_file f;
    struct err e;
    uint8_t *copy = malloc(n + 1);
    int fd = memfd_create("tar", MFD_CLOEXEC);
    if (!copy || fd < 0)
        abort();
    if (n)
        memcpy(copy, data, n);
    put_checksums(copy, n);
    if (write(fd, copy, n) != (ssize_t)n)
        abort();
    free(copy);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (data_file_open(&f, "tar archive", NULL, path, &e) == ST_OK)
        status_ignore(tar_list(&f, found, &f, &e));
    data_file_close(&f);
    open_source(path);
    close(fd);
    return 0;
}
