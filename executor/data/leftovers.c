/* ListMultipartUploads, page by page, and an abort for each upload that is chosen. An upload that has ended meanwhile
 * is not there any more, which is as good. The queries are sorted by their names, as the signature needs it (http.c).
 */
#include "executor/data/leftovers.h"

#include "base/alloc.h"
#include "executor/data/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES_MAX = 1 << 10 };

static status_t send(const struct leftovers *l, const struct http_request *request, struct http *h,
                     struct answer *answer, struct err *e) {
    return l->once ? http_try(h, request, answer, e) : http_do(h, request, answer, e);
}

static status_t abort_one(const struct leftovers *l, const struct listing_entry *entry, struct http *h,
                          struct answer *answer, struct err *e) {
    CLEANUP(freep) char *key = remote_text_encode(entry->path, "/");
    CLEANUP(freep) char *id = remote_text_encode(entry->etag, "");
    CLEANUP(freep) char *url = alloc_format("%s/%s/%s?uploadId=%s", l->store->endpoint, l->bucket, key, id);
    const struct http_request request = { .store = l->store, .name = entry->path, .url = url, .method = "DELETE" };
    status_t st = send(l, &request, h, answer, e);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

static status_t page_abort(const struct leftovers *l, const struct listing_page *page, struct http *h,
                           struct answer *answer, struct err *e) {
    for (int i = 0; i < page->n; i++) {
        const char *key = page->entries[i].path;
        if (strncmp(key, l->prefix, strlen(l->prefix)) == 0 && (!l->chosen || l->chosen(l->ctx, key)))
            TRY(abort_one(l, &page->entries[i], h, answer, e));
    }
    return ST_OK;
}

static char *address(const struct leftovers *l, const struct listing_page *before) {
    CLEANUP(freep) char *prefix = remote_text_encode(l->prefix, "");
    CLEANUP(freep) char *key = before->next ? remote_text_encode(before->next, "") : NULL;
    CLEANUP(freep) char *id = before->next_id ? remote_text_encode(before->next_id, "") : NULL;
    return alloc_format("%s/%s?%s%s%sprefix=%s%s%s&uploads=", l->store->endpoint, l->bucket, key ? "key-marker=" : "",
                        key ? key : "", key ? "&" : "", prefix, id ? "&upload-id-marker=" : "", id ? id : "");
}

static status_t page_read(const struct leftovers *l, struct listing_page *page, struct http *h, struct answer *answer,
                          struct err *e) {
    CLEANUP(freep) char *url = address(l, page);
    const struct http_request request = { .store = l->store, .name = l->prefix, .url = url };
    listing_page_done(page);
    TRY(send(l, &request, h, answer, e));
    return listing_read_uploads(answer->body.len ? answer->body.data : "", answer->body.len, page, e);
}

status_t leftovers_abort(const struct leftovers *l, struct http *h, struct err *e) {
    struct listing_page page = { 0 };
    struct answer answer;
    status_t st;
    int pages = 0;
    answer_init(&answer);
    do {
        st = page_read(l, &page, h, &answer, e);
        if (st == ST_OK)
            st = page_abort(l, &page, h, &answer, e);
    } while (st == ST_OK && page.next && ++pages < PAGES_MAX);
    listing_page_done(&page);
    answer_done(&answer);
    return st;
}

/* ---- of earlier attempts ---- */

struct attempts {
    size_t n; /* bytes before the number */
    long attempt;
};

static bool is_before(const void *ctx, const char *key) {
    const struct attempts *a = ctx;
    char *end;
    const long number = strtol(key + a->n, &end, 10);
    return end > key + a->n && *end == '/' && number < a->attempt;
}

static void abort_before(const struct store *store, const char *bucket, const char *key) {
    CLEANUP(http_closep) struct http *h = NULL;
    const char *dash = strrchr(key, '-');
    if (!dash)
        return;
    const struct attempts a = { .n = (size_t)(dash + 1 - key), .attempt = strtol(dash + 1, NULL, 10) };
    CLEANUP(freep) char *prefix = alloc_format("%.*s", (int)a.n, key);
    const struct leftovers l = {
        .store = store, .bucket = bucket, .prefix = prefix, .chosen = is_before, .ctx = &a, .once = true
    };
    if (http_open(&h, NULL) == ST_OK)
        status_ignore(leftovers_abort(&l, h, NULL));
}

void leftovers_abort_before(const struct stores *stores, const char *attempt_uri) {
    struct remote_uri uri = { 0 };
    if (remote_uri_parse(attempt_uri, &uri, NULL) == ST_OK && uri.scheme == DATA_S3) {
        CLEANUP(freep) char *key = remote_path_decode(uri.path);
        abort_before(&stores->of[DATA_S3], uri.root, key);
    }
    remote_uri_done(&uri);
}
