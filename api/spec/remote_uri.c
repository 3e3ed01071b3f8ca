/* Parsing goes from left to right and refuses what has no meaning, so that a typing error is a sentence and not a
 * request to somebody. */
#include "api/spec/remote_uri.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { BUCKET_MAX = 63, SHOWN = 120 };

#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static char *copy_bytes(const char *text, size_t n) {
    char *ret = alloc_zeroed(n + 1, 1);
    memcpy(ret, text, n);
    return ret;
}

void remote_uri_done(struct remote_uri *uri) {
    free(uri->root);
    free(uri->revision);
    free(uri->path);
    *uri = (struct remote_uri){ 0 };
}

/* ---- what an URI consists of ---- */

static status_t check_text(const char *text, struct err *e) {
    const size_t n = strlen(text);
    if (n > REMOTE_URI_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s...' has %zu bytes, more than %d", SHOWN, text, n, REMOTE_URI_MAX);
    if (!utf8_valid(text, n))
        return err_set(e, ST_INVALID_ARGUMENT, "the URI of data is not UTF-8");
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return err_set(e, ST_INVALID_ARGUMENT, "the URI of data has a control character");
    return ST_OK;
}

static bool has_dots(const char *path) {
    for (const char *at = path; at; at = strchr(at, '/')) {
        at += *at == '/';
        const size_t n = strcspn(at, "/");
        if ((n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return true;
    }
    return false;
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The character that %XX at `at` stands for; -1 if it is none. */
static int encoded(const char *at) {
    const int high = *at == '%' ? digit(at[1]) : -1, low = high < 0 ? -1 : digit(at[2]);
    return low < 0 ? -1 : high << 4 | low;
}

static status_t check_encoding(const char *text, const char *path, struct err *e) {
    for (const char *at = strchr(path, '%'); at; at = strchr(at + 1, '%'))
        if (encoded(at) < ' ' || encoded(at) == 0x7f)
            return err_set(e, ST_INVALID_ARGUMENT, "'%.*s': '%.3s' is no encoded character: write a %% as %%25", SHOWN,
                           text, at);
    CLEANUP(freep) char *decoded = remote_path_decode(path);
    if (!utf8_valid(decoded, strlen(decoded)))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s': its path is not UTF-8 when it is decoded", SHOWN, text);
    if (has_dots(decoded))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has a part '.' or '..'", SHOWN, text);
    return ST_OK;
}

static status_t check_path(const char *text, const char *path, struct err *e) {
    if (!*path || strcmp(path, "/") == 0 || path[strlen(path) - 1] == '/')
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is a folder: name its files", SHOWN, text);
    if (has_dots(path))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has a part '.' or '..'", SHOWN, text);
    return ST_OK;
}

static status_t wrong_form(const char *text, const char *form, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' is not a URI of the form %s", SHOWN, text, form);
}

static status_t parse_s3(const char *text, const char *rest, struct remote_uri *ret, struct err *e) {
    const size_t n = strspn(rest, ALNUM ".-_");
    if (n < 3 || n > BUCKET_MAX || rest[n] != '/')
        return wrong_form(text, "s3://BUCKET/KEY", e);
    ret->root = copy_bytes(rest, n);
    ret->path = alloc_copy_text(rest + n + 1);
    TRY(check_path(text, ret->path, e));
    return check_encoding(text, ret->path, e);
}

static status_t parse_hf(const char *text, const char *rest, struct remote_uri *ret, struct err *e) {
    static const char DATASETS[] = "datasets/";
    const size_t kind = strncmp(rest, DATASETS, sizeof DATASETS - 1) == 0 ? sizeof DATASETS - 1 : 0;
    const size_t owner = strspn(rest + kind, ALNUM "._-");
    const char *name = rest + kind + owner + 1;
    const size_t n = owner && name[-1] == '/' ? strspn(name, ALNUM "._-") : 0;
    const char *revision = n && name[n] == '@' ? name + n + 1 : "main";
    const size_t r = strspn(revision, ALNUM "._-%");
    const char *end = n && name[n] == '@' ? revision + r : name + n;
    if (n)
        ret->root = copy_bytes(rest, kind + owner + 1 + n);
    if (!n || r == 0 || *end != '/' || has_dots(ret->root))
        return wrong_form(text, "hf://OWNER/NAME/PATH", e);
    ret->revision = copy_bytes(revision, r);
    ret->path = alloc_copy_text(end + 1);
    TRY(check_path(text, ret->path, e));
    return check_encoding(text, ret->path, e);
}

/* Letters, digits, dots and dashes, or an IPv6 address; then a port. */
static size_t host_length(const char *rest) {
    size_t n = strspn(rest, ALNUM ".-");
    if (*rest == '[')
        n = 1 + strspn(rest + 1, "0123456789abcdefABCDEF:.") + 1;
    if (n == 0 || (*rest == '[' && rest[n - 1] != ']'))
        return 0;
    if (rest[n] != ':')
        return n;
    const size_t port = strspn(rest + n + 1, "0123456789");
    return port > 0 && port <= 5 ? n + 1 + port : 0;
}

static status_t check_https(const char *text, const char *path, struct err *e) {
    if (strchr(path, '#'))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' has a fragment: write # as %%23", SHOWN, text);
    for (const char *at = path; *at; at++)
        if ((unsigned char)*at > '~' || strchr(" \"<>\\^`|", *at))
            return err_set(e, ST_INVALID_ARGUMENT,
                           "'%.*s' has the character 0x%02x in its path, which must be written as %%%02X", SHOWN, text,
                           (unsigned char)*at, (unsigned char)*at);
    if (strpbrk(path, "*["))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.*s' is a pattern, and a web server does not list its files: only {000..127} and {a,b} are "
                       "supported",
                       SHOWN, text);
    return check_path(text, path, e);
}

static status_t parse_https(const char *text, const char *rest, struct remote_uri *ret, struct err *e) {
    const size_t n = host_length(rest);
    if (memchr(rest, '@', strcspn(rest, "/")))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the URI has a user or a password, which everyone who reads the job could see: name a secret "
                       "in stores.https.token");
    if (n == 0 || rest[n] != '/')
        return wrong_form(text, "https://HOST/PATH", e);
    ret->root = copy_bytes(text, (size_t)(rest - text) + n);
    ret->path = alloc_copy_text(rest + n);
    return check_https(text, ret->path, e);
}

static const struct {
    const char *prefix;
    enum data_scheme scheme;
    status_t (*parse)(const char *text, const char *rest, struct remote_uri *ret, struct err *e);
} schemes[] = {
    { "s3://", DATA_S3, parse_s3 },
    { "hf://", DATA_HF, parse_hf },
    { "https://", DATA_HTTPS, parse_https },
    { "http://", DATA_HTTPS, parse_https },
};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

static size_t scheme_find(const char *text) {
    size_t i = 0;
    while (i < SCHEMES && strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
        i++;
    return i;
}

size_t remote_uri_scheme_bytes(const char *text) {
    const size_t i = scheme_find(text);
    return i < SCHEMES ? strlen(schemes[i].prefix) : 0;
}

status_t remote_uri_parse(const char *text, struct remote_uri *ret, struct err *e) {
    const size_t i = scheme_find(text);
    TRY(check_text(text, e));
    if (i == SCHEMES)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.*s' begins with neither s3://, hf:// nor https://", SHOWN, text);
    struct remote_uri uri = { .scheme = schemes[i].scheme };
    status_t st = schemes[i].parse(text, text + strlen(schemes[i].prefix), &uri, e);
    if (st == ST_OK)
        *ret = uri;
    else
        remote_uri_done(&uri);
    return st;
}

/* ---- wildcards ---- */

bool remote_path_is_pattern(enum data_scheme scheme, const char *path) {
    return scheme != DATA_HTTPS && strpbrk(path, "*?[") != NULL;
}

bool remote_path_is_deep(const char *path) { return strchr(path + strcspn(path, "*?["), '/') != NULL; }

char *remote_path_decode(const char *path) {
    const size_t n = strcspn(path, "*?[");
    char *ret = alloc_zeroed(n + 1, 1), *to = ret;
    for (const char *at = path; at < path + n; at++) {
        const int code = encoded(at);
        *to++ = (char)(code < 0 ? *at : code);
        at += code < 0 ? 0 : 2;
    }
    return ret;
}

char *remote_text_encode(const char *text, const char *keep) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    char *ret = alloc_zeroed(3 * strlen(text) + 1, 1), *to = ret;
    for (const char *at = text; *at; at++)
        if (strchr(plain, *at) || strchr(keep, *at))
            *to++ = *at;
        else
            to += sprintf(to, "%%%02X", (unsigned char)*at);
    return ret;
}

/* fnmatch reads a character after '\\' as itself. */
char *remote_path_glob(const char *path) {
    char *ret = alloc_zeroed(2 * strlen(path) + 1, 1), *to = ret;
    for (const char *at = path; *at; at++) {
        const int code = encoded(at);
        if (code >= 0 || *at == '\\')
            *to++ = '\\';
        *to++ = (char)(code < 0 ? *at : code);
        at += code < 0 ? 0 : 2;
    }
    return ret;
}

bool remote_path_matches(const char *glob, const char *decoded) {
    return fnmatch(glob, decoded, FNM_PATHNAME | FNM_PERIOD) == 0;
}
