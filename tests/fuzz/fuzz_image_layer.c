/* A layer of an image that a user names. Whatever its bytes are, nothing appears outside of the image's folder, and in
 * it only files without special bits, folders and links. The first byte chooses what lies below the layer: nothing, or
 * links that lead out. */
#include "base/file.h"
#include "base/sha256.h"
#include "executor/image/layer.h"
#include "executor/image/layout.h"

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

static char place[64], outside[80];
static int root, found;

static int check(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)path;
    (void)kind;
    assert(at->level > 64 || S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
    assert(S_ISLNK(st->st_mode) || (st->st_mode & (S_ISUID | S_ISGID | S_ISVTX)) == 0);
    return 0;
}

static int count(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)path;
    (void)st;
    (void)kind;
    (void)at;
    found++;
    return 0;
}

static void prepare(void) {
    snprintf(place, sizeof place, "/tmp/fuzz-image-layer-XXXXXX");
    if (!mkdtemp(place))
        abort();
    snprintf(outside, sizeof outside, "%s/outside", place);
    if (mkdir(outside, 0755) < 0)
        abort();
}

static void read_json(const uint8_t *data, size_t n) {
    static struct layout_manifest m;
    struct layout_digest digest;
    bool index;
    char *variables = NULL;
    size_t bytes;
    status_ignore(layout_index_read((const char *)data, n, "x86_64", &digest, &index, NULL));
    status_ignore(layout_manifest_read((const char *)data, n, &m, NULL));
    status_ignore(layout_config_read((const char *)data, n, "x86_64", &variables, &bytes, NULL));
    free(variables);
}

static void apply(const uint8_t *data, size_t n, bool links) {
    char image[96], digest[SHA256_HEX];
    uint8_t sum[SHA256_BYTES];
    struct sha256 s;
    struct layer_limits limits = { .bytes = 1 << 20, .files = 1000 };
    snprintf(image, sizeof image, "%s/image", place);
    const int file = memfd_create("layer", MFD_CLOEXEC);
    if (mkdir(image, 0755) < 0 || file < 0 || write(file, data, n) != (ssize_t)n)
        abort();
    root = open(image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || (links && (symlinkat("../outside", root, "a") < 0 || symlinkat(outside, root, "b") < 0)))
        abort();
    sha256_begin(&s);
    sha256_update(&s, data, n);
    sha256_final(&s, sum);
    sha256_hex(sum, digest);
    status_ignore(layer_apply(file, digest, root, &limits, NULL));
    close(file);
    close(root);
    nftw(image, check, 16, FTW_PHYS);
    found = 0;
    nftw(outside, count, 16, FTW_PHYS);
    assert(found == 1);
    if (dir_remove(image, NULL) != ST_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!*place)
        prepare();
    if (n == 0)
        return 0;
    read_json(data + 1, n - 1);
    apply(data + 1, n - 1, *data & 1);
    return 0;
}
