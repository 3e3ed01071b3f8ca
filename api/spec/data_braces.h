/* Braces in the patterns of data: {000..127} is each of these numbers, {a,b} each of these texts. A '{' between
 * brackets is a character of them. No I/O. Thread-safe. */
#ifndef API_SPEC_DATA_BRACES_H
#define API_SPEC_DATA_BRACES_H

#include "base/status.h"

#include <stddef.h>

struct data_uris {
    char **all;
    size_t n;
};

/* Of the braces behind the first `begin` bytes. INVALID_ARGUMENT: one is neither a list nor a range. */
MUST_CHECK status_t data_braces_check(const char *text, size_t begin, struct err *e);
/* The texts that the braces stand for, in their order; the text itself if it has none. The caller frees the list with
 * data_uris_free. INVALID_ARGUMENT: as above, or more than `max`. */
MUST_CHECK status_t data_braces_expand(const char *text, size_t begin, size_t max, struct data_uris *ret,
                                       struct err *e);
void data_uris_free(struct data_uris *list);

#endif
