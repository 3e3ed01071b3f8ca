/* Splits text into words before byte-pair encoding. Regular expressions (PCRE2, Unicode properties) are applied one
 * after the other; each one splits every word of the one before into its matches and the text between them.
 *
 *     struct pretokenizer *p = pretokenizer_new();
 *     TRY(pretokenizer_add(p, PRETOKENIZER_GPT2, false, e));
 *     TRY(pretokenizer_split(p, run, "Hello world", 11, word, ctx, e));       // word is called with "Hello", " world"
 *
 * Patterns are written for Oniguruma, which `tokenizers` uses. \s is translated to Oniguruma's meaning, Unicode's
 * White_Space. Letters and digits are those of Unicode 14 (PCRE2 10.42).
 *
 * Threads: a pretokenizer is not changed by splitting; a run belongs to one thread at a time. Private to this folder.
 */
#ifndef ENGINE_DATA_PRETOKENIZER_H
#define ENGINE_DATA_PRETOKENIZER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { PRETOKENIZER_STEPS = 8 };

/* GPT-2's pattern, which is built into ByteLevel. */
#define PRETOKENIZER_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* The version of the library that finds the words, and that of its Unicode: other versions may find other words. */
enum { PRETOKENIZER_VERSION_BYTES = 80 };
void pretokenizer_version(char ret[PRETOKENIZER_VERSION_BYTES]);

struct pretokenizer;
struct pretokenizer *pretokenizer_new(void);
struct pretokenizer *pretokenizer_free(struct pretokenizer *p);
CLEANUP_DEFINE(struct pretokenizer *, pretokenizer_free)

/* Adds an expression (UTF-8); literal: it is plain text. INVALID_ARGUMENT has PCRE2's message, or there are too
 * many. */
MUST_CHECK status_t pretokenizer_add(struct pretokenizer *p, const char *pattern, bool literal, struct err *e);

/* Match data of one thread. */
struct pretokenizer_run;
struct pretokenizer_run *pretokenizer_run_new(const struct pretokenizer *p);
struct pretokenizer_run *pretokenizer_run_free(struct pretokenizer_run *r);
CLEANUP_DEFINE(struct pretokenizer_run *, pretokenizer_run_free)

typedef status_t pretokenizer_word_fn(void *ctx, const char *word, size_t n, struct err *e);

/* Calls word for each word of the text (valid UTF-8) in order; no word is empty. INVALID_ARGUMENT if an expression
 * needs more steps or memory for the text than is allowed. */
MUST_CHECK status_t pretokenizer_split(const struct pretokenizer *p, struct pretokenizer_run *r, const char *text,
                                       size_t n, pretokenizer_word_fn *word, void *ctx, struct err *e);

#endif
