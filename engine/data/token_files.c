/* Several token files as one sequence of tokens.
 *
 * token_files_open reads the header of each file, if it has one, and checks that the number of tokens agrees with the
 * length of the file. All tokens of all files are numbered in one sequence, and `first` of a file is the number of its
 * first token. A read finds its first file by a binary search over `first`, and continues in the next file at the end
 * of a file. It reads a few KiB at a time, widens the tokens to 32 bits and compares each token with the vocabulary. */
#include "engine/data/token_files.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/data/data_file.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are stored little endian");

struct token_file {
    struct data_file file;
    int64_t begin; /* byte of its first token */
    int token_bytes;
    int64_t first, tokens; /* first: number of its first token in the sequence */
};

struct token_files {
    struct token_file *items;
    int n;
    int64_t tokens;
    uint32_t vocabulary;
};

struct token_files *token_files_close(struct token_files *s) {
    if (!s)
        return NULL;
    for (int i = 0; i < s->n; i++)
        data_file_close(&s->items[i].file);
    free(s->items);
    free(s);
    return NULL;
}

int64_t token_files_tokens(const struct token_files *s) { return s->tokens; }

static status_t read_header(struct token_file *s, struct err *e) {
    int32_t header[3];
    const char *path = s->file.path;
    if (s->file.bytes < (int64_t)sizeof header)
        return ST_OK;
    TRY(data_file_read(&s->file, 0, header, sizeof header, e));
    if (header[0] != TOKEN_FILE_MAGIC_2 && header[0] != TOKEN_FILE_MAGIC_4)
        return ST_OK;
    bool narrow = header[0] == TOKEN_FILE_MAGIC_2;
    if (header[1] != (narrow ? TOKEN_FILE_VERSION_2 : TOKEN_FILE_VERSION_4))
        return err_set(e, ST_INVALID_ARGUMENT, "the token file '%s' has the unknown version %d at byte 4", path,
                       header[1]);
    s->token_bytes = narrow ? 2 : 4;
    s->begin = TOKEN_FILE_HEADER_BYTES;
    int64_t want = s->begin + (int64_t)header[2] * s->token_bytes;
    if (header[2] < 0 || s->file.bytes != want)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "the token file '%s' has a count of %d tokens at byte 8, which need %lld bytes, but has %lld bytes", path,
            header[2], (long long)want, (long long)s->file.bytes);
    return ST_OK;
}

/* A file without a header whose first bytes are UTF-8 without control characters is text, given by mistake. */
static status_t refuse_text(const struct token_file *s, struct err *e) {
    enum { MIN_BYTES = 64, MAX_BYTES = 4096 };
    char head[MAX_BYTES];
    size_t n = s->file.bytes < MAX_BYTES ? (size_t)s->file.bytes : MAX_BYTES;
    if (s->begin > 0 || n < MIN_BYTES)
        return ST_OK;
    TRY(data_file_read(&s->file, 0, head, n, e));
    n -= utf8_open(head, n);
    for (size_t at = 0, length; at < n; at += length) {
        const uint32_t c = utf8_next(head + at, n - at, &length);
        if (length == 0 || (c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f)
            return ST_OK;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "the token file '%s' is text and not tokens: give it as data.text, or make a token file of it "
                   "with 'trainyard-train tokenize'",
                   s->file.path);
}

static status_t open_token_file(struct token_files *all, struct token_file *s, const struct token_files_config *config,
                                int i, struct err *e) {
    const char *path = config->files[i];
    TRY(data_file_open(&s->file, "token file", config->roots, path, e));
    s->token_bytes = config->token_bytes;
    TRY(read_header(s, e));
    TRY(refuse_text(s, e));
    int64_t bytes = s->file.bytes - s->begin;
    if (bytes % s->token_bytes)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the token file '%s' has %lld bytes: its last token of %d bytes is incomplete", path,
                       (long long)s->file.bytes, s->token_bytes);
    s->first = all->tokens;
    s->tokens = bytes / s->token_bytes;
    all->tokens += s->tokens;
    return ST_OK;
}

status_t token_files_open(const struct token_files_config *config, struct token_files **ret, struct err *e) {
    assert(config->vocabulary >= 1);
    if (config->token_bytes != 2 && config->token_bytes != 4)
        return err_set(e, ST_INVALID_ARGUMENT, "tokens of %d bytes: token files have 2 or 4", config->token_bytes);
    CLEANUP(token_files_closep) struct token_files *s = alloc_zeroed(1, sizeof *s);
    s->items = alloc_zeroed((size_t)config->n_files + 1, sizeof *s->items);
    s->vocabulary = (uint32_t)config->vocabulary;
    for (int i = 0; i < config->n_files; i++) {
        s->items[i].file.fd = -1;
        s->n++;
        TRY(open_token_file(s, &s->items[i], config, i, e));
    }
    *ret = take_ptr(&s);
    return ST_OK;
}

static status_t bad_token(const struct token_files *all, const struct token_file *s, int64_t at, uint32_t token,
                          struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT,
                   "the token file '%s' has the token %u at byte %lld; the vocabulary has %u tokens", s->file.path,
                   token, (long long)at, all->vocabulary);
}

/* k tokens from number `from` of this file. */
static status_t read_token_file(const struct token_files *all, const struct token_file *s, int64_t from, int k,
                                int32_t *tokens, struct err *e) {
    union {
        uint16_t narrow[2048];
        uint32_t wide[1024];
    } buffer;
    const int max = (int)sizeof buffer / s->token_bytes;
    while (k > 0) {
        int now = k < max ? k : max;
        int64_t at = s->begin + from * s->token_bytes;
        TRY(data_file_read(&s->file, at, &buffer, (size_t)now * (size_t)s->token_bytes, e));
        for (int i = 0; i < now; i++) {
            uint32_t token = s->token_bytes == 2 ? buffer.narrow[i] : buffer.wide[i];
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

/* The last file that begins at or before this token: this file has the token, because empty files before it begin at
 * the same token. */
static const struct token_file *file_of(const struct token_files *s, int64_t token) {
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

status_t token_files_read(const struct token_files *s, int64_t start, int n, int32_t *tokens, struct err *e) {
    assert(start >= 0 && n >= 0 && start + n <= s->tokens);
    while (n > 0) {
        const struct token_file *file = file_of(s, start);
        int64_t left = file->first + file->tokens - start;
        int k = left < n ? (int)left : n;
        TRY(read_token_file(s, file, start - file->first, k, tokens, e));
        tokens += k;
        start += k;
        n -= k;
    }
    return ST_OK;
}

status_t token_files_digest(const struct token_files *s, struct sha256 *sha256, struct err *e) {
    enum { WHOLE = 64 << 20, EVERY = 16 << 20, READ_BYTES = 64 << 10 };
    CLEANUP(freep) char *buffer = alloc_zeroed(READ_BYTES, 1);
    for (int i = 0; i < s->n; i++) {
        const struct data_file *f = &s->items[i].file;
        sha256_update(sha256, &f->bytes, sizeof f->bytes);
        for (int64_t at = 0; at < f->bytes; at += f->bytes <= WHOLE ? READ_BYTES : EVERY) {
            size_t n = f->bytes - at < READ_BYTES ? (size_t)(f->bytes - at) : READ_BYTES;
            TRY(data_file_read(f, at, buffer, n, e));
            sha256_update(sha256, buffer, n);
        }
    }
    return ST_OK;
}
