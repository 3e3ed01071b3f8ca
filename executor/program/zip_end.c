#include "executor/program/zip_end.h"

#include <endian.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Sizes and signatures of APPNOTE.TXT, 4.3. PyTorch writes the records of zip64 too, and no comment. */
enum { END_BYTES = 22, LOCATOR_BYTES = 20, END64_BYTES = 56 };
static const uint32_t END = 0x06054b50, LOCATOR = 0x07064b50, END64 = 0x06064b50, ENTRY = 0x02014b50;

static uint32_t get32(const uint8_t *at) {
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

static uint64_t get64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

static bool get(int fd, int64_t offset, void *ret, size_t n) {
    return offset >= 0 && pread(fd, ret, n, (off_t)offset) == (ssize_t)n;
}

/* Whether a directory of `size` bytes at `offset` begins with an entry and ends at `end`. */
static bool directory_fits(int fd, uint64_t offset, uint64_t size, int64_t end) {
    uint8_t entry[4];
    return size >= sizeof entry && size <= (uint64_t)end && offset == (uint64_t)end - size &&
           get(fd, (int64_t)offset, entry, sizeof entry) && get32(entry) == ENTRY;
}

static bool whole64(int fd, const uint8_t *locator, int64_t locator_at) {
    uint8_t end64[END64_BYTES];
    const uint64_t at = get64(locator + 8);
    return at <= (uint64_t)locator_at && get(fd, (int64_t)at, end64, sizeof end64) && get32(end64) == END64 &&
           directory_fits(fd, get64(end64 + 48), get64(end64 + 40), (int64_t)at);
}

bool zip_is_whole(int fd, int64_t bytes) {
    uint8_t end[END_BYTES], locator[LOCATOR_BYTES];
    const int64_t end_at = bytes - END_BYTES, locator_at = end_at - LOCATOR_BYTES;
    if (!get(fd, end_at, end, sizeof end) || get32(end) != END || end[20] != 0 || end[21] != 0)
        return false;
    if (get(fd, locator_at, locator, sizeof locator) && get32(locator) == LOCATOR)
        return whole64(fd, locator, locator_at);
    return directory_fits(fd, get32(end + 16), get32(end + 12), end_at);
}
