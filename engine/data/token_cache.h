/* The tokens of texts that were encoded on this host, in one folder. A text is encoded once, and all ranks and jobs
 * read its tokens from the file (encoded_text.h): none of them has a copy in its memory.
 *
 *     KEY        the tokens of a text. KEY, in hex, is a SHA-256 over all that decides about them: the text's bytes and
 *                where its files end, the tokenizer's document, the versions of the encoder and of its libraries
 *     KEY.part   tokens that a process encodes; it has locked the file. What a killed process leaves is not locked, and
 *                the next one begins it again
 *     lock       locked while a process makes space
 *
 * Who asks for a text has read it, because the key follows from its bytes: nobody gets the tokens of a text that it
 * cannot read. Who adds tokens digests the very bytes that it encodes, so that a text that changes meanwhile gets no
 * tokens of another.
 *
 * Trust. Whoever writes to the folder decides what other jobs train on. A rank reads the data of its job, which its
 * user may have made to make a library below do something else. So ranks of a service only read the folder; they ask
 * for a text with `encode`, and a process that does nothing else encodes it (executor/worker/rank_encode.c). It
 * parses the text and the tokenizer of one request and then ends, and it is no process of trainyard-data or of the
 * agent, because those hold keys of stores and their user's rights. trainyard-train trains for the user who starts it,
 * and writes the user's own folder.
 *
 * Space: files that were not read for longest are removed first; those that a process reads or writes are not. Files
 * of a host alone: flock is the host's. A file that a power cut damages is found by its digest. */
#ifndef ENGINE_DATA_TOKEN_CACHE_H
#define ENGINE_DATA_TOKEN_CACHE_H

#include "base/sha256.h"
#include "base/status.h"
#include "engine/data/encoded_text.h"

#include <stdbool.h>
#include <stdint.h>

/* A shorter text is quickly encoded, and its tokens take less memory than a thread. */
enum { TOKEN_CACHE_MIN_BYTES = 1 << 20, TOKEN_CACHE_FILES_MAX = 4096, TOKEN_CACHE_STILL_MS = 60 * 1000 };

struct data_text; /* source.h */

/* Borrowed by whoever opens data, for as long as that takes. */
struct token_cache {
    const char *folder; /* exists */
    int64_t max_bytes;  /* of all files */
    int64_t still_ms;   /* for how long another process is waited for that writes nothing; 0: TOKEN_CACHE_STILL_MS */
    bool writes;        /* encodes texts itself */
    bool required;      /* a text that the cache cannot have is an error, and is not encoded in memory */
    /* Of a cache that does not write: has the text encoded, and returns when that is over, however it went; an error
     * says why it did not begin or was stopped. CANCELLED ends the opening of the data. NULL: texts that the cache
     * lacks are encoded in memory. */
    status_t (*encode)(void *ctx, const struct data_text *text, struct err *e);
    /* kind: text_encoded, token_cache_damaged, or token_cache_missed (the tokens stay in memory, and why). May be NULL.
     */
    void (*notice)(void *ctx, const char *kind, const char *message);
    void *ctx;
};

/* For one opening of a text. */
struct token_cache_use {
    const struct token_cache *cache;
    bool damage_reported;
    uint8_t key[SHA256_BYTES];
    void (*progress)(void *ctx); /* also while it waits; may be NULL */
    void *ctx;
};

/* What the cache has of the key; *ret NULL: nothing. A damaged file is reported, and is nothing. */
MUST_CHECK status_t token_cache_find(struct token_cache_use *u, struct encoded_text **ret, struct err *e);

/* A file that is being added. */
struct token_part {
    int fd; /* locked; -1: none */
    char *path;
};

/* Begins to add tokens of about `bytes`, for which it makes space. Waits while another process adds the same;
 * *ret_found is then what that has added, and there is no part. RESOURCE_EXHAUSTED: no space, or the other process
 * writes nothing; other errors: of the folder. In any case token_part_close. */
MUST_CHECK status_t token_cache_begin(struct token_cache_use *u, int64_t bytes, struct token_part *ret,
                                      struct encoded_text **ret_found, struct err *e);
/* Gives the whole file its name, and opens it. */
MUST_CHECK status_t token_cache_publish(struct token_cache_use *u, struct token_part *part, struct encoded_text **ret,
                                        struct err *e);
/* Removes what was not published. */
void token_part_close(struct token_part *part);

void token_cache_notice(const struct token_cache *c, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
