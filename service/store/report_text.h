/* Text from outside, made storable: UTF-8, bounded. Internal to the store. */
#ifndef SERVICE_STORE_REPORT_TEXT_H
#define SERVICE_STORE_REPORT_TEXT_H

#include <stddef.h>

/* Copies text to ret (room bytes, at least 4), cut at a character's edge; what is not UTF-8 becomes U+FFFD. Returns the
 * length. */
size_t text_clean(const char *text, char *ret, size_t room);

#endif
