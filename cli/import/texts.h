/* Parameters or tags of an imported run, as texts of events: "lr=0.1, momentum=0.9". Several share a text. */
#ifndef CLI_IMPORT_TEXTS_H
#define CLI_IMPORT_TEXTS_H

#include "base/cleanup.h"

#include <stddef.h>

enum { IMPORT_TEXT_BYTES = 1000, IMPORT_TEXTS = 20, IMPORT_VALUE_BYTES = 400 };

struct import_texts {
    char *all[IMPORT_TEXTS];
    size_t n;
};

/* An item has at most IMPORT_VALUE_BYTES; what does not fit is cut, and items beyond the last text are left out.
 * value: "" for a name alone. */
void import_texts_add(struct import_texts *t, const char *name, const char *value);
void import_texts_done(struct import_texts *t);

#endif
