/* Replaces the values of secrets by "***" in what a program writes: in a stream of bytes, however it is divided into
 * reads, and in whole texts.
 *
 * A value of at least REDACT_MIN_BYTES is found wherever its bytes occur, without a newline at its end. Of a value of
 * several lines each line of at least REDACT_MIN_LINE_BYTES is found as well, without the spaces around it. Matches
 * that overlap or touch become one "***". A value that the program has changed is not found: in base64, with other
 * quotes, reversed.
 *
 * A stream holds back bytes that may be the beginning of a value until the next bytes decide. A stream or a text may be
 * cut: the beginning of a value at its end, of at least REDACT_MIN_BYTES, is replaced too. Texts are sentences that may
 * quote a part of what a program wrote: in them, the beginning of a value of at least REDACT_MIN_LINE_BYTES is replaced
 * anywhere.
 *
 * Records have texts in their printable form (utf8_printable), so that of each value and line this form is found too,
 * unless it is of '?' only.
 *
 * The cost of a byte is one comparison of four bytes with a small table, whatever the number of values. Where the first
 * four bytes of a value or line occur, it is a bisection of all values and lines, which compares the bytes that agree
 * with them about once: data that repeats the long beginning of a value again and again costs their product. The size
 * of all values bounds the number of lines. */
#ifndef EXECUTOR_PROGRAM_REDACT_H
#define EXECUTOR_PROGRAM_REDACT_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { REDACT_MIN_BYTES = 4, REDACT_MIN_LINE_BYTES = 8 };
#define REDACT_MARK "***"

struct redactor;
struct redactor *redactor_new(void);
struct redactor *redactor_free(struct redactor *r); /* wipes the values */
CLEANUP_DEFINE(struct redactor *, redactor_free)

/* Before redactor_ready. The value is copied. */
void redactor_add(struct redactor *r, const void *value, size_t n);
void redactor_ready(struct redactor *r); /* once, after the last value, before the first use below */
bool redactor_is_empty(const struct redactor *r);

/* A redactor does not change any more: any thread may use it. A stream belongs to one thread. */
struct redact_stream {
    const struct redactor *redactor;
    struct bytes kept; /* bytes that are not decided; those before `covered` belong to a match */
    size_t covered;
    bool marked; /* the match at the beginning of `kept` has its mark in the output already */
};
void redact_stream_init(struct redact_stream *s, const struct redactor *r);
void redact_stream_done(struct redact_stream *s); /* wipes what is left */
/* Appends what is decided to out. end: no further bytes follow. RESOURCE_EXHAUSTED: out is full. */
MUST_CHECK status_t redact_stream_feed(struct redact_stream *s, const char *data, size_t n, bool end, struct bytes *out,
                                       struct err *e);

/* In place: the text never becomes longer. False: nothing was replaced. */
bool redact_text(const struct redactor *r, char *text);
/* Whether redact_text would replace something. */
bool redact_finds(const struct redactor *r, const char *text);

#endif
