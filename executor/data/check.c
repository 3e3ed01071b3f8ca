#include "executor/data/check.h"

#include "base/alloc.h"
#include "base/crc32c.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} kinds[] = {
    [CHECK_NONE] = { "no checksum", 0 },
    [CHECK_CRC32] = { "its CRC-32", 4 },
    [CHECK_CRC32C] = { "its CRC-32C", 4 },
    [CHECK_MD5] = { "its MD5 (the ETag)", 16 },
    [CHECK_SHA1] = { "its SHA-1", 20 },
    [CHECK_GIT] = { "its id in git", 20 },
    [CHECK_SHA256] = { "its SHA-256", SHA256_BYTES },
};

const char *check_name(enum check_kind kind) { return kinds[kind].name; }

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool hex_read(const char *text, size_t bytes, uint8_t *ret) {
    if (strlen(text) != 2 * bytes)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool base64_read(const char *text, size_t bytes, uint8_t *ret) {
    uint8_t decoded[SHA256_BYTES + 4];
    const size_t n = strlen(text), length = (bytes + 2) / 3 * 4;
    if (n != length || EVP_DecodeBlock(decoded, (const unsigned char *)text, (int)n) != (int)((bytes + 2) / 3 * 3))
        return false;
    if (strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") != n - (3 - bytes % 3) % 3)
        return false;
    memcpy(ret, decoded, bytes);
    return true;
}

void check_add(struct check *check, enum check_kind kind, const char *text, bool hexadecimal) {
    struct check read = { .kind = kind };
    if (kind <= check->kind)
        return;
    if (hexadecimal ? hex_read(text, kinds[kind].bytes, read.value) : base64_read(text, kinds[kind].bytes, read.value))
        *check = read;
}

struct digest {
    enum check_kind kind;
    struct sha256 sha256;
    EVP_MD_CTX *other; /* MD5, SHA-1 */
    uint32_t crc;
};

struct digest *digest_close(struct digest *d) {
    if (d)
        EVP_MD_CTX_free(d->other);
    free(d);
    return NULL;
}

status_t digest_open(enum check_kind kind, int64_t bytes, struct digest **ret, struct err *e) {
    CLEANUP(digest_closep) struct digest *d = alloc_zeroed(1, sizeof *d);
    d->kind = kind;
    sha256_begin(&d->sha256);
    if (kind == CHECK_MD5 || kind == CHECK_SHA1 || kind == CHECK_GIT) {
        d->other = EVP_MD_CTX_new();
        if (!d->other || EVP_DigestInit_ex(d->other, kind == CHECK_MD5 ? EVP_md5() : EVP_sha1(), NULL) != 1)
            return err_set(e, ST_INTERNAL, "libcrypto has no MD5 or SHA-1, which the store uses");
    }
    if (kind == CHECK_GIT) { /* as git names a file's bytes */
        char head[32];
        const int n = snprintf(head, sizeof head, "blob %lld", (long long)bytes);
        EVP_DigestUpdate(d->other, head, (size_t)n + 1);
    }
    *ret = take_ptr(&d);
    return ST_OK;
}

void digest_update(struct digest *d, const void *data, size_t n) {
    sha256_update(&d->sha256, data, n);
    if (d->other)
        EVP_DigestUpdate(d->other, data, n);
    if (d->kind == CHECK_CRC32C)
        d->crc = crc32c(d->crc, data, n);
    if (d->kind == CHECK_CRC32)
        d->crc = crc32_gzip_refl(d->crc, data, n);
}

void digest_final(struct digest *d, const struct check *check, char ret[SHA256_HEX], bool *ret_good) {
    uint8_t sha256[SHA256_BYTES], value[EVP_MAX_MD_SIZE] = { 0 };
    sha256_final(&d->sha256, sha256);
    sha256_hex(sha256, ret);
    if (d->kind == CHECK_SHA256)
        memcpy(value, sha256, sizeof sha256);
    else if (d->other)
        EVP_DigestFinal_ex(d->other, value, NULL);
    else
        for (int i = 0; i < 4; i++)
            value[i] = (uint8_t)(d->crc >> (24 - 8 * i));
    *ret_good = check->kind == CHECK_NONE ||
                (check->kind == d->kind && memcmp(value, check->value, kinds[d->kind].bytes) == 0);
}
