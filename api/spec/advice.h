/* The names that other programs use for the fields of a spec. Internal to this folder. */
#ifndef API_SPEC_ADVICE_H
#define API_SPEC_ADVICE_H

#include <stddef.h>

/* A sentence about the unknown field `name`, or NULL: codec_advice of api/codec/text.h.
 * Thread-safe; the text is static. */
const char *spec_advice(const char *name);

/* The sentence of a row; NULL after the last row. For tests. */
const char *spec_advice_row(size_t row);

#endif
