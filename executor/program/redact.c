/* The patterns are the values, their lines, and the printable forms of both, sorted. A bitmap has a bit for the hash of
 * the first four bytes of each pattern: nearly every position of the data is passed with one look at it. Where the bit
 * is set, bisection finds the place of the data among the patterns:
 *
 *   before   the last pattern that is not greater than the data. A pattern that the data begins with is this one, or
 *            one of those that this one begins with: each pattern knows the longest of these, its parent
 *   after    the next pattern. If the data is only the beginning of a longer pattern, it is the beginning of this one
 *
 *   decide   at one position, finds the longest pattern that begins there, and whether a longer one may begin there,
 *            of which the data has only the beginning
 *   scan     decides position by position, and extends the covered range by each match. A byte in the covered range is
 *            replaced: the first one of a range by the mark, the others by nothing. The scan of a stream stops at the
 *            first position that cannot be decided; the bytes from there on are kept for the next call
 *
 * The last three positions of the data have too few bytes for the hash: there the first byte is looked up. */
#include "executor/program/redact.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_BITS = 16, HASHES = 1 << HASH_BITS, KEPT_MAX_BYTES = 1 << 20 };

struct pattern {
    char *bytes;
    size_t n;
    size_t parent; /* 1 + the index of the longest other pattern that this one begins with; 0: none */
};

struct redactor {
    struct pattern *patterns;
    size_t n, cap;
    uint64_t present[HASHES / 64];
    uint64_t first[256 / 64]; /* the first bytes of all patterns */
};

static uint32_t hash_of(const char *at) {
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x * 2654435761u >> (32 - HASH_BITS);
}

static bool bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }
static void bit_set(uint64_t *bits, uint32_t i) { bits[i / 64] |= UINT64_C(1) << (i % 64); }

struct redactor *redactor_new(void) {
    return alloc_zeroed(1, sizeof(struct redactor));
}

static void pattern_free(struct pattern *p) {
    explicit_bzero(p->bytes, p->n);
    free(p->bytes);
}

struct redactor *redactor_free(struct redactor *r) {
    if (!r)
        return NULL;
    for (size_t i = 0; i < r->n; i++)
        pattern_free(&r->patterns[i]);
    free(r->patterns);
    free(r);
    return NULL;
}

bool redactor_is_empty(const struct redactor *r) { return r->n == 0; }

/* ---- patterns ---- */

/* Takes the bytes. */
static void pattern_put(struct redactor *r, char *bytes, size_t n) {
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->patterns = alloc_resize(r->patterns, r->cap, sizeof *r->patterns);
    }
    r->patterns[r->n++] = (struct pattern){ .bytes = bytes, .n = n };
    bit_set(r->present, hash_of(bytes));
    bit_set(r->first, (unsigned char)*bytes);
}

/* A printable form of '?' only says nothing about the value, and occurs elsewhere. */
static bool says_something(const char *bytes, size_t n) {
    size_t marks = 0;
    while (marks < n && bytes[marks] == '?')
        marks++;
    return marks < n;
}

static void pattern_add(struct redactor *r, const char *bytes, size_t n, size_t min) {
    if (n < min)
        return;
    char *copy = alloc_zeroed(n, 1), *printable = alloc_zeroed(n, 1);
    memcpy(copy, bytes, n);
    utf8_printable(bytes, n, "", printable);
    if (memcmp(copy, printable, n) != 0 && says_something(printable, n))
        pattern_put(r, take_ptr(&printable), n);
    if (printable)
        explicit_bzero(printable, n);
    free(printable);
    pattern_put(r, copy, n);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

void redactor_add(struct redactor *r, const void *value, size_t n) {
    const char *text = value;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    pattern_add(r, text, n, REDACT_MIN_BYTES);
    for (const char *at = text, *end = text + n, *line_end; at < end; at = line_end + 1) {
        line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        const char *from = at, *to = line_end;
        while (from < to && is_space(*from))
            from++;
        while (to > from && is_space(to[-1]))
            to--;
        if (to < end || from > text) /* else it is the whole value */
            pattern_add(r, from, (size_t)(to - from), REDACT_MIN_LINE_BYTES);
    }
}

static int by_bytes(const void *a_, const void *b_) {
    const struct pattern *a = a_, *b = b_;
    const int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static bool begins_with(const struct pattern *p, const struct pattern *beginning) {
    return beginning->n <= p->n && memcmp(p->bytes, beginning->bytes, beginning->n) == 0;
}

/* In the order, the patterns with one beginning follow it without a gap: those that the last pattern begins with are
 * itself and its parents. */
void redactor_ready(struct redactor *r) {
    size_t n = 0;
    if (r->n > 0)
        qsort(r->patterns, r->n, sizeof *r->patterns, by_bytes);
    for (size_t i = 0; i < r->n; i++) {
        struct pattern p = r->patterns[i];
        if (n > 0 && by_bytes(&r->patterns[n - 1], &p) == 0) {
            pattern_free(&p);
            continue;
        }
        p.parent = n;
        while (p.parent && !begins_with(&p, &r->patterns[p.parent - 1]))
            p.parent = r->patterns[p.parent - 1].parent;
        r->patterns[n++] = p;
    }
    r->n = n;
}

/* ---- one position ---- */

struct decision {
    size_t match;  /* the length of the longest match; 0: none */
    bool may_grow; /* all bytes that are left are the beginning of a longer pattern */
};

/* The length of the common beginning of a pattern and the data, of which `n` bytes are known to be equal. */
static size_t common_beginning(const struct pattern *p, const char *at, size_t left, size_t n) {
    const size_t max = p->n < left ? p->n : left;
    while (n + 8 <= max && memcmp(p->bytes + n, at + n, 8) == 0)
        n += 8;
    while (n < max && p->bytes[n] == at[n])
        n++;
    return n;
}

struct neighbours {
    size_t after;                       /* the index of the first pattern that is greater than the data */
    size_t common_before, common_after; /* with the patterns after - 1 and after; 0 if there is none */
};

/* All patterns between two begin with what these have in common: no comparison begins before that. */
static struct neighbours bisect(const struct redactor *r, const char *at, size_t left) {
    struct neighbours x = { .after = r->n };
    size_t low = 0;
    while (low < x.after) {
        const size_t middle = low + (x.after - low) / 2;
        const struct pattern *p = &r->patterns[middle];
        const size_t known = x.common_before < x.common_after ? x.common_before : x.common_after;
        const size_t common = common_beginning(p, at, left, known);
        const bool greater = common == left
                                 ? p->n > left
                                 : common < p->n && (unsigned char)p->bytes[common] > (unsigned char)at[common];
        if (greater) {
            x.after = middle;
            x.common_after = common;
        } else {
            low = middle + 1;
            x.common_before = common;
        }
    }
    return x;
}

/* quotes: a part of a pattern, of REDACT_MIN_LINE_BYTES or more, also counts. */
static struct decision decide(const struct redactor *r, const char *at, size_t left, bool quotes) {
    struct decision d = { 0 };
    if (left >= REDACT_MIN_BYTES ? !bit(r->present, hash_of(at)) : !bit(r->first, (unsigned char)*at))
        return d;
    const struct neighbours x = bisect(r, at, left);
    size_t i = x.after; /* 1 + the index of the pattern before */
    while (i && r->patterns[i - 1].n > x.common_before)
        i = r->patterns[i - 1].parent;
    d.match = i ? r->patterns[i - 1].n : 0;
    d.may_grow = x.common_after == left;
    const size_t common = x.common_before > x.common_after ? x.common_before : x.common_after;
    if (quotes && common >= REDACT_MIN_LINE_BYTES && common > d.match)
        d.match = common;
    return d;
}

/* ---- streams ---- */

void redact_stream_init(struct redact_stream *s, const struct redactor *r) {
    *s = (struct redact_stream){ .redactor = r };
    bytes_init(&s->kept, KEPT_MAX_BYTES);
}

void redact_stream_done(struct redact_stream *s) {
    if (s->kept.data)
        explicit_bzero(s->kept.data, s->kept.cap);
    bytes_done(&s->kept);
}

/* The state of a scan of one piece of data. */
struct scan {
    const char *data;
    size_t n, covered, plain; /* plain: the first byte that is not in the output and not replaced */
    bool marked;
};

static status_t plain_end(struct scan *x, size_t at, struct bytes *out, struct err *e) {
    if (at > x->plain)
        TRY(bytes_append(out, x->data + x->plain, at - x->plain, e));
    x->plain = at;
    return ST_OK;
}

/* Position i is decided. */
static status_t byte_put(struct scan *x, size_t i, struct bytes *out, struct err *e) {
    if (i >= x->covered) {
        x->marked = false;
        return ST_OK;
    }
    TRY(plain_end(x, i, out, e));
    x->plain = i + 1;
    if (x->marked)
        return ST_OK;
    x->marked = true;
    return bytes_append(out, REDACT_MARK, sizeof REDACT_MARK - 1, e);
}

/* Returns in *ret_decided how many bytes are decided. */
static status_t scan(const struct redactor *r, struct scan *x, bool end, bool quotes, struct bytes *out,
                     size_t *ret_decided, struct err *e) {
    size_t i = 0;
    for (; i < x->n; i++) {
        const size_t left = x->n - i;
        struct decision d = decide(r, x->data + i, left, quotes);
        if (d.may_grow && !end)
            break;
        if (d.may_grow && left >= REDACT_MIN_BYTES)
            d.match = left;
        if (d.match > 0 && i + d.match > x->covered)
            x->covered = i + d.match;
        TRY(byte_put(x, i, out, e));
    }
    *ret_decided = i;
    return plain_end(x, i, out, e);
}

status_t redact_stream_feed(struct redact_stream *s, const char *data, size_t n, bool end, struct bytes *out,
                            struct err *e) {
    size_t decided = 0;
    if (n > 0)
        TRY(bytes_append(&s->kept, data, n, e));
    struct scan x = { .data = s->kept.data, .n = s->kept.len, .covered = s->covered, .marked = s->marked };
    TRY(scan(s->redactor, &x, end, false, out, &decided, e));
    s->covered = x.covered > decided ? x.covered - decided : 0;
    s->marked = x.marked;
    if (decided > 0)
        memmove(s->kept.data, s->kept.data + decided, s->kept.len - decided);
    s->kept.len -= decided;
    return ST_OK;
}

/* ---- texts ---- */

bool redact_finds(const struct redactor *r, const char *text) {
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        const struct decision d = decide(r, text + i, n - i, true);
        if (d.match > 0 || (d.may_grow && n - i >= REDACT_MIN_BYTES))
            return true;
    }
    return false;
}

bool redact_text(const struct redactor *r, char *text) {
    if (!redact_finds(r, text))
        return false;
    struct bytes out;
    struct scan x = { .data = text, .n = strlen(text) };
    size_t decided;
    bytes_init(&out, x.n + 1); /* every match is longer than the mark */
    status_t st = scan(r, &x, true, true, &out, &decided, NULL);
    const size_t used = st == ST_OK ? out.len : 0;
    if (used > 0)
        memcpy(text, out.data, used);
    text[used] = '\0';
    bytes_done(&out);
    return true;
}
