/* A .sif has a header of 128 bytes, and descriptors of 585 bytes without padding, all numbers little-endian:
 *
 *     header        32 "SIF_MAGIC"   45 machine   88 number of descriptors   96 offset of the descriptors
 *     descriptor    0 kind of the part   4 whether it is used   17 its offset   201 kind of file system   205 its use
 *
 * Of the variables' files, lines NAME=value and export NAME="value" count, and export NAME="${NAME:-"value"}", which
 * apptainer writes so that a variable of the host comes first. */
#include "executor/image/squashfs.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/image/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    HEADER = 128,
    MAGIC = 32,
    MACHINE = 45,
    PARTS = 88,
    PARTS_AT = 96,
    PART = 585,
    PARTS_MAX = 256,
    USED = 4,
    OFFSET = 17,
    FILE_SYSTEM = 201,
    USE = 205,
    A_FILE_SYSTEM = 0x4004,
    A_SQUASHFS = 1,
    OF_THE_ROOT = 2,
    VARIABLES_MAX = 1 << 20,
};

static int64_t number(const uint8_t *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return (int64_t)value;
}

static status_t refuse(const char *why, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "the .sif file %s", why);
}

static bool is_machine(const uint8_t *code, const char *machine) {
    return (memcmp(code, "02", 2) == 0 && strcmp(machine, "x86_64") == 0) ||
           (memcmp(code, "04", 2) == 0 && strcmp(machine, "aarch64") == 0);
}

static status_t part_find(int file, const uint8_t *header, int64_t *ret, struct err *e) {
    const int64_t n = number(header + PARTS, 8), at = number(header + PARTS_AT, 8);
    if (n < 0 || n > PARTS_MAX || at < HEADER || at > INT64_MAX - n * PART)
        return refuse("is damaged: its header is wrong", e);
    for (int64_t i = 0; i < n; i++) {
        uint8_t part[PART];
        if (pread(file, part, sizeof part, at + i * PART) != sizeof part)
            return refuse("ends within its list of parts", e);
        if (!part[USED] || number(part, 4) != A_FILE_SYSTEM || number(part + USE, 4) != OF_THE_ROOT)
            continue;
        if (number(part + FILE_SYSTEM, 4) != A_SQUASHFS)
            return refuse("has a root that is encrypted or no squashfs", e);
        *ret = number(part + OFFSET, 8);
        return *ret > 0 ? ST_OK : refuse("is damaged: a part has a wrong place", e);
    }
    return refuse("has no part for the root", e);
}

status_t squashfs_find(int file, const char *machine, bool *ret, int64_t *ret_offset, struct err *e) {
    uint8_t header[HEADER];
    *ret_offset = 0;
    *ret = false;
    if (pread(file, header, sizeof header, 0) != sizeof header)
        return ST_OK;
    *ret = memcmp(header, "hsqs", 4) == 0;
    if (*ret || memcmp(header + MAGIC, "SIF_MAGIC", 10) != 0)
        return ST_OK;
    *ret = true;
    return is_machine(header + MACHINE, machine) ? part_find(file, header, ret_offset, e)
                                                 : refuse("is for another kind of machine than this host", e);
}

/* ---- variables ---- */

/* In quotation marks a backslash stands before a character that a shell would read otherwise. */
static size_t unquote(char *value) {
    size_t n = strlen(value), to = 0;
    if (n < 2 || value[0] != '"' || value[n - 1] != '"')
        return n;
    for (size_t i = 1; i < n - 1; i++) {
        i += value[i] == '\\' && i + 1 < n - 1;
        value[to++] = value[i];
    }
    value[to] = '\0';
    return to;
}

static status_t line_take(char *line, struct bytes *ret, struct err *e) {
    static const char EXPORT[] = "export ";
    if (strncmp(line, EXPORT, sizeof EXPORT - 1) == 0)
        line += sizeof EXPORT - 1;
    char *value = strchr(line, '=');
    if (!value || !layout_is_variable(line))
        return ST_OK;
    *value++ = '\0';
    CLEANUP(freep) char *begin = alloc_format("\"${%s:-\"", line);
    const size_t n = strlen(value), n_begin = strlen(begin);
    if (n > n_begin + 3 && strncmp(value, begin, n_begin) == 0 && strcmp(value + n - 3, "\"}\"") == 0) {
        value[n - 2] = '\0';
        value += n_begin - 1;
    }
    const size_t bytes = unquote(value);
    TRY(bytes_append(ret, line, strlen(line), e));
    TRY(bytes_append(ret, "=", 1, e));
    return bytes_append(ret, value, bytes + 1, e);
}

/* A file that is not there, or no file, has no variables. */
static status_t file_take(int root, const char *path, struct bytes *ret, struct err *e) {
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_IN_ROOT };
    CLEANUP(closep) int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    struct stat st;
    struct bytes text;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return ST_OK;
    bytes_init(&text, VARIABLES_MAX);
    status_t result = fd_read_file(fd, path, &text, e);
    if (result == ST_OK)
        result = bytes_append(&text, "", 1, e);
    char *rest = NULL;
    for (char *line = result == ST_OK ? strtok_r((char *)text.data, "\n", &rest) : NULL; line && result == ST_OK;
         line = strtok_r(NULL, "\n", &rest))
        result = line_take(line, ret, e);
    bytes_done(&text);
    return result;
}

status_t squashfs_variables_write(int root, const char *path, struct err *e) {
    struct bytes all;
    bytes_init(&all, 2 * VARIABLES_MAX);
    status_t st = file_take(root, "etc/environment", &all, e);
    if (st == ST_OK)
        st = file_take(root, ".singularity.d/env/10-docker2singularity.sh", &all, e);
    if (st == ST_OK)
        st = file_write_atomic(path, all.data ? (const char *)all.data : "", all.len, 0644, e);
    bytes_done(&all);
    return st;
}
