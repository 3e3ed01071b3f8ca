/* A request sets all options anew; the handle keeps the connection. Options that matter:
 *
 *   - the path is sent as it is written (CURLOPT_PATH_AS_IS), because it is signed as it is written
 *   - signatures are libcurl's (AWS_SIGV4). The query is encoded and sorted by the caller, since libcurl 7.88 signs it
 *     as it is; x-amz-content-sha256 is given, so that all versions sign the same. A HEAD or GET has an empty body
 *   - a body is sent from memory (POSTFIELDS), because libcurl signs no other in all of its versions
 *   - libcurl sends a token only to the host of the address, and not to one that a redirect names
 *   - redirects are followed from https to https only, and not at all for S3, where a signature is for one host
 *   - the cache of another host is known by the public key that the controller has named, whatever its certificate
 *     says, because a certificate of a host is for no address; it is never reached by a proxy */
#include "executor/data/http.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    PIN_BYTES = 80,
    CONNECT_MS = 10 * 1000,
    REDIRECTS_MAX = 5,
    SLOW_BYTES = 1024, /* in a second */
    SLOW_MAX_S = 30,
    BUFFER_BYTES = 256 << 10,
    PAUSE_FIRST_MS = 200,
    PAUSE_MAX_MS = 10 * 1000,
    RETRY_AFTER_MAX_MS = 60 * 1000,
    EXPECT_MS = 200, /* not every server says that it wants a large body */
    STEP_MS = 50,    /* for the end, in a pause */
    /* Of a cache of another host: in place of one that does not answer, or is slow, the store is asked. */
    PEER_SLOW_BYTES = 64 << 10,
};

static const char EMPTY_SHA256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct http {
    CURL *curl;
    char detail[CURL_ERROR_SIZE];
};

struct http *http_close(struct http *h) {
    if (h && h->curl)
        curl_easy_cleanup(h->curl);
    free(h);
    return NULL;
}

status_t http_open(struct http **ret, struct err *e) {
    CLEANUP(http_closep) struct http *h = alloc_zeroed(1, sizeof *h);
    h->curl = curl_easy_init();
    if (!h->curl)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "libcurl has no memory");
    *ret = take_ptr(&h);
    return ST_OK;
}

/* ---- one request ---- */

struct transfer {
    const struct http_request *request;
    struct answer *answer;
    CURL *curl;
    int64_t written;
    bool begun;
    status_t failed; /* what the body's receiver says; curl says only that it stopped */
    struct err why;
};

static bool is_good(const struct transfer *t, long status) {
    return (status >= 200 && status < 300) || (t->request->no_redirect && status >= 300 && status < 400);
}

static const char *origin_of(const struct http_request *r, int *ret_n) {
    const char *path = strstr(r->url, "://");
    *ret_n = path ? (int)(path + 3 + strcspn(path + 3, "/?") - r->url) : 0;
    return r->url;
}

#define NAME(r) (int)strcspn((r)->name, "?"), (r)->name

static size_t on_header(char *line, size_t size, size_t n, void *ctx) {
    struct transfer *t = ctx;
    answer_header(t->answer, line, size * n);
    return size * n;
}

static status_t changed(const struct http_request *r, const char *how, struct err *e) {
    return err_set(e, ST_ABORTED, "%.*s: the object has changed while it was read: %s", NAME(r), how);
}

/* Before the first byte of an object: it is the part that was asked for, of the object that was found. */
static status_t check_part(const struct transfer *t, struct err *e) {
    const struct http_request *r = t->request;
    const struct answer *a = t->answer;
    const int64_t total = a->status == 206 ? a->range_total : a->length;
    if (r->etag && *a->etag && strcmp(a->etag, r->etag) != 0)
        return changed(r, "it has another ETag", e);
    if (r->modified && *a->modified && strcmp(a->modified, r->modified) != 0)
        return changed(r, "it has another time of change", e);
    if (total >= 0 && total != r->total)
        return changed(r, "it has another size", e);
    if (a->status == 206 ? a->range_from != r->from : r->from != 0 || r->bytes != r->total)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%.*s: the server does not send the part of the object that it is asked for", NAME(r));
    return ST_OK;
}

static status_t take(struct transfer *t, const char *data, size_t n, struct err *e) {
    const struct http_request *r = t->request;
    if (!t->begun)
        TRY(check_part(t, e));
    t->begun = true;
    if ((int64_t)n > r->bytes - t->written)
        return err_set(e, ST_UNAVAILABLE, "%.*s: the server sends more bytes than the object has", NAME(r));
    TRY(r->write(r->ctx, data, n, e));
    t->written += (int64_t)n;
    return ST_OK;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    struct transfer *t = ctx;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->answer->status);
    if (t->request->write && t->answer->status >= 200 && t->answer->status < 300)
        t->failed = take(t, data, size * n, &t->why);
    else
        t->failed = bytes_append(&t->answer->body, data, size * n, &t->why);
    return t->failed == ST_OK ? size * n : 0;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load((const atomic_bool *)ctx);
}

/* libcurl 7.88 would sign an empty "Expect:" and not send it. */
static struct curl_slist *headers_add_body(struct curl_slist *l, const struct http_request *r) {
    l = curl_slist_append(l, "Content-Type: application/octet-stream");
    return r->header ? curl_slist_append(l, r->header) : l;
}

static struct curl_slist *headers_of(const struct http_request *r) {
    char line[ANSWER_TAG_BYTES + 32];
    struct curl_slist *l = curl_slist_append(NULL, "Accept-Encoding: identity");
    if (r->body)
        l = headers_add_body(l, r);
    if (r->etag) {
        snprintf(line, sizeof line, "If-Match: %s", r->etag);
        l = curl_slist_append(l, line);
    }
    if (r->modified) {
        snprintf(line, sizeof line, "If-Unmodified-Since: %s", r->modified);
        l = curl_slist_append(l, line);
    }
    if (r->store->scheme != DATA_S3)
        return l;
    if (!r->method)
        l = curl_slist_append(l, "x-amz-checksum-mode: ENABLED");
    if (!r->store->user)
        return l;
    snprintf(line, sizeof line, "x-amz-content-sha256: %s", r->body ? r->body_sha256 : EMPTY_SHA256);
    return curl_slist_append(l, line);
}

/* https: one host alone gets the token. */
static bool gets_token(const struct http_request *r) {
    const struct store *s = r->store;
    if (!s->secret || s->scheme == DATA_S3)
        return false;
    const size_t n = strlen(s->endpoint);
    return strncmp(r->url, s->endpoint, n) == 0 && r->url[n] == '/';
}

static void set_access(CURL *curl, const struct http_request *r) {
    const struct store *s = r->store;
    if (s->scheme == DATA_S3 && s->user) {
        char provider[96];
        snprintf(provider, sizeof provider, "aws:amz:%s:s3", s->region);
        curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, provider);
        curl_easy_setopt(curl, CURLOPT_USERNAME, s->user);
        curl_easy_setopt(curl, CURLOPT_PASSWORD, s->secret);
    }
    if (gets_token(r)) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, s->secret);
    }
}

static void set_protocols(CURL *curl, bool plain) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, plain ? "http,https" : "https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, plain ? "http,https" : "https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTPS | (plain ? CURLPROTO_HTTP : 0)));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTPS | (plain ? CURLPROTO_HTTP : 0)));
#endif
}

static void set_limits(CURL *curl, const struct store *s) {
    const long slow_s = (long)(s->patience_ms / 4000 < SLOW_MAX_S ? s->patience_ms / 4000 : SLOW_MAX_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, s->peer ? s->peer->connect_s * 1000L : (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)(s->peer ? PEER_SLOW_BYTES : SLOW_BYTES));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, s->peer ? (long)s->peer->slow_s : slow_s > 0 ? slow_s : 1L);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, (void *)(uintptr_t)s->end);
}

static void set_peer(CURL *curl, const struct store_peer *peer, bool plain) {
    char pin[PIN_BYTES];
    snprintf(pin, sizeof pin, "sha256//%s", peer->pin);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    if (plain)
        return;
    curl_easy_setopt(curl, CURLOPT_PINNEDPUBLICKEY, pin);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, peer->cert);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, peer->key);
}

static void set_request(struct http *h, struct transfer *t, const struct curl_slist *headers) {
    const struct http_request *r = t->request;
    CURL *curl = h->curl;
    char range[64];
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, r->url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOBODY, (long)r->head);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "trainyard/" TRAINYARD_VERSION);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, (long)(!r->no_redirect && r->store->scheme != DATA_S3));
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    set_protocols(curl, strncmp(r->url, "http:", 5) == 0);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, h->detail);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    if (getenv("SSL_CERT_FILE"))
        curl_easy_setopt(curl, CURLOPT_CAINFO, getenv("SSL_CERT_FILE"));
    if (r->body) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, r->body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_bytes);
        curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, (long)EXPECT_MS);
    }
    if (r->method)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, r->method);
    if (r->write && (r->from > 0 || r->bytes < r->total)) {
        snprintf(range, sizeof range, "%lld-%lld", (long long)r->from, (long long)(r->from + r->bytes - 1));
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
    if (r->first_byte)
        curl_easy_setopt(curl, CURLOPT_RANGE, "0-0");
    set_limits(curl, r->store);
    set_access(curl, r);
    if (r->store->peer)
        set_peer(curl, r->store->peer, strncmp(r->url, "http:", 5) == 0);
}

/* ---- what came of it ---- */

static status_t status_of(const struct http_request *r, long status) {
    switch (status) {
    case 401:
    case 403: return ST_PERMISSION_DENIED;
    case 404:
    case 410: return ST_NOT_FOUND;
    case 412:
    case 416: return r->write ? ST_ABORTED : ST_INVALID_ARGUMENT;
    case 408:
    case 425:
    case 429: return ST_UNAVAILABLE;
    default: return status >= 500 && status != 501 ? ST_UNAVAILABLE : ST_INVALID_ARGUMENT;
    }
}

static status_t refused(const struct http_request *r, const struct answer *a, struct err *e) {
    char message[ANSWER_MESSAGE_BYTES];
    int n;
    const char *origin = origin_of(r, &n);
    const status_t st = status_of(r, a->status);
    answer_message(a, message);
    return err_set(e, st, "%.*s: %.*s answered with status %ld%s%s%s%s", NAME(r), n, origin, a->status,
                   *message ? ": " : "", message,
                   *a->region && a->status / 100 != 2 ? "; the bucket is in the region " : "",
                   *a->region && a->status / 100 != 2 ? a->region : "");
}

static status_t no_answer(const struct http *h, const struct http_request *r, CURLcode rc, struct err *e) {
    int n;
    const char *origin = origin_of(r, &n), *text = *h->detail ? h->detail : curl_easy_strerror(rc);
    const bool host = rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE ||
                      rc == CURLE_OUT_OF_MEMORY || rc == CURLE_FAILED_INIT || rc == CURLE_NOT_BUILT_IN;
    const bool spec = rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_TOO_MANY_REDIRECTS || rc == CURLE_URL_MALFORMAT;
    return err_set(e,
                   host   ? ST_INTERNAL
                   : spec ? ST_INVALID_ARGUMENT
                          : ST_UNAVAILABLE,
                   "%.*s: %.*s: %.200s", NAME(r), n, origin, text);
}

static status_t judge(const struct http *h, const struct transfer *t, CURLcode rc, struct err *e) {
    const struct http_request *r = t->request;
    if (atomic_load(r->store->end))
        return err_set(e, ST_CANCELLED, "the order has ended");
    if (t->failed != ST_OK)
        return err_set(e, t->failed, "%s", t->why.msg);
    if (rc != CURLE_OK)
        return no_answer(h, r, rc, e);
    if (!is_good(t, t->answer->status))
        return refused(r, t->answer, e);
    if (r->write && t->written < r->bytes)
        return err_set(e, ST_UNAVAILABLE, "%.*s: the server sent %lld of %lld bytes", NAME(r), (long long)t->written,
                       (long long)r->bytes);
    return ST_OK;
}

status_t http_try(struct http *h, const struct http_request *request, struct answer *ret, struct err *e) {
    struct transfer t = { .request = request, .answer = ret, .curl = h->curl };
    struct curl_slist *headers = headers_of(request);
    answer_clear(ret);
    *h->detail = '\0';
    set_request(h, &t, headers);
    const CURLcode rc = curl_easy_perform(h->curl);
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &ret->status);
    curl_slist_free_all(headers);
    return judge(h, &t, rc, e);
}

/* ---- repetition ---- */

void http_patience_renew(struct http_patience *p) {
    p->since_ms = clock_mono_ms();
    p->end_ms = p->since_ms + p->store->patience_ms;
    p->pause_ms = PAUSE_FIRST_MS;
    p->tries = 0;
}

void http_patience_init(struct http_patience *p, const struct store *store) {
    *p = (struct http_patience){ .store = store };
    http_patience_renew(p);
}

status_t http_patience_wait(struct http_patience *p, status_t failed, const struct answer *answer, struct err *e) {
    const int64_t asked = answer->retry_after_ms < RETRY_AFTER_MAX_MS ? answer->retry_after_ms : RETRY_AFTER_MAX_MS;
    const int64_t until = clock_mono_ms() + (asked > 0 ? asked : p->pause_ms);
    p->tries++;
    if (failed != ST_UNAVAILABLE)
        return failed;
    if (until > p->end_ms) {
        struct err why = e ? *e : (struct err){ "" };
        return err_set(e, ST_UNAVAILABLE, "%s; tried %d times in %lld s", why.msg, p->tries,
                       (long long)(clock_mono_ms() - p->since_ms) / 1000);
    }
    while (clock_mono_ms() < until && !atomic_load(p->store->end))
        poll(NULL, 0, STEP_MS);
    p->pause_ms = p->pause_ms * 2 < PAUSE_MAX_MS ? p->pause_ms * 2 : PAUSE_MAX_MS;
    return atomic_load(p->store->end) ? err_set(e, ST_CANCELLED, "the order has ended") : ST_OK;
}

status_t http_do(struct http *h, const struct http_request *request, struct answer *ret, struct err *e) {
    struct http_patience patience;
    http_patience_init(&patience, request->store);
    for (;;) {
        struct err why = { "" };
        status_t st = http_try(h, request, ret, &why);
        if (st == ST_OK)
            return ST_OK;
        st = http_patience_wait(&patience, st, ret, &why);
        if (st != ST_OK)
            return err_set(e, st, "%s", why.msg);
    }
}
