/* Text from outside, made storable: UTF-8, bounded. Internal to the store. */
#ifndef SERVICE_STORE_TEXT_H
#define SERVICE_STORE_TEXT_H

#include <stddef.h>

/* Copies text to ret (room bytes, at least 4), cut at a character's edge; what is not UTF-8 becomes U+FFFD. Returns the
 * length. */
size_t text_clean(const char *text, char *ret, size_t room);

/* A sentence for people, as a row may hold it. Whoever made it may have cut it inside a character, and a reason that
 * cannot be stored would hold up what it is the reason of. */
struct sentence {
    char text[1024];
};
/* NULL is "". Returns s->text. */
const char *sentence_of(const char *text, struct sentence *s);

#endif
