#include "executor/data/probe.h"

#include "base/alloc.h"
#include "base/sha256.h"
#include "executor/data/find.h"

#include <string.h>

static const char TEXT[] = "trainyard writes and removes this object to check that it may\n";

static status_t refuse(struct err *e, status_t st, const char *what) {
    return st == ST_OK ? ST_OK : err_prefix(e, st, "the job cannot %s objects there: ", what);
}

static status_t write_it(struct http *h, struct http_request request, struct answer *answer, struct err *e) {
    uint8_t digest[SHA256_BYTES];
    char sha256[SHA256_HEX];
    sha256_of(TEXT, sizeof TEXT - 1, digest);
    sha256_hex(digest, sha256);
    request.method = "PUT";
    request.body = TEXT;
    request.body_bytes = sizeof TEXT - 1;
    request.body_sha256 = sha256;
    return refuse(e, http_do(h, &request, answer, e), "write");
}

/* Another process of this host may have removed it meanwhile. */
static status_t find_it(const struct stores *stores, const char *name, struct http *h, struct err *e) {
    CLEANUP(freep) char *pattern = alloc_format("%s*", name);
    struct data_objects objects = { 0 };
    TRY(refuse(e, find_objects_or_none(stores, pattern, &objects, e), "list"));
    status_t st = ST_OK;
    for (int i = 0; st == ST_OK && i < objects.n; i++)
        st = data_object_ask(&objects.items[i], h, e);
    data_objects_done(&objects);
    return st == ST_NOT_FOUND ? ST_OK : refuse(e, st, "read");
}

static status_t remove_it(struct http *h, struct http_request request, struct answer *answer, struct err *e) {
    request.method = "DELETE";
    status_t st = http_do(h, &request, answer, e);
    return st == ST_NOT_FOUND ? ST_OK : refuse(e, st, "remove");
}

static status_t probe(const struct stores *stores, const char *name, const char *url, struct err *e) {
    CLEANUP(http_closep) struct http *h = NULL;
    const struct http_request request = { .store = &stores->of[DATA_S3], .name = name, .url = url };
    struct answer answer;
    TRY(http_open(&h, e));
    answer_init(&answer);
    status_t st = write_it(h, request, &answer, e);
    if (st == ST_OK)
        st = find_it(stores, name, h, e);
    if (st == ST_OK)
        st = remove_it(h, request, &answer, e);
    answer_done(&answer);
    return st;
}

status_t probe_store(const struct stores *stores, char *name, struct err *e) {
    struct remote_uri uri = { 0 };
    status_t st = remote_uri_parse(name, &uri, e);
    if (st == ST_OK) {
        CLEANUP(freep) char *path = remote_path_decode(uri.path);
        CLEANUP(freep) char *url = store_object_url(&stores->of[DATA_S3], &uri, "", path);
        st = probe(stores, name, url, e);
    }
    remote_uri_done(&uri);
    return st;
}
