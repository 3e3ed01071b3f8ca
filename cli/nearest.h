/* Suggests a command for a misspelled one. */
#ifndef CLI_NEAREST_H
#define CLI_NEAREST_H

#include <stddef.h>

/* The name, of n, with the smallest edit distance to `word`: at most two missing, extra, different or transposed
 * letters, and less than half of the name's letters. NULL if there is none. Words of other programs (ls, ps, rm, ...)
 * are mapped to our commands. */
const char *nearest_command(const char *word, const char *const *names, size_t n);

#endif
