/* Text cut in words before byte-pair encoding: one regular expression after the other (PCRE2, Unicode properties), each
 * cutting every piece that the one before left into its matches and what lies between them.
 *
 *     TRY(pretokenizer_new(&p, e));
 *     TRY(pretokenizer_add(p, PRETOKENIZER_GPT2, false, e));
 *     TRY(pretokenizer_split(p, run, "Hello world", 11, word, ctx, e));       // word is called with "Hello", " world"
 *
 * Patterns are written for Oniguruma (as `tokenizers` uses it); where the two differ for the patterns in use, PCRE2 is
 * given Oniguruma's meaning: \s is Unicode's White_Space. Letters and digits are those of Unicode 14 (PCRE2 10.42).
 *
 * Threads: a pretokenizer is not changed by splitting; a run belongs to one thread at a time. Private to this folder.
 */
#ifndef EXECUTOR_ENGINE_DATA_PRETOKENIZER_H
#define EXECUTOR_ENGINE_DATA_PRETOKENIZER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { PRETOKENIZER_STEPS = 8 };

/* GPT-2's pattern, which ByteLevel has of its own. */
#define PRETOKENIZER_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct pretokenizer;
MUST_CHECK status_t pretokenizer_new(struct pretokenizer **ret, struct err *e);
struct pretokenizer *pretokenizer_free(struct pretokenizer *p);
CLEANUP_DEFINE(struct pretokenizer *, pretokenizer_free)

/* The next expression (UTF-8); literal = the text itself. INVALID_ARGUMENT says what PCRE2 has against it, or that it
 * is one too many. */
MUST_CHECK status_t pretokenizer_add(struct pretokenizer *p, const char *pattern, bool literal, struct err *e);

/* What one thread needs to match. */
struct pretokenizer_run;
MUST_CHECK status_t pretokenizer_run_new(const struct pretokenizer *p, struct pretokenizer_run **ret, struct err *e);
struct pretokenizer_run *pretokenizer_run_free(struct pretokenizer_run *r);
CLEANUP_DEFINE(struct pretokenizer_run *, pretokenizer_run_free)

typedef status_t pretokenizer_word_fn(void *ctx, const char *word, size_t n, struct err *e);

/* Calls word for each word of the text (valid UTF-8) in order, none of them empty. INVALID_ARGUMENT when an expression
 * needs more steps or memory for the text than is allowed. */
MUST_CHECK status_t pretokenizer_split(const struct pretokenizer *p, struct pretokenizer_run *r, const char *text,
                                       size_t n, pretokenizer_word_fn *word, void *ctx, struct err *e);

#endif
