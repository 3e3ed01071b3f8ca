/* Programs that stand beside this one. The client knows neither the engine nor its files; what needs them on this
 * machine is trainyard-train's work.
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

/* What does not fit is refused by sibling_become. */
void sibling_add(struct sibling *s, const char *word);

/* This process goes on as that program, with those arguments. NOT_FOUND when it is not there. */
MUST_CHECK status_t sibling_become(const struct sibling *s, const char *program, struct err *e);

#endif
