#include "executor/engine/data/shards.h"

#include "executor/engine/data/data_file.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are stored little endian");

struct shard {
    struct data_file file;
    int64_t begin; /* byte of its first token */
    int token_bytes;
    int64_t first, tokens; /* first: its first token's number among all */
};

struct shards {
    struct shard *items;
    int n;
    int64_t tokens;
    uint32_t vocabulary;
};

struct shards *shards_close(struct shards *s) {
    if (!s)
        return NULL;
    for (int i = 0; i < s->n; i++)
        data_file_close(&s->items[i].file);
    free(s->items);
    free(s);
    return NULL;
}

int64_t shards_tokens(const struct shards *s) { return s->tokens; }

static status_t read_header(struct shard *s, struct err *e) {
    int32_t header[3];
    const char *path = s->file.path;
    if (s->file.bytes < (int64_t)sizeof header)
        return ST_OK;
    TRY(data_file_read(&s->file, 0, header, sizeof header, e));
    if (header[0] != SHARDS_MAGIC_2 && header[0] != SHARDS_MAGIC_4)
        return ST_OK;
    bool narrow = header[0] == SHARDS_MAGIC_2;
    if (header[1] != (narrow ? SHARDS_VERSION_2 : SHARDS_VERSION_4))
        return err_set(e, ST_INVALID_ARGUMENT, "the token file '%s' has the unknown version %d at byte 4", path,
                       header[1]);
    s->token_bytes = narrow ? 2 : 4;
    s->begin = SHARDS_HEADER_BYTES;
    int64_t want = s->begin + (int64_t)header[2] * s->token_bytes;
    if (header[2] < 0 || s->file.bytes != want)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "the token file '%s' says at byte 8 that it holds %d tokens, which need %lld bytes, and has %lld", path,
            header[2], (long long)want, (long long)s->file.bytes);
    return ST_OK;
}

static status_t open_shard(struct shards *all, struct shard *s, const char *path, int token_bytes, struct err *e) {
    TRY(data_file_open(&s->file, "token file", path, e));
    s->token_bytes = token_bytes;
    TRY(read_header(s, e));
    int64_t bytes = s->file.bytes - s->begin;
    if (bytes % s->token_bytes)
        return err_set(e, ST_INVALID_ARGUMENT, "the token file '%s' has %lld bytes: its last token of %d bytes is cut",
                       path, (long long)s->file.bytes, s->token_bytes);
    s->first = all->tokens;
    s->tokens = bytes / s->token_bytes;
    all->tokens += s->tokens;
    return ST_OK;
}

status_t shards_open(const struct shards_config *config, struct shards **ret, struct err *e) {
    assert(config->vocabulary >= 1);
    if (config->token_bytes != 2 && config->token_bytes != 4)
        return err_set(e, ST_INVALID_ARGUMENT, "tokens of %d bytes: token files have 2 or 4", config->token_bytes);
    CLEANUP(shards_closep) struct shards *s = calloc(1, sizeof *s);
    if (!s || !(s->items = calloc((size_t)config->n_files + 1, sizeof *s->items)))
        return err_errno(e, "allocate %d token files", config->n_files);
    s->vocabulary = (uint32_t)config->vocabulary;
    for (int i = 0; i < config->n_files; i++) {
        s->items[i].file.fd = -1;
        s->n++;
        TRY(open_shard(s, &s->items[i], config->files[i], config->token_bytes, e));
    }
    *ret = take_ptr(&s);
    return ST_OK;
}

static status_t bad_token(const struct shards *all, const struct shard *s, int64_t at, uint32_t token, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT,
                   "the token file '%s' has the token %u at byte %lld; the vocabulary has %u tokens", s->file.path,
                   token, (long long)at, all->vocabulary);
}

/* k tokens from number `from` of one file. */
static status_t read_shard(const struct shards *all, const struct shard *s, int64_t from, int k, int32_t *tokens,
                           struct err *e) {
    union {
        uint16_t narrow[2048];
        uint32_t wide[1024];
    } part;
    const int most = (int)sizeof part / s->token_bytes;
    while (k > 0) {
        int now = k < most ? k : most;
        int64_t at = s->begin + from * s->token_bytes;
        TRY(data_file_read(&s->file, at, &part, (size_t)now * (size_t)s->token_bytes, e));
        for (int i = 0; i < now; i++) {
            uint32_t token = s->token_bytes == 2 ? part.narrow[i] : part.wide[i];
            if (token >= all->vocabulary)
                return bad_token(all, s, at + (int64_t)i * s->token_bytes, token, e);
            tokens[i] = (int32_t)token;
        }
        tokens += now;
        from += now;
        k -= now;
    }
    return ST_OK;
}

/* The file that holds this token: the last that begins at or before it and is not empty. */
static const struct shard *shard_of(const struct shards *s, int64_t token) {
    int low = 0, high = s->n;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (s->items[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return &s->items[low];
}

status_t shards_read(const struct shards *s, int64_t start, int n, int32_t *tokens, struct err *e) {
    assert(start >= 0 && n >= 0 && start + n <= s->tokens);
    while (n > 0) {
        const struct shard *shard = shard_of(s, start);
        int64_t left = shard->first + shard->tokens - start;
        int k = left < n ? (int)left : n;
        TRY(read_shard(s, shard, start - shard->first, k, tokens, e));
        tokens += k;
        start += k;
        n -= k;
    }
    return ST_OK;
}

status_t shards_digest(const struct shards *s, struct sha256 *sha256, struct err *e) {
    enum { WHOLE = 64 << 20, EVERY = 16 << 20, PART = 64 << 10 };
    CLEANUP(freep) char *part = malloc(PART);
    if (!part)
        return err_errno(e, "allocate %d bytes", PART);
    for (int i = 0; i < s->n; i++) {
        const struct data_file *f = &s->items[i].file;
        sha256_update(sha256, &f->bytes, sizeof f->bytes);
        for (int64_t at = 0; at < f->bytes; at += f->bytes <= WHOLE ? PART : EVERY) {
            size_t n = f->bytes - at < PART ? (size_t)(f->bytes - at) : PART;
            TRY(data_file_read(f, at, part, n, e));
            sha256_update(sha256, part, n);
        }
    }
    return ST_OK;
}
