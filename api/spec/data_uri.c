/* A URI is checked from the left: the scheme, what it calls a host, a bucket or a repository, then the path. */
#include "api/spec/data_uri.h"

#include "api/codec/message.h"
#include "api/spec/data_sources.h"
#include "api/spec/fields.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 120, FIELD_BYTES = 160 };

#define LETTERS_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static const struct scheme {
    const char *begin;
    const char *form;
    int folders; /* parts of the path, the file included, at least */
} SCHEMES[] = {
    { "https://", "https://HOST/PATH", 1 },
    { "http://", "https://HOST/PATH", 1 },
    { "s3://", "s3://BUCKET/KEY", 1 },
    { "hf://", "hf://OWNER/NAME/PATH", 2 },
};

static const struct scheme *scheme_of(const char *uri) {
    for (size_t i = 0; i < sizeof SCHEMES / sizeof *SCHEMES; i++)
        if (strncmp(uri, SCHEMES[i].begin, strlen(SCHEMES[i].begin)) == 0)
            return &SCHEMES[i];
    return NULL;
}

bool data_uri_is_remote(const char *uri) { return scheme_of(uri) != NULL; }

/* Behind the scheme and what follows it up to the path. */
static const char *path_of(const char *uri) {
    const struct scheme *s = scheme_of(uri);
    const char *at = s ? uri + strlen(s->begin) : uri;
    return s ? at + strcspn(at, "/") : at;
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
    if (is_https(uri) && strpbrk(path_of(uri), "*["))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.*s' is a pattern, and a web server does not list its files: only {000..127} and {a,b} are "
                       "supported",
                       SHOWN, uri);
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

static bool is_bucket(const char *name, size_t n) {
    return n >= 3 && n <= 63 && strspn(name, LETTERS_DIGITS "._-") >= n;
}

static status_t check_authority(const char *uri, const struct scheme *s, struct err *e) {
    const char *host = uri + strlen(s->begin);
    const size_t n = strcspn(host, "/");
    if (memchr(host, '@', n) && is_https(uri))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the URI has a user or a password, which everyone who reads the job could see: name a secret "
                       "in stores.https.token");
    if (n == 0 || (strncmp(uri, "s3:", 3) == 0 && !is_bucket(host, n)))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is not a URI of the form %s", SHOWN, uri, s->form);
    return ST_OK;
}

/* A path has no part "." or "..", and ends with a file. Keys of S3 may have empty parts. */
static status_t check_parts(const char *uri, const char *path, const struct scheme *s, struct err *e) {
    int parts = 0;
    for (; *path == '/'; parts++) {
        const size_t n = strcspn(++path, "/");
        if (n == 0 && !*path)
            return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is a folder: name its files", SHOWN, uri);
        if ((n == 1 && *path == '.') || (n == 2 && strncmp(path, "..", 2) == 0))
            return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has a part '.' or '..'", SHOWN, uri);
        path += n;
    }
    return parts >= s->folders
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is not a URI of the form %s", SHOWN, uri, s->form);
}

/* In S3 and hf, a name is decoded as in other URIs. */
static status_t check_encoding(const char *uri, struct err *e) {
    for (const char *at = strchr(uri, '%'); at; at = strchr(at + 1, '%'))
        if (!isxdigit((unsigned char)at[1]) || !isxdigit((unsigned char)at[2]))
            return err_set(e, ST_INVALID_ARGUMENT, "'%.*s': '%.3s' is no encoded character: write a %% as %%25", SHOWN,
                           uri, at);
    return ST_OK;
}

static status_t check_remote(const char *uri, const struct scheme *s, struct err *e) {
    if (strlen(uri) >= DATA_URI_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has more than %d bytes", SHOWN, uri, DATA_URI_BYTES - 1);
    if (is_https(uri) && strchr(uri, '#'))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has a fragment: write # as %%23", SHOWN, uri);
    TRY(check_authority(uri, s, e));
    TRY(check_encoding(uri, e));
    return check_parts(uri, path_of(uri), s, e);
}

status_t data_uri_check(const char *uri, bool may_be_pattern, struct err *e) {
    const struct scheme *s = scheme_of(uri);
    if (has_control(uri) || !utf8_valid(uri, strlen(uri)))
        return err_set(e, ST_INVALID_ARGUMENT, "the URI is not UTF-8, or has a control character");
    if (!s && strncmp(uri, "file:", 5) != 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.*s' is not a URI of the form file:///PATH, https://HOST/PATH, s3://BUCKET/KEY or "
                       "hf://OWNER/NAME/PATH",
                       SHOWN, uri);
    TRY(s ? check_remote(uri, s, e) : check_file(uri, e));
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
