/* Text from outside, in a form that PostgreSQL accepts: valid UTF-8 of bounded length. Internal to the store. */
#ifndef SERVICE_STORE_TEXT_H
#define SERVICE_STORE_TEXT_H

#include <stddef.h>

/* Copies text to ret (capacity bytes, at least 4), cut between two characters. Bytes that are not UTF-8 become U+FFFD.
 * Returns the length. */
size_t text_clean(const char *text, char *ret, size_t capacity);

#endif
