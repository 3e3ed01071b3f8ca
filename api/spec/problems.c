#include "api/spec/problems.h"

#include "api/codec/text.h"
#include "base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_CHARS = 63 };

void problem_add(struct spec_problems *p, const char *fmt, ...) {
    if (!p->lines)
        p->lines = calloc(SPEC_PROBLEMS, sizeof *p->lines);
    if (!p->lines || p->n == SPEC_PROBLEMS)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->lines[p->n], SPEC_PROBLEM_BYTES, fmt, args);
    va_end(args);
    char *line = p->lines[p->n++];
    utf8_printable(line, strlen(line), "", line); /* it repeats what a peer sent, and may be cut inside a character */
}

void spec_problems_done(struct spec_problems *p) {
    free(p->lines);
    *p = (struct spec_problems){ 0 };
}

bool check_int(struct spec_problems *p, const char *path, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most)
        return true;
    problem_add(p, "%s: %" PRId64 " is not from %" PRId64 " to %" PRId64, path, value, least, most);
    return false;
}

bool check_given(struct spec_problems *p, const char *path, int64_t value, int64_t most) {
    if (value != 0)
        return check_int(p, path, value, 1, most);
    problem_add(p, "%s: must be given, from 1 to %" PRId64, path, most);
    return false;
}

/* Written so that NaN fails. */
bool check_real(struct spec_problems *p, const char *path, double value, double least, double most) {
    if (value >= least && value <= most)
        return true;
    char shown[32], low[32], high[32];
    codec_double_text(value, shown);
    codec_double_text(least, low);
    codec_double_text(most, high);
    problem_add(p, "%s: %s is not from %s to %s", path, shown, low, high);
    return false;
}

bool check_real_below(struct spec_problems *p, const char *path, double value, double least, double below) {
    if (value >= least && value < below)
        return true;
    char shown[32], low[32], high[32];
    codec_double_text(value, shown);
    codec_double_text(least, low);
    codec_double_text(below, high);
    problem_add(p, "%s: %s is not at least %s and below %s", path, shown, low, high);
    return false;
}

bool check_choice(struct spec_problems *p, const char *path, const char *value, const char *const choices[]) {
    char names[128] = "";
    size_t used = 0;
    for (size_t i = 0; choices[i]; i++) {
        if (strcmp(value, choices[i]) == 0)
            return true;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", choices[i]);
    }
    problem_add(p, "%s: '%.40s' is not one of: %s", path, value, names);
    return false;
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
        problem_add(p, "%s: '%.63s' is no name: letters, digits, '.', '_' and '-', the first a letter or a digit", path,
                    value);
        return false;
    }
    return true;
}
