/* Runs another program of the same folder. The client does not contain the engine; trainyard-train runs the commands
 * that need it.
 *
 *     struct sibling s = { 0 };
 *     sibling_add(&s, "plan");
 *     sibling_add(&s, file);
 *     return sibling_become(&s, "trainyard-train", e);      // returns only on failure */
#ifndef CLI_SIBLING_H
#define CLI_SIBLING_H

#include "base/status.h"

#include <stddef.h>

enum { SIBLING_WORDS = 160 };

struct sibling {
    const char *words[SIBLING_WORDS]; /* borrowed */
    size_t n;
};

/* Appends an argument. sibling_become refuses too many arguments. */
void sibling_add(struct sibling *s, const char *word);

/* Replaces this process by the program with these arguments. NOT_FOUND if the program does not exist. */
MUST_CHECK status_t sibling_become(const struct sibling *s, const char *program, struct err *e);

/* Runs it and waits. INTERNAL if it fails; it has said why. */
MUST_CHECK status_t sibling_run(const struct sibling *s, const char *program, struct err *e);

#endif
