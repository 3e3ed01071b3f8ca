/* Braces are written out from the left, one pair at a time: the list begins with the text, and each pass replaces every
 * entry by one for each item of its first braces, until no entry has braces. An item is shorter than its braces, so no
 * entry is longer than the text. */
#include "api/spec/data_braces.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9, SHOWN = 120 };

/* "{000..127}", "{a,b}" */
struct braces {
    const char *body, *close; /* behind the '{'; the '}' */
    bool listed;
    int first, last, digits; /* of a range; digits: of each number at least */
};

/* Returns the first '{' outside of brackets, or NULL. */
static const char *brace_find(const char *at) {
    for (; *at; at++) {
        const char *end = *at == '[' && at[1] ? strchr(at + 2, ']') : NULL; /* ']' right after '[' is a character */
        if (end)
            at = end;
        else if (*at == '{')
            return at;
    }
    return NULL;
}

static bool number_read(const char *text, size_t n, int *ret) {
    if (n == 0 || n > DIGITS_MAX || strspn(text, "0123456789") < n)
        return false;
    *ret = (int)strtol(text, NULL, 10);
    return true;
}

/* With as many digits as the longer end, if one of them begins with 0. */
static bool range_read(struct braces *b) {
    const char *dots = strstr(b->body, "..");
    if (!dots || dots > b->close)
        return false;
    const size_t n = (size_t)(dots - b->body), m = (size_t)(b->close - dots) - 2;
    const bool padded = (n > 1 && *b->body == '0') || (m > 1 && dots[2] == '0');
    b->digits = !padded ? 1 : n > m ? (int)n : (int)m;
    return b->close >= dots + 2 && number_read(b->body, n, &b->first) && number_read(dots + 2, m, &b->last) &&
           b->first <= b->last;
}

static bool braces_read(const char *open, struct braces *ret) {
    *ret = (struct braces){ .body = open + 1, .close = open + 1 + strcspn(open + 1, "{}") };
    if (*ret->close != '}')
        return false;
    ret->listed = memchr(ret->body, ',', (size_t)(ret->close - ret->body)) != NULL;
    return ret->listed || range_read(ret);
}

status_t data_braces_check(const char *text, size_t begin, struct err *e) {
    struct braces braces;
    for (const char *at = text + begin; (at = brace_find(at)); at = braces.close)
        if (!braces_read(at, &braces))
            return err_set(e, ST_INVALID_ARGUMENT,
                           "'%.*s' has braces that are neither a range such as {000..127} nor a list such as {a,b}",
                           SHOWN, text);
    return ST_OK;
}

static void add(struct data_uris *list, char *uri) {
    list->all = alloc_grow(list->all, list->n, sizeof *list->all);
    list->all[list->n++] = uri;
}

void data_uris_free(struct data_uris *list) {
    for (size_t i = 0; i < list->n; i++)
        free(list->all[i]);
    free(list->all);
    *list = (struct data_uris){ 0 };
}

struct expansion {
    const char *whole; /* the text with all of its braces, for sentences */
    size_t begin, max;
    struct data_uris *ret;
};

static status_t add_item(const struct expansion *x, const char *text, const struct braces *b, const char *item,
                         size_t n, struct err *e) {
    if (x->ret->n == x->max)
        return err_set(e, ST_INVALID_ARGUMENT, "the braces of '%.*s' make more than %zu names", SHOWN, x->whole,
                       x->max);
    add(x->ret, alloc_format("%.*s%.*s%s", (int)(b->body - 1 - text), text, (int)n, item, b->close + 1));
    return ST_OK;
}

/* Adds the text with each item in place of its first braces. */
static status_t add_items(const struct expansion *x, const char *text, const char *open, struct err *e) {
    struct braces b;
    char number[16];
    if (!braces_read(open, &b))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has braces without a list or a range", SHOWN, text);
    for (const char *at = b.body; b.listed && at <= b.close; at += strcspn(at, ",}") + 1)
        TRY(add_item(x, text, &b, at, strcspn(at, ",}"), e));
    for (int k = b.first; !b.listed && k <= b.last; k++) {
        const int n = snprintf(number, sizeof number, "%0*d", b.digits, k);
        TRY(add_item(x, text, &b, number, (size_t)n, e));
    }
    return ST_OK;
}

static status_t expand_once(const struct expansion *x, const struct data_uris *from, bool *ret_more, struct err *e) {
    *ret_more = false;
    for (size_t i = 0; i < from->n; i++) {
        const char *open = brace_find(from->all[i] + x->begin);
        *ret_more |= open != NULL;
        if (open)
            TRY(add_items(x, from->all[i], open, e));
        else
            add(x->ret, alloc_copy_text(from->all[i]));
    }
    return ST_OK;
}

status_t data_braces_expand(const char *text, size_t begin, size_t max, struct data_uris *ret, struct err *e) {
    struct data_uris list = { 0 };
    status_t st = ST_OK;
    add(&list, alloc_copy_text(text));
    for (bool more = true; more && st == ST_OK;) {
        struct data_uris next = { 0 };
        st = expand_once(&(struct expansion){ text, begin, max, &next }, &list, &more, e);
        data_uris_free(&list);
        list = next;
    }
    if (st != ST_OK)
        data_uris_free(&list);
    *ret = list;
    return st;
}
