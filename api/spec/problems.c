#include "api/spec/problems.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_CHARS = 63 };

void problem_add(struct spec_problems *p, const char *fmt, ...) {
    if (!p)
        return;
    if (!p->lines)
        p->lines = alloc_zeroed(SPEC_PROBLEMS, sizeof *p->lines);
    if (p->n == SPEC_PROBLEMS)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->lines[p->n], SPEC_PROBLEM_BYTES, fmt, args);
    va_end(args);
    char *line = p->lines[p->n++];
    utf8_printable(line, strlen(line), "", line); /* a peer's text, possibly cut inside a character */
}

void spec_problems_done(struct spec_problems *p) {
    free(p->lines);
    *p = (struct spec_problems){ 0 };
}

bool check_name(struct spec_problems *p, const char *path, const char *value) {
    size_t n = strlen(value);
    if (n == 0 || n > NAME_CHARS) {
        problem_add(p, "%s: has %zu characters; a name has 1 to %d", path, n, NAME_CHARS);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        bool letter = isascii((unsigned char)value[i]) && isalnum((unsigned char)value[i]);
        if (letter || (i > 0 && strchr("._-", value[i])))
            continue;
        problem_add(p, "%s: '%.63s' is not a name: letters, digits, '.', '_' and '-', the first a letter or a digit",
                    path, value);
        return false;
    }
    return true;
}
