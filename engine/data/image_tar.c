/* An archive is a header of 512 bytes for each file, then the bytes of the file, padded to 512; two headers of zeros
 * end it. A header of type 'L' (GNU) or 'x' (pax) has the name, and 'x' perhaps the size, of the file of the next
 * header. */
#include "engine/data/image_tar.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, PAX_BYTES = 64 << 10 };

/* The fields of a header: their places and lengths. */
enum {
    NAME_AT = 0,
    NAME_N = 100,
    SIZE_AT = 124,
    SIZE_N = 12,
    SUM_AT = 148,
    SUM_N = 8,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_N = 155
};

struct reading {
    const struct data_file *f;
    int64_t at; /* of the header */
    uint8_t header[BLOCK];
    /* What the headers before say about the next file. */
    char name[TAR_NAME_BYTES];
    int64_t bytes; /* -1: nothing */
};

static status_t refuse(const struct reading *r, const char *why, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "the tar archive '%s': %s at byte %lld", r->f->path, why, (long long)r->at);
}

/* Octal digits between spaces and zeros; or 0x80 and a number in big endian. -1: neither. */
static int64_t number_of(const uint8_t *p, int n) {
    int64_t value = 0;
    int i = 0;
    if (p[0] & 0x80) {
        if (p[0] != 0x80)
            return -1;
        for (i = 1; i < n; i++) {
            if (value >> 54)
                return -1;
            value = value << 8 | p[i];
        }
        return value;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        value = value << 3 | (p[i] - '0');
    return i == n || p[i] == ' ' || p[i] == '\0' ? value : -1;
}

static bool is_zero(const uint8_t *p) {
    for (int i = 0; i < BLOCK; i++)
        if (p[i])
            return false;
    return true;
}

static bool sum_is_right(const uint8_t *p) {
    int64_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + SUM_N ? ' ' : p[i];
    return number_of(p + SUM_AT, SUM_N) == sum;
}

static status_t name_of(struct reading *r, struct err *e) {
    const char *p = (const char *)r->header;
    if (*r->name)
        return ST_OK;
    const bool has_prefix = memcmp(p + MAGIC_AT, "ustar\0", 6) == 0 && p[PREFIX_AT];
    snprintf(r->name, sizeof r->name, "%.*s%s%.*s", has_prefix ? PREFIX_N : 0, p + PREFIX_AT, has_prefix ? "/" : "",
             NAME_N, p + NAME_AT);
    return *r->name ? ST_OK : refuse(r, "a file without a name", e);
}

/* ---- the headers before a file's own ---- */

static status_t take_long_name(struct reading *r, int64_t offset, int64_t bytes, struct err *e) {
    if (bytes < 1 || bytes >= TAR_NAME_BYTES)
        return refuse(r, "a name that is empty or too long", e);
    TRY(data_file_read(r->f, offset, r->name, (size_t)bytes, e));
    r->name[bytes] = '\0';
    return ST_OK;
}

/* One record of pax: "KEY=VALUE". */
static status_t take_record(struct reading *r, const char *text, size_t n, struct err *e) {
    const char *equals = memchr(text, '=', n);
    if (!equals)
        return refuse(r, "a pax header that cannot be read", e);
    const size_t key = (size_t)(equals - text), value = n - key - 1;
    if (key == 4 && memcmp(text, "path", 4) == 0) {
        if (value < 1 || value >= sizeof r->name || memchr(equals + 1, '\0', value))
            return refuse(r, "a name that is empty or too long", e);
        memcpy(r->name, equals + 1, value);
        r->name[value] = '\0';
    } else if (key == 4 && memcmp(text, "size", 4) == 0) {
        r->bytes = 0;
        for (size_t i = 0; i < value; i++) {
            if (!isdigit((unsigned char)equals[1 + i]) || r->bytes > INT64_MAX / 10 - 1)
                return refuse(r, "a size that cannot be read", e);
            r->bytes = r->bytes * 10 + (equals[1 + i] - '0');
        }
    } else if (key > 10 && memcmp(text, "GNU.sparse", 10) == 0) {
        return refuse(r, "a sparse file", e);
    }
    return ST_OK;
}

/* Records "LENGTH KEY=VALUE\n"; the length counts all of its record. */
static status_t take_records(struct reading *r, const char *text, size_t n, struct err *e) {
    for (size_t at = 0; at < n;) {
        size_t length = 0, digits = 0;
        while (at + digits < n && digits < 6 && isdigit((unsigned char)text[at + digits]))
            length = length * 10 + (size_t)(text[at + digits++] - '0');
        if (digits == 0 || length < digits + 3 || length > n - at || text[at + digits] != ' ' ||
            text[at + length - 1] != '\n')
            return refuse(r, "a pax header that cannot be read", e);
        TRY(take_record(r, text + at + digits + 1, length - digits - 2, e));
        at += length;
    }
    return ST_OK;
}

static status_t take_pax(struct reading *r, int64_t offset, int64_t bytes, struct err *e) {
    if (bytes > PAX_BYTES)
        return refuse(r, "a pax header that is too long", e);
    char *text = malloc((size_t)bytes + 1);
    if (!text)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %lld bytes", (long long)bytes);
    status_t st = data_file_read(r->f, offset, text, (size_t)bytes, e);
    if (st == ST_OK)
        st = take_records(r, text, (size_t)bytes, e);
    free(text);
    return st;
}

/* ---- files ---- */

static void forget(struct reading *r) {
    *r->name = '\0';
    r->bytes = -1;
}

static status_t take_file(struct reading *r, int64_t offset, int64_t bytes, tar_found_fn *found, void *ctx,
                          struct err *e) {
    switch (r->header[TYPE_AT]) {
    case 'L': return take_long_name(r, offset, bytes, e);
    case 'x': return take_pax(r, offset, bytes, e);
    case 'S': return refuse(r, "a sparse file", e);
    case 'K':
    case 'g': return ST_OK;
    case '0':
    case '7':
    case '\0': break;
    default: forget(r); return ST_OK;
    }
    TRY(name_of(r, e));
    const size_t n = strlen(r->name);
    if (r->name[n - 1] != '/') /* else a folder, of tar before 1988 */
        TRY(found(ctx, r->name, offset, bytes, e));
    forget(r);
    return ST_OK;
}

/* The bytes of the file of this header; links and folders have none. */
static status_t bytes_of(const struct reading *r, int64_t *ret, struct err *e) {
    const uint8_t type = r->header[TYPE_AT];
    const bool is_data = type == '0' || type == '7' || type == '\0';
    *ret = number_of(r->header + SIZE_AT, SIZE_N);
    if (*ret < 0)
        return refuse(r, "a size that cannot be read", e);
    if (is_data && r->bytes >= 0)
        *ret = r->bytes;
    if (type >= '1' && type <= '6')
        *ret = 0;
    if (*ret > r->f->bytes - r->at - BLOCK)
        return refuse(r, "a file that is longer than the archive: it is incomplete,", e);
    return ST_OK;
}

status_t tar_list(const struct data_file *f, tar_found_fn *found, void *ctx, struct err *e) {
    struct reading r = { .f = f, .bytes = -1 };
    while (f->bytes - r.at >= BLOCK) {
        int64_t bytes;
        TRY(data_file_read(f, r.at, r.header, BLOCK, e));
        if (is_zero(r.header))
            return ST_OK;
        if (!sum_is_right(r.header))
            return refuse(&r, "no header: it is not a tar archive, or is compressed or damaged,", e);
        TRY(bytes_of(&r, &bytes, e));
        TRY(take_file(&r, r.at + BLOCK, bytes, found, ctx, e));
        const int64_t blocks = bytes / BLOCK + (bytes % BLOCK != 0);
        if (blocks > (f->bytes - r.at) / BLOCK - 1)
            break;
        r.at += BLOCK + blocks * BLOCK;
    }
    return refuse(&r, "no mark of its end: it is incomplete", e);
}
