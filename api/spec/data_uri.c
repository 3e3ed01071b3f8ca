/* A remote URI is what remote_uri.c parses; one of a file is checked here. */
#include "api/spec/data_uri.h"

#include "api/codec/message.h"
#include "api/spec/data_sources.h"
#include "api/spec/fields.h"
#include "api/spec/remote_uri.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 120, FIELD_BYTES = 160 };

bool data_uri_is_remote(const char *uri) { return remote_uri_scheme_bytes(uri) > 0; }

/* Behind the scheme and what follows it up to the path. */
static const char *path_of(const char *uri) {
    const char *at = uri + remote_uri_scheme_bytes(uri);
    return at > uri ? at + strcspn(at, "/") : at;
}

static bool is_https(const char *uri) { return strncmp(uri, "https://", 8) == 0 || strncmp(uri, "http://", 7) == 0; }

static const char *special_of(const char *uri) { return is_https(uri) ? "*[{" : "*?[{"; }

bool data_uri_is_pattern(const char *uri) { return strpbrk(path_of(uri), special_of(uri)) != NULL; }

size_t data_uri_plain_bytes(const char *uri) {
    const char *path = path_of(uri);
    return (size_t)(path - uri) + strcspn(path, special_of(uri));
}

/* ---- patterns ---- */

static status_t check_pattern(const char *uri, bool may_be_pattern, struct err *e) {
    if (!data_uri_is_pattern(uri))
        return ST_OK;
    if (!may_be_pattern)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is a pattern, and this field names one file%s", SHOWN, uri,
                       data_uri_is_remote(uri) ? "" : ": write *, ?, [ and { as %2A, %3F, %5B and %7B");
    return data_braces_check(uri, (size_t)(path_of(uri) - uri), e);
}

status_t data_uri_expand(const char *uri, size_t max, struct data_uris *ret, struct err *e) {
    return data_braces_expand(uri, (size_t)(path_of(uri) - uri), max, ret, e);
}

/* A decoded character means itself, so it is escaped. */
bool data_uri_part_pattern(const char *part, size_t n, char *ret, size_t cap) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = part[i];
        if (used + 3 > cap)
            return false;
        if (c == '%') {
            char digits[3] = { 0 };
            if (i + 2 >= n || !isxdigit((unsigned char)part[i + 1]) || !isxdigit((unsigned char)part[i + 2]))
                return false;
            memcpy(digits, part + i + 1, 2);
            c = (char)strtol(digits, NULL, 16);
            i += 2;
            ret[used++] = '\\';
        } else if (c == '\\') {
            ret[used++] = '\\';
        }
        ret[used++] = c;
    }
    ret[used] = '\0';
    return true;
}

/* ---- one URI ---- */

static bool has_control(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

/* A pattern is checked as the path that it is without its special characters. */
static status_t check_file(const char *uri, struct err *e) {
    char plain[DATA_URI_BYTES], path[DATA_URI_BYTES];
    if (snprintf(plain, sizeof plain, "%s", uri) >= (int)sizeof plain)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has more than %d bytes", SHOWN, uri, DATA_URI_BYTES - 1);
    for (char *at = plain; *at; at++)
        if (strchr("*?[]{},", *at))
            *at = 'x';
    return spec_uri_path(plain, path, sizeof path, e);
}

static status_t check_remote(const char *uri, struct err *e) {
    struct remote_uri parts = { 0 };
    TRY(remote_uri_parse(uri, &parts, e));
    remote_uri_done(&parts);
    return ST_OK;
}

status_t data_uri_check(const char *uri, bool may_be_pattern, struct err *e) {
    const bool is_remote = data_uri_is_remote(uri);
    if (has_control(uri) || !utf8_valid(uri, strlen(uri)))
        return err_set(e, ST_INVALID_ARGUMENT, "the URI is not UTF-8, or has a control character");
    if (!is_remote && strncmp(uri, "file:", 5) != 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.*s' is not a URI of the form file:///PATH, https://HOST/PATH, s3://BUCKET/KEY or "
                       "hf://OWNER/NAME/PATH",
                       SHOWN, uri);
    TRY(is_remote ? check_remote(uri, e) : check_file(uri, e));
    return check_pattern(uri, may_be_pattern, e);
}

/* ---- of a spec ---- */

static void add_remote(const char ***list, size_t *n, const char *uri) {
    if (!data_uri_is_remote(uri))
        return;
    *list = alloc_grow(*list, *n, sizeof **list);
    (*list)[(*n)++] = uri;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static void add_source(const char ***list, size_t *n, const ProtobufCMessage *source) {
    for (unsigned i = 0; i < source->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &source->descriptor->fields[i];
        size_t here = 1;
        const Trainyard__V1__SpecField__Format format = spec_field(source->descriptor, i)->format;
        if ((format != TRAINYARD__V1__SPEC_FIELD__FORMAT__DATA_URI &&
             format != TRAINYARD__V1__SPEC_FIELD__FORMAT__DATA_FILES) ||
            (!field_is_repeated(f) && field_has_presence(f) && !field_is_set(source, f)))
            continue;
        char *const *uris = field_is_repeated(f) ? field_elements(source, f, &here) : field_value(source, f);
        for (size_t u = 0; u < here; u++)
            add_remote(list, n, uris[u]);
    }
}

const char **data_uris_remote(const Trainyard__V1__JobSpec *spec, size_t *ret_n) {
    struct data_sources sources;
    const char **list = NULL;
    size_t n = 0;
    data_sources_of(spec->data, &sources);
    for (int s = 0; s < sources.n; s++)
        add_source(&list, &n, sources.items[s].message);
    if (n)
        qsort(list, n, sizeof *list, by_text);
    *ret_n = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(list[i], list[*ret_n - 1]) != 0)
            list[(*ret_n)++] = list[i];
    return list;
}

/* ---- sentences ---- */

/* The longest URI that the sentence names decides: one may be the beginning of another. Of a pattern the sentence has
 * only the beginning, before the first special character. */
struct search {
    const char *sentence, *source; /* the path of its field */
    size_t longest;
    char field[FIELD_BYTES];
};

static void search_uri(struct search *s, const ProtobufCFieldDescriptor *f, const char *uri, size_t u) {
    char begin[DATA_URI_BYTES];
    const size_t length = data_uri_is_pattern(uri) ? data_uri_plain_bytes(uri) : strlen(uri);
    if (!data_uri_is_remote(uri) || length <= s->longest || length >= sizeof begin)
        return;
    snprintf(begin, sizeof begin, "%.*s", (int)length, uri);
    if (!strstr(s->sentence, begin))
        return;
    s->longest = length;
    const int n = snprintf(s->field, sizeof s->field, "%s.%s", s->source, f->name);
    if (field_is_repeated(f))
        snprintf(s->field + n, sizeof s->field - (size_t)n, "[%zu]", u);
}

static void search_source(struct search *s, const ProtobufCMessage *source) {
    for (unsigned i = 0; i < source->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &source->descriptor->fields[i];
        size_t n = 1;
        if (f->type != PROTOBUF_C_TYPE_STRING ||
            (!field_is_repeated(f) && field_has_presence(f) && !field_is_set(source, f)))
            continue;
        char *const *uris = field_is_repeated(f) ? field_elements(source, f, &n) : field_value(source, f);
        for (size_t u = 0; u < n; u++)
            search_uri(s, f, uris[u], u);
    }
}

void data_uri_field(const Trainyard__V1__JobSpec *spec, const char *sentence, char *ret, size_t cap) {
    struct search s = { .sentence = sentence, .field = "data" };
    struct data_sources sources;
    data_sources_of(spec->data, &sources);
    for (int i = 0; i < sources.n; i++) {
        s.source = sources.items[i].path;
        search_source(&s, sources.items[i].message);
    }
    snprintf(ret, cap, "%s", s.field);
}
