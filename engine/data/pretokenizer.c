/* Splits text by a list of regular expressions, each of which splits the segments of the one before.
 *
 * `split` is recursive: step i matches its expression over the text, and passes the text between two matches, and each
 * match, to step i + 1; after the last step a segment is a word. Empty matches split, as in Oniguruma, except directly
 * after the last match. Each step has match data of its own, because the steps are nested. Steps and memory of a match
 * are limited, because expressions come from a user's file. */
#include "engine/data/pretokenizer.h"

#include "base/alloc.h"
#include "base/bytes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PATTERN_BYTES = 1 << 16, MATCH_STEPS = 20000000, JIT_STACK_BYTES = 16 << 20, HEAP_KIB = 64 << 10 };

struct pretokenizer {
    pcre2_code *steps[PRETOKENIZER_STEPS];
    int n;
};

struct pretokenizer_run {
    pcre2_match_data *matches[PRETOKENIZER_STEPS]; /* one for each step, because steps are nested */
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* Both texts have less than 32 bytes; libraries of no version give none. */
void pretokenizer_version(char ret[PRETOKENIZER_VERSION_BYTES]) {
    char library[64] = "", unicode[64] = "";
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) < (int)sizeof library)
        pcre2_config(PCRE2_CONFIG_VERSION, library);
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) < (int)sizeof unicode)
        pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    snprintf(ret, PRETOKENIZER_VERSION_BYTES, "PCRE2 %.32s, Unicode %.24s", library, unicode);
}

struct pretokenizer *pretokenizer_new(void) {
    return alloc_zeroed(1, sizeof(struct pretokenizer));
}

struct pretokenizer *pretokenizer_free(struct pretokenizer *p) {
    for (int i = 0; p && i < p->n; i++)
        pcre2_code_free(p->steps[i]);
    free(p);
    return NULL;
}

/* Unicode's White_Space, as the inside of a character class. */
#define WHITE_SPACE "\\t-\\r \\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* The number of bytes at p that are copied unchanged: the start of a class ("[", "[^", with a "]" after it), a POSIX
 * class within a class, or one byte. */
static size_t copied(const char *p, bool class) {
    if (*p == '[' && !class) {
        size_t n = p[1] == '^' ? 2 : 1;
        return n + (p[n] == ']');
    }
    const char *end = class && p[0] == '[' && p[1] == ':' ? strstr(p, ":]") : NULL;
    return end ? (size_t)(end + 2 - p) : 1;
}

/* \s and \S by White_Space: PCRE2's own \s also has U+180E. \S within a class has no such form and stays. */
static status_t translate(const char *pattern, struct bytes *to, struct err *e) {
    bool class = false;
    for (size_t n; *pattern; pattern += n) {
        const char *put = NULL;
        n = copied(pattern, class);
        if (*pattern == '\\' && pattern[1]) {
            n = 2;
            if (pattern[1] == 's')
                put = class ? WHITE_SPACE : "[" WHITE_SPACE "]";
            else if (pattern[1] == 'S' && !class)
                put = "[^" WHITE_SPACE "]";
        } else if (*pattern == '[') {
            class = true;
        } else if (*pattern == ']') {
            class = false;
        }
        TRY(bytes_append(to, put ? put : pattern, put ? strlen(put) : n, e));
    }
    return ST_OK;
}

status_t pretokenizer_add(struct pretokenizer *p, const char *pattern, bool literal, struct err *e) {
    if (p->n == PRETOKENIZER_STEPS)
        return err_set(e, ST_INVALID_ARGUMENT, "a pre-tokenizer has more than %d expressions", PRETOKENIZER_STEPS);
    struct bytes text;
    bytes_init(&text, PATTERN_BYTES);
    status_t st = literal ? bytes_printf(&text, e, "%s", pattern) : translate(pattern, &text, e);
    if (st == ST_OK) {
        int number;
        PCRE2_SIZE at;
        uint32_t options = PCRE2_UTF |
                           (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C);
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len, options, &number, &at,
                                         NULL);
        if (code) {
            pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower with the same result */
            p->steps[p->n++] = code;
        } else {
            char why[128] = "";
            pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
            st = err_set(e, ST_INVALID_ARGUMENT, "a pre-tokenizer's expression cannot be compiled: %s", why);
        }
    }
    bytes_done(&text);
    return st;
}

struct pretokenizer_run *pretokenizer_run_new(const struct pretokenizer *p) {
    struct pretokenizer_run *r = alloc_zeroed(1, sizeof *r);
    bool ok = (r->context = pcre2_match_context_create(NULL)) &&
              (r->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, NULL));
    for (int i = 0; ok && i < p->n; i++)
        ok = (r->matches[i] = pcre2_match_data_create(1, NULL)) != NULL;
    if (!ok)
        alloc_refused(JIT_STACK_BYTES);
    pcre2_set_match_limit(r->context, MATCH_STEPS);
    pcre2_set_heap_limit(r->context, HEAP_KIB);
    pcre2_jit_stack_assign(r->context, NULL, r->stack);
    return r;
}

struct pretokenizer_run *pretokenizer_run_free(struct pretokenizer_run *r) {
    if (r) {
        for (int i = 0; i < PRETOKENIZER_STEPS; i++)
            pcre2_match_data_free(r->matches[i]);
        pcre2_match_context_free(r->context);
        pcre2_jit_stack_free(r->stack);
        free(r);
    }
    return NULL;
}

struct splitting {
    const struct pretokenizer *p;
    struct pretokenizer_run *r;
    pretokenizer_word_fn *word;
    void *ctx;
};

static size_t character_bytes(char c) {
    uint8_t first = (uint8_t)c;
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Splits a segment by step i and the steps after it. */
static status_t split(const struct splitting *s, int i, const char *text, size_t n, struct err *e) {
    if (n == 0)
        return ST_OK;
    if (i == s->p->n)
        return s->word(s->ctx, text, n, e);
    size_t done = 0, at = 0; /* text before `done` is finished; the next match is searched from `at` */
    bool first = true;
    while (at <= n) {
        int found = pcre2_match(s->p->steps[i], (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->r->matches[i],
                                s->r->context);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0) {
            char why[128] = "";
            pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
            return err_set(e, ST_INVALID_ARGUMENT, "a pre-tokenizer's expression fails on the text: %s", why);
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->r->matches[i]);
        size_t begin = range[0], end = range[1];
        if (end < begin || begin < at) /* \K in a lookaround */
            return err_set(e, ST_INVALID_ARGUMENT, "a pre-tokenizer's expression matches backwards");
        if (begin == end && begin == done && !first) { /* empty, directly after the last match */
            at = begin + (begin < n ? character_bytes(text[begin]) : 1);
            continue;
        }
        TRY(split(s, i + 1, text + done, begin - done, e));
        TRY(split(s, i + 1, text + begin, end - begin, e));
        done = end;
        first = false;
        at = end > begin ? end : end + (end < n ? character_bytes(text[end]) : 1);
    }
    return split(s, i + 1, text + done, n - done, e);
}

status_t pretokenizer_split(const struct pretokenizer *p, struct pretokenizer_run *r, const char *text, size_t n,
                            pretokenizer_word_fn *word, void *ctx, struct err *e) {
    const struct splitting s = { p, r, word, ctx };
    return split(&s, 0, text, n, e);
}
