/* With a cache:
 *
 *   find     the key follows from the digest of the text. If the cache has it, that is all
 *   ask      a cache that does not write has the text encoded by another process; then find once more
 *   add      else: begin a part (which waits for another process that adds the same), encode to it, publish it
 *
 * What cannot be had from the cache is encoded in memory, as without one.
 *
 * Tokens are made by encode.h on several threads and come in order. The bytes that are encoded are digested on the way
 * and compared with the digest of the text, since the files may have changed after they were digested. */
#include "engine/data/byte_pairs.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/data/encode.h"
#include "engine/data/pretokenizer.h"
#include "engine/data/token_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Increase it with every change of the tokens of a text. */
enum { ENCODER_VERSION = 1 };

struct making {
    struct byte_pairs *to;
    int64_t capacity;              /* of to->owned, in tokens */
    struct encoded_writer *writer; /* NULL: in memory */
    bool failed;                   /* the writer, and not the text */
};

/* ---- in memory ---- */

static status_t grow(struct making *m, int64_t n, struct err *e) {
    struct byte_pairs *to = m->to;
    if (to->tokens + n <= m->capacity)
        return ST_OK;
    const int64_t capacity = (to->tokens + n) * 3 / 2 + 4096;
    void *owned = realloc(to->owned, (size_t)(capacity * to->token_bytes));
    if (!owned)
        return err_errno(e, "allocate the memory for %lld tokens", (long long)capacity);
    to->owned = owned;
    m->capacity = capacity;
    return ST_OK;
}

static void append(struct byte_pairs *to, const int32_t *tokens, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (to->token_bytes == 2)
            ((uint16_t *)to->owned)[to->tokens + i] = (uint16_t)tokens[i];
        else
            ((int32_t *)to->owned)[to->tokens + i] = tokens[i];
}

/* encode_file's sink. */
static status_t put(void *making, const int32_t *tokens, size_t n_tokens, struct err *e) {
    struct making *m = making;
    struct byte_pairs *to = m->to;
    const int64_t n = (int64_t)n_tokens, limit = CORPUS_OWNED_BYTES / to->token_bytes;
    if (n > limit - to->tokens)
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the text has more than %lld tokens, the limit of a text: make token files of it",
                       (long long)limit);
    if (m->writer) {
        const status_t st = encoded_writer_put(m->writer, tokens, n_tokens, e);
        m->failed = st != ST_OK;
        TRY(st);
    } else {
        TRY(grow(m, n, e));
        append(to, tokens, n);
    }
    to->tokens += n;
    return ST_OK;
}

/* ---- encoding ---- */

void byte_pairs_digest_end(const struct corpus_config *config, int64_t train_bytes, struct sha256 *s) {
    const char *document = config->tokenizer ? tokenizer_huggingface(config->tokenizer) : NULL;
    char before[32];
    if (document)
        sha256_update(s, document, strlen(document));
    if (config->n_validation)
        sha256_update(s, before, (size_t)snprintf(before, sizeof before, "%lld", (long long)train_bytes));
}

static status_t encode_parts(const struct byte_pairs_text *text, struct making *m, struct err *e) {
    const struct corpus_config *config = text->config;
    struct sha256 sha256;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    const struct encode_options options = { .tokenizer = config->tokenizer,
                                            .threads = config->threads,
                                            .sha256 = &sha256,
                                            .progress = config->progress,
                                            .ctx = config->ctx };
    sha256_begin(&sha256);
    for (int i = 0; i < text->n; i++) {
        TRY(encode_file(&text->parts[i].file, &options, put, m, e));
        if (text->parts[i].first < text->train_bytes)
            m->to->train_tokens = m->to->tokens;
    }
    byte_pairs_digest_end(config, text->train_bytes, &sha256);
    sha256_final(&sha256, digest);
    sha256_hex(digest, hex);
    return strcmp(hex, text->sha256) == 0
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION, "the data file '%s'%s changed while it was read",
                         text->parts[0].file.path, text->n > 1 ? " or another one" : "");
}

static struct byte_pairs empty(const struct byte_pairs_text *text) {
    return (struct byte_pairs){ .token_bytes = tokenizer_vocabulary(text->config->tokenizer) <= 1 << 16 ? 2 : 4 };
}

static status_t encode_in_memory(const struct byte_pairs_text *text, struct byte_pairs *ret, struct err *e) {
    *ret = empty(text);
    struct making m = { .to = ret };
    return encode_parts(text, &m, e);
}

/* ---- the cache ---- */

static void key_of(const struct byte_pairs_text *text, uint8_t ret[SHA256_BYTES]) {
    char line[240], version[PRETOKENIZER_VERSION_BYTES];
    struct sha256 s;
    pretokenizer_version(version);
    sha256_begin(&s);
    sha256_update(&s, line,
                  (size_t)snprintf(line, sizeof line, "encoded text %d %s\n%s %d %d\n", ENCODER_VERSION, version,
                                   text->sha256, text->config->n_files, text->config->n_validation));
    for (int i = 0; i < text->n; i++)
        sha256_update(&s, &text->parts[i].file.bytes, sizeof text->parts[i].file.bytes);
    sha256_final(&s, ret);
}

static void take(struct encoded_text *file, struct byte_pairs *ret) {
    const struct encoded_facts *facts = encoded_text_facts(file);
    *ret = (struct byte_pairs){
        .file = file, .token_bytes = facts->token_bytes, .tokens = facts->tokens, .train_tokens = facts->train_tokens
    };
}

static void say_encoded(const struct byte_pairs_text *text, const struct token_cache_use *u,
                        const struct byte_pairs *made, int64_t ms) {
    token_cache_notice(u->cache, "text_encoded",
                       "the text of '%.300s'%s was encoded to %lld tokens in %lld.%lld s, for all jobs of this host",
                       text->parts[0].file.path, text->n > 1 ? " and other files" : "", (long long)made->tokens,
                       (long long)(ms / 1000), (long long)(ms % 1000 / 100));
}

/* *ret_failed: the folder failed, and not the text. */
static status_t encode_to(const struct byte_pairs_text *text, struct token_cache_use *u, struct token_part *part,
                          struct byte_pairs *ret, bool *ret_failed, struct err *e) {
    struct byte_pairs made = empty(text);
    struct encoded_writer writer;
    struct encoded_text *file = NULL;
    struct making m = { .to = &made, .writer = &writer };
    const int64_t begun_ms = clock_mono_ms();
    *ret_failed = true;
    TRY(encoded_writer_begin(&writer, part->fd, made.token_bytes, u->cache->max_bytes, e));
    status_t st = encode_parts(text, &m, e);
    *ret_failed = m.failed;
    TRY(st);
    *ret_failed = true;
    struct encoded_facts facts = { .train_tokens = made.train_tokens };
    memcpy(facts.key, u->key, sizeof facts.key);
    TRY(encoded_writer_end(&writer, &facts, e));
    TRY(token_cache_publish(u, part, &file, e));
    if (!file)
        return err_set(e, ST_INTERNAL, "the token cache '%s' lost what was added to it", u->cache->folder);
    say_encoded(text, u, &made, clock_mono_ms() - begun_ms);
    take(file, ret);
    return ST_OK;
}

static status_t add(const struct byte_pairs_text *text, struct token_cache_use *u, struct byte_pairs *ret,
                    bool *ret_failed, struct err *e) {
    struct token_part part;
    struct encoded_text *found = NULL;
    const int64_t estimate = ENCODED_TEXT_HEADER_BYTES + text->bytes * empty(text).token_bytes / 2;
    *ret_failed = true;
    status_t st = token_cache_begin(u, estimate, &part, &found, e);
    if (st == ST_OK && found)
        take(found, ret);
    else if (st == ST_OK)
        st = encode_to(text, u, &part, ret, ret_failed, e);
    token_part_close(&part);
    return st;
}

/* ret->file NULL: the cache does not have the text, as *why says. An error is the text's, or the caller's wish to end.
 */
static status_t ask_cache(const struct byte_pairs_text *text, struct token_cache_use *u, struct byte_pairs *ret,
                          struct err *why, struct err *e) {
    const struct token_cache *c = u->cache;
    struct encoded_text *found = NULL;
    bool failed = false;
    status_t st = token_cache_find(u, &found, why);
    if (st == ST_OK && !found && c->writes) {
        st = add(text, u, ret, &failed, why);
        return st == ST_OK || failed ? ST_OK : err_set(e, st, "%s", why->msg);
    }
    if (st == ST_OK && !found && c->encode) {
        st = c->encode(c->ctx, text->config->text, why);
        if (st == ST_CANCELLED)
            return err_set(e, st, "%s", why->msg);
        if (st == ST_OK)
            st = token_cache_find(u, &found, why);
    }
    if (st == ST_OK && !found)
        status_ignore(err_set(why, ST_NOT_FOUND, "the token cache does not have the text"));
    if (found)
        take(found, ret);
    return ST_OK;
}

status_t byte_pairs_make(const struct byte_pairs_text *text, struct byte_pairs *ret, struct err *e) {
    const struct corpus_config *config = text->config;
    struct token_cache_use u = { .cache = config->cache, .progress = config->progress, .ctx = config->ctx };
    struct err why = { "" };
    *ret = empty(text);
    if (!u.cache || text->bytes < TOKEN_CACHE_MIN_BYTES)
        return encode_in_memory(text, ret, e);
    key_of(text, u.key);
    TRY(ask_cache(text, &u, ret, &why, e));
    if (ret->file)
        return ST_OK;
    if (u.cache->required)
        return err_set(e, ST_UNAVAILABLE, "%s", why.msg);
    token_cache_notice(u.cache, "token_cache_missed", "the tokens of '%.300s'%s stay in memory: %s",
                       text->parts[0].file.path, text->n > 1 ? " and other files" : "", why.msg);
    return encode_in_memory(text, ret, e);
}
