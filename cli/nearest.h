/* Suggests a command for a misspelled one. */
#ifndef CLI_NEAREST_H
#define CLI_NEAREST_H

#include <stddef.h>

/* Returns the name, of n, with the smallest edit distance to `word`. The distance counts missing, extra, different and
 * transposed letters; it must be at most two and less than half of the name's length. Returns NULL if no name is so
 * near. Words of other programs (ls, ps, rm, ...) are mapped to our commands. */
const char *nearest_command(const char *word, const char *const *names, size_t n);

/* The same without the aliases of commands. */
const char *nearest_word(const char *word, const char *const *names, size_t n);

#endif
