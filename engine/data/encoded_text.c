#include "engine/data/encoded_text.h"

#include "base/alloc.h"
#include "base/file.h"
#include "engine/data/data_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { VERSION = 1, READ_BYTES = 1 << 20 };

static const char MAGIC[8] = "TYTOKENS";

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are stored little endian");

struct header {
    char magic[sizeof MAGIC];
    uint32_t version, token_bytes;
    int64_t tokens, train_tokens;
    uint8_t key[SHA256_BYTES];
    uint8_t sha256[SHA256_BYTES];
    uint8_t zero[ENCODED_TEXT_HEADER_BYTES - 2 * SHA256_BYTES - 32];
};
static_assert(sizeof(struct header) == ENCODED_TEXT_HEADER_BYTES, "the header has no padding");

/* s: of the tokens. */
static void digest(struct sha256 *s, const struct header *h, uint8_t ret[SHA256_BYTES]) {
    sha256_update(s, h, offsetof(struct header, sha256));
    sha256_final(s, ret);
}

/* ---- reading ---- */

struct encoded_text {
    struct data_file file;
    struct encoded_facts facts;
};

struct encoded_text *encoded_text_close(struct encoded_text *t) {
    if (!t)
        return NULL;
    data_file_close(&t->file);
    free(t);
    return NULL;
}

const struct encoded_facts *encoded_text_facts(const struct encoded_text *t) { return &t->facts; }

static status_t damaged(const struct data_file *f, const char *what, struct err *e) {
    return err_set(e, ST_DATA_LOSS, "the %s '%s' is damaged: %s", f->what, f->path, what);
}

static status_t check_header(const struct data_file *f, const struct header *h, const uint8_t key[SHA256_BYTES],
                             struct err *e) {
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0 || h->version != VERSION ||
        (h->token_bytes != 2 && h->token_bytes != 4))
        return damaged(f, "its header is not one of this release", e);
    if (memcmp(h->key, key, SHA256_BYTES) != 0)
        return damaged(f, "it has the tokens of another text", e);
    if (h->tokens < 0 || h->train_tokens < 0 || h->train_tokens > h->tokens ||
        h->tokens != (f->bytes - ENCODED_TEXT_HEADER_BYTES) / h->token_bytes ||
        f->bytes != ENCODED_TEXT_HEADER_BYTES + h->tokens * h->token_bytes)
        return damaged(f, "it does not have the length that its header says", e);
    return ST_OK;
}

static status_t check_digest(const struct data_file *f, const struct header *h, void (*progress)(void *ctx), void *ctx,
                             struct err *e) {
    CLEANUP(freep) char *buffer = alloc_zeroed(READ_BYTES, 1);
    struct sha256 s;
    uint8_t found[SHA256_BYTES];
    sha256_begin(&s);
    for (int64_t at = ENCODED_TEXT_HEADER_BYTES; at < f->bytes;) {
        const size_t n = f->bytes - at < READ_BYTES ? (size_t)(f->bytes - at) : READ_BYTES;
        TRY(data_file_read(f, at, buffer, n, e));
        sha256_update(&s, buffer, n);
        at += (int64_t)n;
        if (progress)
            progress(ctx);
    }
    digest(&s, h, found);
    return memcmp(found, h->sha256, SHA256_BYTES) == 0 ? ST_OK : damaged(f, "its bytes do not have its digest", e);
}

static status_t check(struct encoded_text *t, const uint8_t key[SHA256_BYTES], void (*progress)(void *ctx), void *ctx,
                      struct err *e) {
    struct header h;
    if (t->file.bytes < (int64_t)sizeof h)
        return damaged(&t->file, "it is shorter than a header", e);
    TRY(data_file_read(&t->file, 0, &h, sizeof h, e));
    TRY(check_header(&t->file, &h, key, e));
    TRY(check_digest(&t->file, &h, progress, ctx, e));
    t->facts = (struct encoded_facts){ .token_bytes = (int)h.token_bytes,
                                       .tokens = h.tokens,
                                       .train_tokens = h.train_tokens };
    memcpy(t->facts.key, key, SHA256_BYTES);
    return ST_OK;
}

status_t encoded_text_open(const char *path, const uint8_t key[SHA256_BYTES], void (*progress)(void *ctx), void *ctx,
                           struct encoded_text **ret, struct err *e) {
    CLEANUP(encoded_text_closep) struct encoded_text *t = alloc_zeroed(1, sizeof *t);
    const status_t st = data_file_open(&t->file, "file of tokens", NULL, path, e);
    *ret = NULL;
    if (st == ST_NOT_FOUND && access(path, F_OK) < 0 && errno == ENOENT)
        return ST_OK;
    TRY(st);
    flock(t->file.fd, LOCK_SH | LOCK_NB); /* who makes space sees it in use; without the lock it is only gone sooner */
    TRY(check(t, key, progress, ctx, e));
    *ret = take_ptr(&t);
    return ST_OK;
}

status_t encoded_text_read(const struct encoded_text *t, int64_t start, int n, int32_t *tokens, struct err *e) {
    uint16_t narrow[4096];
    assert(start >= 0 && n >= 0 && start + n <= t->facts.tokens);
    int64_t at = ENCODED_TEXT_HEADER_BYTES + start * t->facts.token_bytes;
    if (t->facts.token_bytes == 4)
        return data_file_read(&t->file, at, tokens, (size_t)n * sizeof *tokens, e);
    while (n > 0) {
        const int now = n < (int)(sizeof narrow / sizeof *narrow) ? n : (int)(sizeof narrow / sizeof *narrow);
        TRY(data_file_read(&t->file, at, narrow, (size_t)now * sizeof *narrow, e));
        for (int i = 0; i < now; i++)
            tokens[i] = narrow[i];
        tokens += now;
        at += now * (int64_t)sizeof *narrow;
        n -= now;
    }
    return ST_OK;
}

/* ---- writing ---- */

status_t encoded_writer_begin(struct encoded_writer *w, int fd, int token_bytes, int64_t max_bytes, struct err *e) {
    const struct header none = { .version = 0 };
    *w = (struct encoded_writer){ .fd = fd, .token_bytes = token_bytes, .max_bytes = max_bytes };
    sha256_begin(&w->sha256);
    if (lseek(fd, 0, SEEK_SET) != 0)
        return err_errno(e, "write a file of tokens");
    return fd_write_all(fd, &none, sizeof none, e);
}

status_t encoded_writer_put(struct encoded_writer *w, const int32_t *tokens, size_t n, struct err *e) {
    uint16_t narrow[4096];
    if (ENCODED_TEXT_HEADER_BYTES + (w->tokens + (int64_t)n) * w->token_bytes > w->max_bytes)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the tokens have more than %lld bytes", (long long)w->max_bytes);
    w->tokens += (int64_t)n;
    while (n > 0) {
        const size_t max = sizeof narrow / sizeof *narrow, now = n < max || w->token_bytes == 4 ? n : max;
        for (size_t i = 0; w->token_bytes == 2 && i < now; i++)
            narrow[i] = (uint16_t)tokens[i];
        const void *bytes = w->token_bytes == 2 ? (const void *)narrow : tokens;
        sha256_update(&w->sha256, bytes, now * (size_t)w->token_bytes);
        TRY(fd_write_all(w->fd, bytes, now * (size_t)w->token_bytes, e));
        tokens += now;
        n -= now;
    }
    return ST_OK;
}

status_t encoded_writer_end(struct encoded_writer *w, const struct encoded_facts *facts, struct err *e) {
    struct header h = { .version = VERSION,
                        .token_bytes = (uint32_t)w->token_bytes,
                        .tokens = w->tokens,
                        .train_tokens = facts->train_tokens };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.key, facts->key, sizeof h.key);
    digest(&w->sha256, &h, h.sha256);
    if (ftruncate(w->fd, ENCODED_TEXT_HEADER_BYTES + w->tokens * w->token_bytes) < 0 || lseek(w->fd, 0, SEEK_SET) != 0)
        return err_errno(e, "write a file of tokens");
    return fd_write_all(w->fd, &h, sizeof h, e);
}
