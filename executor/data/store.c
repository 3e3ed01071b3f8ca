#include "executor/data/store.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

static const char *const scheme_names[] = { [DATA_S3] = "s3", [DATA_HTTPS] = "https", [DATA_HF] = "hf" };

/* ---- the order ---- */

static void secret_free(char **p) {
    if (*p)
        explicit_bzero(*p, strlen(*p));
    free(*p);
    *p = NULL;
}

void stores_done(struct stores *stores) {
    for (int i = 0; i < DATA_SCHEMES; i++) {
        struct store *s = &stores->of[i];
        free(s->endpoint);
        free(s->region);
        secret_free(&s->user);
        secret_free(&s->secret);
        *s = (struct store){ 0 };
    }
}

/* Keys are sent in headers: what would end one is refused, and so is what would end a text. */
static status_t secret_copy(const char *scheme, const ProtobufCBinaryData *given, char **ret, struct err *e) {
    for (size_t i = 0; i < given->len; i++)
        if (given->data[i] <= ' ' || given->data[i] >= 0x7f)
            return err_set(e, ST_INVALID_ARGUMENT,
                           "the key of the %s store has a space, a line end or another byte that no key has", scheme);
    if (given->len == 0)
        return ST_OK;
    *ret = alloc_zeroed(given->len + 1, 1);
    memcpy(*ret, given->data, given->len);
    return ST_OK;
}

static status_t endpoint_copy(const char *scheme, const char *given, char **ret, struct err *e) {
    struct remote_uri uri = { 0 };
    struct err why;
    CLEANUP(freep) char *with_path = alloc_format("%s%sx", given, *given && given[strlen(given) - 1] == '/' ? "" : "/");
    if (remote_uri_parse(with_path, &uri, &why) != ST_OK || uri.scheme != DATA_HTTPS || strcmp(uri.path, "/x") != 0) {
        remote_uri_done(&uri);
        return err_set(e, ST_INVALID_ARGUMENT, "the endpoint '%.200s' of the %s store is not https://HOST[:PORT]",
                       given, scheme);
    }
    *ret = take_ptr(&uri.root);
    remote_uri_done(&uri);
    return ST_OK;
}

static bool region_good(const char *region) {
    return strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == strlen(region) &&
           strlen(region) < 64;
}

static status_t store_take(const Trainyard__V1__DataStore *given, struct store *s, struct err *e) {
    const char *scheme = scheme_names[s->scheme];
    if (*given->endpoint) {
        free(s->endpoint);
        s->endpoint = NULL;
        TRY(endpoint_copy(scheme, given->endpoint, &s->endpoint, e));
    }
    if (!region_good(given->region))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.60s' is no region of a store", given->region);
    if (*given->region) {
        free(s->region);
        s->region = alloc_copy_text(given->region);
    }
    TRY(secret_copy(scheme, &given->access_key, &s->user, e));
    TRY(secret_copy(scheme, &given->secret_key, &s->secret, e));
    if (s->scheme == DATA_S3 ? !s->user != !s->secret : s->user != NULL)
        return err_set(e, ST_INVALID_ARGUMENT, "the %s store has %s", scheme,
                       s->scheme == DATA_S3 ? "an access key without a secret key, or the reverse"
                                            : "an access key: it needs a token");
    if (s->scheme == DATA_HTTPS && s->secret && !s->endpoint)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the https store has a token and no endpoint: name the host that gets it");
    return ST_OK;
}

status_t stores_open(const Trainyard__V1__DataFetch *order, const atomic_bool *end, struct stores *ret, struct err *e) {
    bool given[DATA_SCHEMES] = { false };
    *ret = (struct stores){ 0 };
    for (int i = 0; i < DATA_SCHEMES; i++)
        ret->of[i] = (struct store){
            .scheme = (enum data_scheme)i,
            .region = alloc_copy_text("us-east-1"),
            .patience_ms = order->patience_s > 0 ? order->patience_s * 1000LL : STORE_PATIENCE_MS,
            .end = end,
        };
    ret->of[DATA_HF].endpoint = alloc_copy_text("https://huggingface.co");
    for (size_t i = 0; i < order->n_stores; i++) {
        int scheme = 0;
        while (scheme < DATA_SCHEMES && strcmp(scheme_names[scheme], order->stores[i]->scheme) != 0)
            scheme++;
        if (scheme == DATA_SCHEMES || given[scheme])
            return err_set(e, ST_INVALID_ARGUMENT, "the store of '%.20s' is %s", order->stores[i]->scheme,
                           scheme == DATA_SCHEMES ? "not one of s3, https and hf" : "given twice");
        given[scheme] = true;
        TRY(store_take(order->stores[i], &ret->of[scheme], e));
    }
    struct store *s3 = &ret->of[DATA_S3];
    if (!s3->endpoint)
        s3->endpoint = alloc_format("https://s3.%s.amazonaws.com", s3->region);
    return ST_OK;
}

/* ---- addresses ---- */

status_t store_check(const struct store *store, const struct remote_uri *uri, struct err *e) {
    if (uri->scheme != DATA_HTTPS || strncmp(uri->root, "https:", 6) == 0 ||
        (store->endpoint && strcmp(store->endpoint, uri->root) == 0))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT,
                   "%.200s: only https:// is read, unless the https store has http://HOST as its endpoint", uri->root);
}

char *store_object_url(const struct store *store, const struct remote_uri *uri, const char *revision,
                       const char *path) {
    if (uri->scheme == DATA_HTTPS)
        return alloc_format("%s%s", uri->root, path);
    CLEANUP(freep) char *encoded = remote_text_encode(path, "/");
    if (uri->scheme == DATA_S3)
        return alloc_format("%s/%s/%s", store->endpoint, uri->root, encoded);
    return alloc_format("%s/%s/resolve/%s/%s", store->endpoint, uri->root, revision, encoded);
}

/* Readable, and the same object if it is read again. */
static char *encode_special(const char *path) {
    char *ret = alloc_zeroed(3 * strlen(path) + 1, 1), *to = ret;
    for (const char *at = path; *at; at++)
        if (strchr("%*?[]{},\\", *at))
            to += sprintf(to, "%%%02X", (unsigned char)*at);
        else
            *to++ = *at;
    return ret;
}

char *store_object_name(const struct remote_uri *uri, const char *revision, const char *path) {
    if (uri->scheme == DATA_HTTPS)
        return alloc_format("%s%s", uri->root, path);
    CLEANUP(freep) char *encoded = encode_special(path);
    if (uri->scheme == DATA_S3)
        return alloc_format("s3://%s/%s", uri->root, encoded);
    return alloc_format("hf://%s@%s/%s", uri->root, revision, encoded);
}

char *store_hf_repository(const struct remote_uri *uri) {
    return alloc_format("%s%s", strncmp(uri->root, "datasets/", 9) == 0 ? "" : "models/", uri->root);
}
