/* google.protobuf.Timestamp: microseconds since 1970 UTC and RFC 3339 text ("2026-11-21T10:11:04.123456Z").
 * Range of the text: years 1 to 9999. Pure and thread-safe. */
#ifndef API_CODEC_TIMESTAMP_H
#define API_CODEC_TIMESTAMP_H

#include "base/status.h"

#include <google/protobuf/timestamp.pb-c.h>
#include <stdint.h>

enum { TIMESTAMP_TEXT = 40 }; /* the longest text and its NUL */

/* Fills *ret, which the caller owns (a struct of its own, or one inside a message made by malloc). */
void timestamp_of_us(int64_t us, Google__Protobuf__Timestamp *ret);

/* Microseconds since 1970, negative before. INVALID_ARGUMENT outside the years 1 to 9999. */
MUST_CHECK status_t timestamp_to_us(const Google__Protobuf__Timestamp *t, int64_t *ret_us, struct err *e);
/* Prints with 0, 3, 6 or 9 digits of fraction, the fewest that represent the value, and "Z". INVALID_ARGUMENT outside
 * the years 1 to 9999. */
MUST_CHECK status_t timestamp_print(const Google__Protobuf__Timestamp *t, char ret[TIMESTAMP_TEXT], struct err *e);
/* Parses RFC 3339 text with "Z" or an offset such as +02:00, and up to 9 digits of fraction. */
MUST_CHECK status_t timestamp_parse(const char *text, int64_t *ret_seconds, int32_t *ret_nanos, struct err *e);

#endif
