#include "cli/import/texts.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void import_texts_add(struct import_texts *t, const char *name, const char *value) {
    char item[IMPORT_VALUE_BYTES], printable[IMPORT_VALUE_BYTES];
    snprintf(item, sizeof item, "%s%s%s", name, *value ? "=" : "", value);
    utf8_copy_printable(item, printable, sizeof printable);
    char *last = t->n > 0 ? t->all[t->n - 1] : NULL;
    if (last && strlen(last) + strlen(printable) + 2 <= IMPORT_TEXT_BYTES) {
        t->all[t->n - 1] = alloc_format("%s, %s", last, printable);
        free(last);
    } else if (t->n < IMPORT_TEXTS) {
        t->all[t->n++] = alloc_copy_text(printable);
    }
}

void import_texts_done(struct import_texts *t) {
    for (size_t i = 0; i < t->n; i++)
        free(t->all[i]);
    *t = (struct import_texts){ 0 };
}
