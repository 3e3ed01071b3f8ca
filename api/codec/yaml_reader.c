/* Reading text as a sequence of libyaml's events.
 *
 * Before parsing, the text is checked for its size and for UTF-8, and JSON's surrogate pairs are converted, which
 * libyaml does not know. While events are read, aliases are refused, which could expand a short text to gigabytes, and
 * nesting is limited. */
#include "api/codec/yaml_reader.h"

#include "api/codec/scalar.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool hex4(const char *s, uint32_t *ret) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *at;
        char c = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] - 'A' + 'a') : s[i];
        if (!c || !(at = strchr(digits, c)))
            return false;
        value = value << 4 | (uint32_t)(at - digits);
    }
    *ret = value;
    return true;
}

/* JSON writes characters beyond U+FFFF as two escapes, \ud83d\ude00, which YAML does not know. Converts them to
 * \U0001f600, only in a text that begins as JSON: there a backslash occurs only in quoted strings. Works in place,
 * because the text becomes shorter. */
static size_t join_surrogates(char *text, size_t n) {
    size_t start = strspn(text, " \t\r\n"), to = start;
    if (text[start] != '{' && text[start] != '[' && text[start] != '"')
        return n;
    for (size_t i = start; i < n;) {
        uint32_t high, low;
        if (text[i] != '\\' || i + 1 >= n) {
            text[to++] = text[i++];
        } else if (i + 12 <= n && text[i + 1] == 'u' && hex4(text + i + 2, &high) && (high & 0xfc00) == 0xd800 &&
                   text[i + 6] == '\\' && text[i + 7] == 'u' && hex4(text + i + 8, &low) && (low & 0xfc00) == 0xdc00) {
            char joined[16];
            snprintf(joined, sizeof joined, "\\U%08x", 0x10000 + ((high & 0x3ff) << 10 | (low & 0x3ff)));
            memcpy(text + to, joined, 10);
            to += 10;
            i += 12;
        } else {
            text[to++] = text[i++];
            text[to++] = text[i++];
        }
    }
    return to;
}

static status_t syntax_error(const struct yaml_reader *r, struct err *e) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        alloc_refused(sizeof r->parser);
    size_t line = p->problem_mark.line + 1;
    if (p->error == YAML_READER_ERROR)
        return err_set(e, ST_INVALID_ARGUMENT, "byte %zu: %s", p->problem_offset, p->problem);
    if (p->context)
        return err_set(e, ST_INVALID_ARGUMENT, "line %zu: %s (%s)", line, p->problem, p->context);
    return err_set(e, ST_INVALID_ARGUMENT, "line %zu: %s", line, p->problem ? p->problem : "not YAML");
}

static status_t refuse(const struct yaml_reader *r, const char *what, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "line %zu: %s", r->event.start_mark.line + 1, what);
}

/* Counts the nesting, and refuses features of YAML that a message cannot use. */
static status_t check_event(struct yaml_reader *r, struct err *e) {
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT: return refuse(r, "aliases (*name) are not accepted: write the value out", e);
    case YAML_SCALAR_EVENT:
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
        r->depth++;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
        r->depth++;
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; break;
    default: break;
    }
    if (anchor)
        return refuse(r, "anchors (&name) are not accepted: write the value out", e);
    if (tag)
        return refuse(r, "tags (!name) are not accepted: the field decides the type", e);
    if (r->depth > r->max_depth)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "line %zu: nested deeper than %d levels", r->event.start_mark.line + 1,
                       r->max_depth);
    return ST_OK;
}

status_t yaml_reader_next(struct yaml_reader *r, struct err *e) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        memset(&r->event, 0, sizeof r->event);
        return syntax_error(r, e);
    }
    return check_event(r, e);
}

static status_t read_prologue(struct yaml_reader *r, struct err *e) {
    TRY(yaml_reader_next(r, e)); /* the stream's start */
    TRY(yaml_reader_next(r, e));
    if (r->event.type == YAML_DOCUMENT_START_EVENT)
        TRY(yaml_reader_next(r, e));
    return ST_OK;
}

status_t yaml_reader_open(struct yaml_reader *r, const char *text, size_t n, const struct codec_options *options,
                          struct err *e) {
    static const struct codec_options defaults;
    options = options ? options : &defaults;
    size_t limit = options->text_bytes ? options->text_bytes : LIMIT_SPEC_BYTES;
    if (n > limit)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the text has %zu bytes; at most %zu are read", n, limit);
    if (!utf8_valid(text, n))
        return err_set(e, ST_INVALID_ARGUMENT, "the text is not UTF-8");
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
        text += 3;
        n -= 3;
    }
    *r = (struct yaml_reader){ .max_depth = options->depth ? options->depth : LIMIT_SPEC_DEPTH };
    if (!yaml_parser_initialize(&r->parser))
        alloc_refused(sizeof r->parser);
    r->text = alloc_zeroed(n + 1, 1);
    if (n)
        memcpy(r->text, text, n);
    r->json = r->text[strspn(r->text, " \t\r\n")] == '{';
    n = join_surrogates(r->text, n);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, n);
    status_t st = read_prologue(r, e);
    if (st != ST_OK)
        yaml_reader_close(r);
    return st;
}

void yaml_reader_close(struct yaml_reader *r) {
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    free(r->text);
    r->text = NULL;
}

status_t yaml_reader_finish(struct yaml_reader *r, struct err *e) {
    do {
        TRY(yaml_reader_next(r, e));
    } while (r->event.type == YAML_DOCUMENT_END_EVENT);
    if (r->event.type != YAML_STREAM_END_EVENT)
        return refuse(r, "a second document begins; exactly one is read", e);
    return ST_OK;
}

bool yaml_reader_at_empty(const struct yaml_reader *r) {
    return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           r->event.data.scalar.length == 0;
}

bool yaml_reader_at_null(const struct yaml_reader *r) {
    static const char *const words[] = { "", "~", "null", "Null", "NULL" };
    if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp((const char *)r->event.data.scalar.value, words[i]) == 0)
            return true;
    return false;
}

void yaml_reader_found(const struct yaml_reader *r, char ret[64]) {
    switch (r->event.type) {
    case YAML_MAPPING_START_EVENT: snprintf(ret, 64, "a mapping"); break;
    case YAML_SEQUENCE_START_EVENT: snprintf(ret, 64, "a list"); break;
    case YAML_SCALAR_EVENT:
        if (yaml_reader_at_null(r))
            snprintf(ret, 64, "nothing");
        else
            scalar_quote((const char *)r->event.data.scalar.value, r->event.data.scalar.length, ret);
        break;
    default: snprintf(ret, 64, "nothing"); break;
    }
}
