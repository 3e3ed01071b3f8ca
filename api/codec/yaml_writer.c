#include "api/codec/text.h"
#include "api/codec/writer.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* Block style. A mapping or list that is not empty begins on a line of its own, one level deeper than its key; after
 * "- " a mapping begins on the same line. The document's own mapping has depth 1 and no indent. */

static status_t new_line(struct writer *w, struct err *e) {
    if (w->has_line) { /* the line has only "- ", or nothing yet */
        w->has_line = false;
        return ST_OK;
    }
    return bytes_printf(w->out, e, "\n%*s", w->indent * (w->depth - 1), "");
}

static status_t space(struct writer *w, struct err *e) {
    if (w->has_line || w->depth == 0) { /* after "- ", or at the start */
        w->has_line = false;
        return ST_OK;
    }
    return bytes_append(w->out, " ", 1, e);
}

static status_t yaml_open(struct writer *w, bool list, bool empty, struct err *e) {
    if (empty) {
        TRY(space(w, e));
        w->depth++;
        return bytes_append(w->out, list ? "[]" : "{}", 2, e);
    }
    if (w->depth == 0)
        w->has_line = true;
    w->depth++;
    return ST_OK;
}

static status_t yaml_close(struct writer *w, bool list, bool empty, struct err *e) {
    (void)list;
    (void)empty;
    (void)e;
    w->depth--;
    return ST_OK;
}

/* Returns true if every YAML reader reads the text as a string without quotes: it begins with a letter, has only
 * letters, digits and "_-./", and is not a word with another meaning. */
static bool is_plain(const char *s, size_t n) {
    static const char *const words[] = { "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf" };
    if (n == 0 || n > 64 || !isalpha((unsigned char)s[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("_-./", s[i]))
            return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i]) && strncasecmp(s, words[i], n) == 0)
            return false;
    return true;
}

static status_t scalar_text(struct writer *w, const char *s, size_t n, struct err *e) {
    return is_plain(s, n) ? bytes_append(w->out, s, n, e) : codec_json_string(s, n, w->out, e);
}

static status_t yaml_key(struct writer *w, const char *key, bool first, struct err *e) {
    (void)first;
    TRY(new_line(w, e));
    TRY(scalar_text(w, key, strlen(key), e));
    return bytes_append(w->out, ":", 1, e);
}

static status_t yaml_item(struct writer *w, bool first, struct err *e) {
    (void)first;
    TRY(new_line(w, e));
    TRY(bytes_append(w->out, "- ", 2, e));
    w->has_line = true;
    return ST_OK;
}

static status_t yaml_string(struct writer *w, const char *s, size_t n, struct err *e) {
    TRY(space(w, e));
    return scalar_text(w, s, n, e);
}

static status_t yaml_word(struct writer *w, const char *word, struct err *e) {
    TRY(space(w, e));
    return bytes_append(w->out, word, strlen(word), e);
}

static status_t yaml_real(struct writer *w, double value, struct err *e) {
    char text[32];
    codec_double_text(value, text);
    return yaml_word(w, isnan(value) ? ".nan" : !isinf(value) ? text : value < 0 ? "-.inf" : ".inf", e);
}

const struct writer_ops yaml_writer_ops = {
    .open = yaml_open,
    .close = yaml_close,
    .key = yaml_key,
    .item = yaml_item,
    .string = yaml_string,
    .word = yaml_word,
    .real = yaml_real,
    .integer64 = yaml_word,
};
