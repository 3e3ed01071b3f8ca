/* An archive of code that any client may have uploaded. Whatever its bytes are, nothing appears outside of the folder,
 * and in it only read-only files and folders without special bits, and links that stay in it. */
#include "api/code/entry.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/code/unpack.h"

#include <assert.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char place[64], folder[80];
static int complete, files, outer;

static int check(const char *path, const struct stat *st, int kind, struct FTW *at) {
    static char target[4096];
    if (at->level == 0)
        return 0;
    if (kind == FTW_SL) {
        const ssize_t n = readlink(path, target, sizeof target - 1);
        assert(n > 0);
        target[n] = '\0';
        assert(code_link_check(path + strlen(folder) + 1, target, NULL) == ST_OK);
    } else {
        assert(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode));
        assert((st->st_mode & (S_ISUID | S_ISGID | S_ISVTX)) == 0);
        assert(!complete || (st->st_mode & 0222) == 0);
    }
    files += kind != FTW_D;
    return 0;
}

static int count(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)path;
    (void)st;
    (void)kind;
    outer += at->level == 1;
    return 0;
}

static void leave(void) { rmdir(place); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!*place) {
        snprintf(place, sizeof place, "/dev/shm/fuzz-code-XXXXXX");
        assert(mkdtemp(place));
        snprintf(folder, sizeof folder, "%s/copy", place);
        assert(atexit(leave) == 0);
    }
    int fd = memfd_create("archive", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0);
    assert(mkdir(folder, 0700) == 0);
    complete = code_unpack(fd, folder, NULL) == ST_OK;
    close(fd);
    files = outer = 0;
    nftw(folder, check, 16, FTW_PHYS);
    nftw(place, count, 16, FTW_PHYS);
    assert(outer == 1 && files <= LIMIT_CODE_FILES && (!complete || files > 0));
    assert(dir_remove_readonly(folder, NULL) == ST_OK);
    return 0;
}
