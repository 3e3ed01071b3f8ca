/* A text is read once or twice when it is opened:
 *
 *   scan      all bytes: the SHA-256; under the char tokenizer also a UTF-8 check and the set of characters, which
 *             becomes the vocabulary. A NUL byte is refused: the file is not text
 *   fill      char and byte: every token into memory, 1, 2 or 4 bytes each, by the size of the vocabulary. Bytes of
 *             more than CORPUS_OWNED_BYTES stay in their files
 *   byte_pairs_make  bpe: from the token cache, or made on several threads (byte_pairs.h)
 *
 * Files that are not plain text are copied first (text_file.h). Reading takes tokens from memory, or bytes from the
 * files by pread(2). */
#include "engine/data/corpus.h"

#include "base/alloc.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "engine/data/byte_pairs.h"
#include "engine/data/data_file.h"
#include "engine/data/encoded_text.h"
#include "engine/data/text_file.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 4 << 20, UNICODE_END = 0x110000 };

struct corpus {
    struct text_part *files;
    int n_files;
    int64_t train_bytes; /* before the validation files; all if there are none */
    int64_t bytes, tokens, train_tokens;
    struct tokenizer *own; /* NULL when the tokenizer is borrowed */
    const struct tokenizer *tokenizer;
    int token_bytes;              /* 1, 2 or 4 in `owned`; 0 = tokens are bytes that stay in the files */
    void *owned;                  /* (tokens) */
    struct encoded_text *encoded; /* tokens that the token cache has; NULL: none */
    char sha256[SHA256_HEX];
};

const struct tokenizer *corpus_tokenizer(const struct corpus *c) { return c->tokenizer; }
const char *corpus_sha256(const struct corpus *c) { return c->sha256; }
int64_t corpus_tokens(const struct corpus *c, enum corpus_split split) {
    return split == CORPUS_TRAIN ? c->train_tokens : c->tokens - c->train_tokens;
}

size_t corpus_bytes(const struct corpus *c) { return c->owned ? (size_t)c->tokens * (size_t)c->token_bytes : 0; }

static status_t open_list(struct corpus *c, const struct corpus_config *config, const struct text_format *format,
                          const char *const *files, int n, struct err *e) {
    for (int i = 0; i < n; i++) {
        struct text_part *f = &c->files[c->n_files++];
        TRY(text_file_open(&f->file, format, config->roots, files[i], e));
        f->first = c->bytes;
        c->bytes += f->file.bytes;
    }
    return ST_OK;
}

static status_t open_files(struct corpus *c, const struct corpus_config *config, enum tokenizer_kind kind,
                           struct err *e) {
    struct text_format format = config->format ? *config->format : (struct text_format){ .form = TEXT_PLAIN };
    format.keep_compressed = kind == TOKENIZER_BYTE;
    format.progress = config->progress;
    format.ctx = config->ctx;
    c->files = alloc_zeroed((size_t)(config->n_files + config->n_validation), sizeof *c->files);
    TRY(open_list(c, config, &format, config->files, config->n_files, e));
    c->train_bytes = c->bytes;
    return open_list(c, config, &format, config->validation, config->n_validation, e);
}

static void close_files(struct corpus *c) {
    for (int i = 0; i < c->n_files; i++)
        data_file_close(&c->files[i].file);
    free(c->files);
    c->files = NULL;
    c->n_files = 0;
}

struct corpus *corpus_close(struct corpus *c) {
    if (!c)
        return NULL;
    close_files(c);
    tokenizer_free(c->own);
    encoded_text_close(c->encoded);
    free(c->owned);
    free(c);
    return NULL;
}

/* Called with consecutive segments of the text; `first` is the offset in the file. */
typedef status_t visit_fn(void *ctx, const struct data_file *s, int64_t first, const char *p, size_t n, struct err *e);

/* Visits all bytes in order; with `characters`, no segment ends within a UTF-8 sequence. */
static status_t visit(const struct corpus *c, const struct corpus_config *config, bool characters, visit_fn *fn,
                      void *ctx, struct err *e) {
    const size_t capacity = c->bytes < READ_BYTES ? (size_t)c->bytes : READ_BYTES;
    CLEANUP(freep) char *segment = malloc(capacity);
    if (!segment)
        return err_errno(e, "allocate %zu bytes", capacity);
    for (int i = 0; i < c->n_files; i++) {
        const struct data_file *s = &c->files[i].file;
        size_t carried = 0; /* bytes of an incomplete sequence at the end of the last segment */
        for (int64_t at = 0; at < s->bytes;) {
            size_t n = capacity - carried;
            if ((int64_t)n > s->bytes - at)
                n = (size_t)(s->bytes - at);
            TRY(data_file_read(s, at, segment + carried, n, e));
            size_t have = carried + n, whole = have;
            bool last = at + (int64_t)n == s->bytes;
            if (characters && !last)
                whole -= utf8_open(segment, have);
            TRY(fn(ctx, s, at - (int64_t)carried, segment, whole, e));
            carried = have - whole;
            memmove(segment, segment + whole, carried);
            at += (int64_t)n;
            if (config->progress)
                config->progress(config->ctx);
        }
    }
    return ST_OK;
}

struct scan {
    struct sha256 sha256;
    bool characters;
    bool bytes;                      /* any byte is allowed */
    uint64_t seen[UNICODE_END / 64]; /* one bit a code point */
    int64_t n;                       /* code points */
    int64_t bytes_read;              /* so far */
    int64_t train_bytes, train_n;    /* before the validation files: bytes, code points */
};

static status_t bad_utf8(const struct data_file *s, int64_t at, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT,
                   "the data file '%s' is not valid UTF-8 at byte %lld; the tokenizer byte reads text of any encoding",
                   s->path, (long long)at);
}

/* utf8_next with a fast path for ASCII. */
static inline uint32_t next_character(const char *p, size_t n, size_t *length) {
    if ((uint8_t)*p >= 0x80)
        return utf8_next(p, n, length);
    *length = 1;
    return (uint8_t)*p;
}

static status_t scan_segment(void *ctx, const struct data_file *s, int64_t first, const char *p, size_t n,
                             struct err *e) {
    struct scan *y = ctx;
    sha256_update(&y->sha256, p, n);
    y->bytes_read += (int64_t)n;
    const char *nul = y->bytes ? NULL : memchr(p, '\0', n);
    if (nul)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "the data file '%s' has a NUL at byte %lld, so it is not text; token files are data.tokens, images "
            "data.images or data.idx",
            s->path, (long long)(first + (nul - p)));
    if (!y->characters)
        return ST_OK;
    for (size_t at = 0; at < n; y->n++) {
        size_t length;
        uint32_t unit = next_character(p + at, n - at, &length);
        if (length == 0)
            return bad_utf8(s, first + (int64_t)at, e);
        y->seen[unit / 64] |= (uint64_t)1 << unit % 64;
        at += length;
    }
    if (y->bytes_read <= y->train_bytes) /* no segment has bytes of two files */
        y->train_n = y->n;
    return ST_OK;
}

static status_t make_tokenizer(struct corpus *c, const struct corpus_config *config, const struct scan *y,
                               struct err *e) {
    c->tokenizer = config->tokenizer;
    if (c->tokenizer)
        return ST_OK;
    if (config->kind == TOKENIZER_BYTE) {
        c->tokenizer = c->own = tokenizer_new_byte();
        return ST_OK;
    }
    int n = 0;
    for (int i = 0; i < UNICODE_END / 64; i++)
        n += __builtin_popcountll(y->seen[i]);
    CLEANUP(freep) uint32_t *points = alloc_zeroed((size_t)n, sizeof *points);
    n = 0;
    for (uint32_t i = 0; i < UNICODE_END / 64; i++)
        for (uint64_t seen = y->seen[i]; seen; seen &= seen - 1)
            points[n++] = 64 * i + (uint32_t)__builtin_ctzll(seen);
    TRY(tokenizer_new_char(points, n, &c->own, e));
    c->tokenizer = c->own;
    return ST_OK;
}

struct fill {
    struct corpus *c;
    int64_t n, capacity;
    int32_t *token_of; /* (units), -1 = not in the vocabulary, as all code points >= units; NULL for bytes */
    uint32_t units;
};

static void put_token(struct corpus *c, int64_t i, int32_t token) {
    if (c->token_bytes == 1)
        ((uint8_t *)c->owned)[i] = (uint8_t)token;
    else if (c->token_bytes == 2)
        ((uint16_t *)c->owned)[i] = (uint16_t)token;
    else
        ((int32_t *)c->owned)[i] = token;
}

static status_t fill_segment(void *ctx, const struct data_file *s, int64_t first, const char *p, size_t n,
                             struct err *e) {
    struct fill *f = ctx;
    for (size_t at = 0; at < n; f->n++) {
        size_t length = 1;
        uint32_t unit = f->token_of ? next_character(p + at, n - at, &length) : (uint8_t)p[at];
        if (length == 0)
            return bad_utf8(s, first + (int64_t)at, e);
        int32_t token = !f->token_of ? (int32_t)unit : unit < f->units ? f->token_of[unit] : -1;
        if (token < 0)
            return err_set(e, ST_INVALID_ARGUMENT,
                           "the data file '%s' has the character U+%04X at byte %lld, which is not in the vocabulary",
                           s->path, unit, (long long)(first + (int64_t)at));
        if (f->n == f->capacity)
            return err_set(e, ST_FAILED_PRECONDITION, "the data file '%s' changed while it was read", s->path);
        put_token(f->c, f->n, token);
        at += length;
    }
    return ST_OK;
}

/* Puts every token into memory. */
static status_t fill(struct corpus *c, enum tokenizer_kind kind, const struct corpus_config *config, struct err *e) {
    int vocabulary = tokenizer_vocabulary(c->tokenizer);
    c->token_bytes = vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
    if (!(c->owned = malloc((size_t)c->tokens * (size_t)c->token_bytes)))
        return err_errno(e, "allocate the memory for %lld tokens", (long long)c->tokens);
    CLEANUP(freep) int32_t *token_of = NULL;
    const uint32_t *points = tokenizer_code_points(c->tokenizer);
    const uint32_t units = points ? points[vocabulary - 1] + 1 : 0;
    if (points) {
        if (!(token_of = malloc(units * sizeof *token_of)))
            return err_errno(e, "allocate a vocabulary of %d characters", vocabulary);
        memset(token_of, 0xff, units * sizeof *token_of);
        for (int32_t token = 0; token < vocabulary; token++)
            token_of[points[token]] = token;
    }
    struct fill f = { c, 0, c->tokens, token_of, units };
    TRY(visit(c, config, kind == TOKENIZER_CHAR, fill_segment, &f, e));
    if (f.n != c->tokens)
        return err_set(e, ST_FAILED_PRECONDITION, "the data files changed while they were read");
    return ST_OK;
}

/* --- all kinds --- */

static status_t scan_all(struct corpus *c, const struct corpus_config *config, enum tokenizer_kind kind, struct scan *y,
                         struct err *e) {
    uint8_t digest[SHA256_BYTES];
    sha256_begin(&y->sha256);
    y->characters = kind == TOKENIZER_CHAR;
    y->bytes = kind == TOKENIZER_BYTE;
    y->train_bytes = c->train_bytes;
    status_t st = visit(c, config, y->characters, scan_segment, y, e);
    byte_pairs_digest_end(config, c->train_bytes, &y->sha256);
    sha256_final(&y->sha256, digest);
    sha256_hex(digest, c->sha256);
    return st;
}

static status_t check_config(const struct corpus_config *config, struct err *e) {
    if (config->n_files < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "no data files are given");
    if (!(config->validation_fraction >= 0 && config->validation_fraction < 1))
        return err_set(e, ST_INVALID_ARGUMENT, "a validation fraction of %g is outside [0, 1)",
                       config->validation_fraction);
    return config->n_validation && config->validation_fraction > 0
               ? err_set(e, ST_INVALID_ARGUMENT,
                         "the validation data have files of their own, so that no fraction is cut")
               : ST_OK;
}

static status_t encode(struct corpus *c, const struct corpus_config *config, struct err *e) {
    const struct byte_pairs_text text = { .config = config,
                                          .parts = c->files,
                                          .n = c->n_files,
                                          .bytes = c->bytes,
                                          .train_bytes = c->train_bytes,
                                          .sha256 = c->sha256 };
    struct byte_pairs made;
    const status_t st = byte_pairs_make(&text, &made, e);
    c->owned = made.owned;
    c->encoded = made.file;
    c->token_bytes = made.token_bytes;
    c->tokens = made.tokens;
    c->train_tokens = made.train_tokens;
    return st;
}

/* The tokens, and how many of them are for training. */
static status_t place_tokens(struct corpus *c, const struct corpus_config *config, enum tokenizer_kind kind,
                             const struct scan *y, struct err *e) {
    c->tokens = y->characters ? y->n : c->bytes;
    c->train_tokens = y->characters ? y->train_n : c->train_bytes;
    if (kind == TOKENIZER_BPE)
        TRY(encode(c, config, e));
    else if (y->characters || c->bytes <= CORPUS_OWNED_BYTES)
        TRY(fill(c, kind, config, e));
    if (config->n_validation == 0)
        c->train_tokens = (int64_t)floor((double)c->tokens * (1 - config->validation_fraction));
    if (c->owned || c->encoded)
        close_files(c);
    return ST_OK;
}

status_t corpus_open(const struct corpus_config *config, struct corpus **ret, struct err *e) {
    TRY(check_config(config, e));
    const enum tokenizer_kind kind = config->tokenizer ? tokenizer_kind_of(config->tokenizer) : config->kind;
    assert(kind != TOKENIZER_BPE || config->tokenizer);
    CLEANUP(corpus_closep) struct corpus *c = alloc_zeroed(1, sizeof *c);
    CLEANUP(freep) struct scan *y = alloc_zeroed(1, sizeof *y);
    TRY(open_files(c, config, kind, e));
    if (c->bytes == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the data file '%s'%s empty", c->files[0].file.path,
                       c->n_files > 1 ? " and the others are" : " is");
    TRY(scan_all(c, config, kind, y, e));
    TRY(make_tokenizer(c, config, y, e));
    TRY(place_tokens(c, config, kind, y, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

static status_t read_bytes(const struct corpus *c, int64_t start, int n, int32_t *tokens, struct err *e) {
    unsigned char buffer[4096];
    for (int i = 0; n > 0; i++) {
        const struct text_part *f = &c->files[i];
        while (n > 0 && start < f->first + f->file.bytes) {
            int64_t k = f->first + f->file.bytes - start;
            if (k > n)
                k = n;
            if (k > (int64_t)sizeof buffer)
                k = sizeof buffer;
            TRY(data_file_read(&f->file, start - f->first, buffer, (size_t)k, e));
            for (int64_t j = 0; j < k; j++)
                *tokens++ = buffer[j];
            start += k;
            n -= (int)k;
        }
    }
    return ST_OK;
}

status_t corpus_read(const struct corpus *c, enum corpus_split split, int64_t start, int n, int32_t *tokens,
                     struct err *e) {
    assert(start >= 0 && n >= 0 && start + n <= corpus_tokens(c, split));
    if (split == CORPUS_VALIDATION)
        start += c->train_tokens;
    if (c->encoded)
        return encoded_text_read(c->encoded, start, n, tokens, e);
    if (c->token_bytes == 0)
        return read_bytes(c, start, n, tokens, e);
    for (int i = 0; i < n; i++)
        tokens[i] = c->token_bytes == 1   ? ((const uint8_t *)c->owned)[start + i]
                    : c->token_bytes == 2 ? ((const uint16_t *)c->owned)[start + i]
                                          : ((const int32_t *)c->owned)[start + i];
    return ST_OK;
}
