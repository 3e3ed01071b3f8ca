/* An image of apptainer or enroot: its header and its files of variables. Whatever the bytes are, a place for the
 * squashfs is not negative, and each variable has a name and a zero byte at its end. */
#include "base/file.h"
#include "executor/image/squashfs.h"

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char place[64], variables[96];
static int root = -1;

static void prepare(void) {
    snprintf(place, sizeof place, "/tmp/fuzz-squashfs-XXXXXX");
    if (!mkdtemp(place) || (root = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        mkdirat(root, "etc", 0700) < 0)
        abort();
    snprintf(variables, sizeof variables, "%s/variables", place);
}

static void check(void) {
    struct bytes text;
    bytes_init(&text, 4 << 20);
    if (file_read(variables, &text, NULL) == ST_OK && text.len > 0) {
        assert(text.data[text.len - 1] == '\0');
        for (const char *at = (const char *)text.data; at < (const char *)text.data + text.len; at += strlen(at) + 1)
            assert(*at != '=' && strchr(at, '=') && strncmp(at, "TRAINYARD_", 10) != 0);
    }
    bytes_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    bool found;
    int64_t offset;
    if (root < 0)
        prepare();
    const int image = memfd_create("image", MFD_CLOEXEC);
    const int file = openat(root, "etc/environment", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (image < 0 || file < 0 || write(image, data, n) != (ssize_t)n || write(file, data, n) != (ssize_t)n)
        abort();
    if (squashfs_find(image, "x86_64", &found, &offset, NULL) == ST_OK)
        assert(offset >= 0 && (found || offset == 0));
    if (squashfs_variables_write(root, variables, NULL) == ST_OK)
        check();
    close(image);
    close(file);
    return 0;
}
