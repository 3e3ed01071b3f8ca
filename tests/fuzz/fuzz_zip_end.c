/* The end record of a zip archive, of a file in memory. A file that lost its last byte is not whole. */
#include "executor/program/zip_end.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("zip", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, n, 0) != (ssize_t)n)
        abort();
    if (zip_is_whole(fd, (int64_t)n) && n < 22)
        abort();
    return 0;
}
