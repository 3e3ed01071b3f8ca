/* Headers are compared without case, as HTTP says. The message of a refusal is the content of <Message> in XML (S3),
 * of "error" in JSON (hf), or else the first line of a text: it is looked for as a text, because a proxy may answer in
 * place of the store, in any form. */
#include "executor/data/answer.h"

#include "base/utf8.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { RETRY_AFTER_MAX_S = 24 * 3600 };

void answer_init(struct answer *a) {
    *a = (struct answer){ 0 };
    bytes_init(&a->body, ANSWER_BODY_MAX);
    answer_clear(a);
}

void answer_done(struct answer *a) { bytes_done(&a->body); }

void answer_clear(struct answer *a) {
    struct bytes body = a->body;
    bytes_clear(&body);
    *a = (struct answer){ .length = -1, .range_from = -1, .range_total = -1, .linked_bytes = -1, .body = body };
}

/* ---- headers ---- */

/* Decimal digits alone, of at most 18. */
static bool number_read(const char *text, int64_t *ret) {
    const size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18 || text[n])
        return false;
    *ret = strtoll(text, NULL, 10);
    return true;
}

static void text_take(char *ret, size_t bytes, const char *value) {
    if (strlen(value) < bytes)
        strcpy(ret, value);
}

/* bytes FROM-TO/TOTAL, or bytes * / TOTAL after a range that does not exist. */
static void range_read(struct answer *a, const char *value) {
    long long from, to, total;
    if (sscanf(value, "bytes %18lld-%18lld/%18lld", &from, &to, &total) == 3 && from >= 0 && to >= from && total > to) {
        a->range_from = from;
        a->range_total = total;
    }
}

static void etag_read(char ret[ANSWER_TAG_BYTES], const char *value) {
    if (strncmp(value, "W/", 2) != 0)
        text_take(ret, ANSWER_TAG_BYTES, value);
}

static void retry_after_read(struct answer *a, const char *value) {
    int64_t s = 0;
    if (!number_read(value, &s)) {
        const time_t at = curl_getdate(value, NULL), now = time(NULL);
        s = at > now ? (int64_t)(at - now) : 0;
    }
    a->retry_after_ms = 1000 * (s < RETRY_AFTER_MAX_S ? s : RETRY_AFTER_MAX_S);
}

/* <ADDRESS>; rel="next" */
static void link_read(struct answer *a, const char *value) {
    for (const char *at = value; (at = strchr(at, '<')); at++) {
        const char *end = strchr(at, '>');
        const char *other = end ? strchr(end, '<') : NULL;
        const char *rel = end ? strstr(end, "rel=\"next\"") : NULL;
        if (rel && (!other || rel < other) && (size_t)(end - at) <= sizeof a->next) {
            memcpy(a->next, at + 1, (size_t)(end - at) - 1);
            a->next[end - at - 1] = '\0';
            return;
        }
    }
}

static void checksum_read(struct answer *a, const char *name, const char *value) {
    static const struct {
        const char *name;
        enum check_kind kind;
    } kinds[] = {
        { "sha256", CHECK_SHA256 }, { "sha1", CHECK_SHA1 }, { "crc32c", CHECK_CRC32C }, { "crc32", CHECK_CRC32 }
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcasecmp(name, kinds[i].name) == 0)
            check_add(&a->check, kinds[i].kind, value, false); /* one of parts ends in -N and is no Base64 */
}

static void header_take(struct answer *a, const char *name, const char *value) {
    static const char CHECKSUM[] = "x-amz-checksum-";
    if (strcasecmp(name, "content-length") == 0)
        number_read(value, &a->length);
    else if (strcasecmp(name, "content-range") == 0)
        range_read(a, value);
    else if (strcasecmp(name, "accept-ranges") == 0)
        a->ranges = strcasecmp(value, "bytes") == 0;
    else if (strcasecmp(name, "etag") == 0)
        etag_read(a->etag, value);
    else if (strcasecmp(name, "last-modified") == 0)
        text_take(a->modified, sizeof a->modified, value);
    else if (strcasecmp(name, "retry-after") == 0)
        retry_after_read(a, value);
    else if (strcasecmp(name, "link") == 0)
        link_read(a, value);
    else if (strcasecmp(name, "x-repo-commit") == 0)
        text_take(a->commit, sizeof a->commit, value);
    else if (strcasecmp(name, "x-linked-etag") == 0)
        etag_read(a->linked_etag, value);
    else if (strcasecmp(name, "x-linked-size") == 0)
        number_read(value, &a->linked_bytes);
    else if (strcasecmp(name, "x-amz-bucket-region") == 0)
        text_take(a->region, sizeof a->region, value);
    else if (strcasecmp(name, "x-amz-server-side-encryption-customer-algorithm") == 0 ||
             (strcasecmp(name, "x-amz-server-side-encryption") == 0 && strncmp(value, "aws:kms", 7) == 0))
        a->encrypted = true;
    else if (strncasecmp(name, CHECKSUM, sizeof CHECKSUM - 1) == 0)
        checksum_read(a, name + sizeof CHECKSUM - 1, value);
}

void answer_header(struct answer *a, const char *line, size_t n) {
    char text[ANSWER_LINK_BYTES + 64];
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    if (n >= sizeof text || memchr(line, '\0', n))
        return;
    memcpy(text, line, n);
    text[n] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        answer_clear(a);
        return;
    }
    char *colon = strchr(text, ':');
    if (!colon)
        return;
    *colon = '\0';
    header_take(a, text, colon + 1 + strspn(colon + 1, " \t"));
}

/* ---- messages ---- */

/* What is between two texts. */
static bool between(const char *text, const char *begin, const char *end, const char **ret, size_t *ret_n) {
    const char *from = strstr(text, begin), *to = from ? strstr(from + strlen(begin), end) : NULL;
    if (!to)
        return false;
    *ret = from + strlen(begin);
    *ret_n = (size_t)(to - *ret);
    return *ret_n > 0;
}

void answer_message(const struct answer *a, char ret[ANSWER_MESSAGE_BYTES]) {
    const char *text = a->body.len ? a->body.data : "", *code = "", *message = text;
    size_t n_code = 0, n = strcspn(text, "\r\n");
    between(text, "<Code>", "</Code>", &code, &n_code);
    if (!between(text, "<Message>", "</Message>", &message, &n) && !between(text, "\"error\":\"", "\"", &message, &n) &&
        !between(text, "\"error\": \"", "\"", &message, &n) && !between(text, "<title>", "</title>", &message, &n) &&
        *text == '<')
        n = 0;
    snprintf(ret, ANSWER_MESSAGE_BYTES, "%.*s%s%.*s", (int)(n_code < 60 ? n_code : 60), code, n_code && n ? ": " : "",
             (int)(n < 130 ? n : 130), message);
    utf8_printable(ret, strlen(ret), "", ret);
}
