/* A pattern is compared with a listing of what begins with its text before the first wildcard. S3 lists a folder alone
 * (delimiter=/) if no wildcard can match in another part of the path than the last; hf lists a folder, or all below it.
 * A listing has a limit, because a short beginning may list a whole bucket. */
#include "executor/data/find.h"

#include "api/spec/data_braces.h"
#include "base/alloc.h"
#include "base/array.h"
#include "base/limits.h"
#include "executor/data/listing.h"

#include <stdio.h>
#include <string.h>

enum { LISTED_MAX = 1 << 20, PAGES_MAX = 1 << 16, COMMIT_BYTES = 41 };

struct finding {
    const struct stores *stores;
    struct http *http;
    struct data_objects *ret;
    int index; /* of the URI */
    const char *text;
    struct remote_uri uri;
    char commit[COMMIT_BYTES]; /* hf */
    char *commit_of;           /* the repository and the revision of that commit */
    bool none_is_fine;         /* a pattern may match nothing */
    int listed;
};

static const struct store *store_of(const struct finding *f) { return &f->stores->of[f->uri.scheme]; }

/* ---- objects ---- */

/* path: decoded; https: as given. entry: of a listing, or NULL. */
static status_t add(struct finding *f, const char *path, const struct listing_entry *entry, struct err *e) {
    const struct store *store = store_of(f);
    if (f->ret->n == LIMIT_DATA_OBJECTS)
        return err_set(e, ST_INVALID_ARGUMENT, "%.200s: with it the job has more than %d objects of data", f->text,
                       LIMIT_DATA_OBJECTS);
    TRY(array_grow(&f->ret->items, f->ret->n, e));
    struct data_object *o = &f->ret->items[f->ret->n++];
    *o = (struct data_object){ .uri = f->index, .store = store, .is_fixed = f->uri.scheme == DATA_HF };
    o->path = alloc_copy_text(path);
    o->name = store_object_name(&f->uri, f->commit, path);
    o->url = store_object_url(store, &f->uri, f->commit, path);
    if (entry) {
        o->is_known = o->is_listed = true;
        o->bytes = entry->bytes;
        o->etag = entry->etag ? alloc_copy_text(entry->etag) : NULL;
        o->check = entry->check;
    }
    if (entry && f->uri.scheme == DATA_S3 && !o->etag)
        return err_set(e, ST_INVALID_ARGUMENT, "%.200s: the listing gives no ETag for it", o->name);
    return ST_OK;
}

static int by_path(const void *a, const void *b) {
    const struct data_object *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static void sort(struct data_objects *all, int from) {
    struct data_objects rest = { 0 };
    int n = from;
    if (all->n > from)
        qsort(all->items + from, (size_t)(all->n - from), sizeof *all->items, by_path);
    for (int i = from; i < all->n; i++)
        if (n > from && strcmp(all->items[i].path, all->items[n - 1].path) == 0) { /* two patterns name it */
            rest = (struct data_objects){ .items = alloc_zeroed(1, sizeof *rest.items), .n = 1 };
            rest.items[0] = all->items[i];
            data_objects_done(&rest);
        } else {
            all->items[n++] = all->items[i];
        }
    all->n = n;
}

/* ---- listings ---- */

struct pages {
    char *literal; /* what every path begins with, decoded */
    char *glob;
    bool deep;
};

static status_t page_take(struct finding *f, const struct pages *p, const struct listing_page *page, struct err *e) {
    f->listed += page->n;
    for (int i = 0; i < page->n; i++)
        if (remote_path_matches(p->glob, page->entries[i].path))
            TRY(add(f, page->entries[i].path, &page->entries[i], e));
    if (f->listed > LISTED_MAX)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%.200s: more than %d names begin like it: write more of the path before the first wildcard",
                       f->text, LISTED_MAX);
    return ST_OK;
}

static char *s3_address(const struct finding *f, const struct pages *p, const char *token) {
    CLEANUP(freep) char *prefix = remote_text_encode(p->literal, "");
    CLEANUP(freep) char *next = token ? remote_text_encode(token, "") : NULL;
    return alloc_format("%s/%s?%s%s%s%slist-type=2&prefix=%s", store_of(f)->endpoint, f->uri.root,
                        next ? "continuation-token=" : "", next ? next : "", next ? "&" : "",
                        p->deep ? "" : "delimiter=%2F&", prefix);
}

static char *hf_address(const struct finding *f, const struct pages *p) {
    CLEANUP(freep) char *repository = store_hf_repository(&f->uri);
    CLEANUP(freep) char *folder = remote_text_encode(p->literal, "/");
    char *slash = strrchr(folder, '/');
    *(slash ? slash : folder) = '\0';
    return alloc_format("%s/api/%s/tree/%s%s%s?recursive=%s", store_of(f)->endpoint, repository, f->commit,
                        *folder ? "/" : "", folder, p->deep ? "true" : "false");
}

/* The address of the next page of hf is a whole one. The token is for this host alone. */
static status_t hf_next(const struct finding *f, const struct answer *a, char **ret, struct err *e) {
    const size_t n = strlen(store_of(f)->endpoint);
    *ret = NULL;
    if (!*a->next)
        return ST_OK;
    if (strncmp(a->next, store_of(f)->endpoint, n) != 0 || a->next[n] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "%.200s: the listing goes on at another host than %.100s", f->text,
                       store_of(f)->endpoint);
    *ret = alloc_copy_text(a->next);
    return ST_OK;
}

static status_t page_read(struct finding *f, const struct pages *p, const struct answer *a, char **ret_next,
                          struct err *e) {
    const bool is_s3 = f->uri.scheme == DATA_S3;
    struct listing_page page = { 0 };
    const char *body = a->body.len ? a->body.data : "";
    status_t st = is_s3 ? listing_read_s3(body, a->body.len, &page, e) : listing_read_hf(body, a->body.len, &page, e);
    if (st != ST_OK)
        return err_prefix(e, st, "%.200s: ", f->text);
    st = page_take(f, p, &page, e);
    if (st == ST_OK && is_s3)
        *ret_next = page.next ? s3_address(f, p, page.next) : NULL;
    else if (st == ST_OK)
        st = hf_next(f, a, ret_next, e);
    listing_page_done(&page);
    return st;
}

static status_t pages_read(struct finding *f, const struct pages *p, struct answer *a, struct err *e) {
    CLEANUP(freep) char *url = f->uri.scheme == DATA_S3 ? s3_address(f, p, NULL) : hf_address(f, p);
    for (int i = 0; url; i++) {
        const struct http_request request = { .store = store_of(f), .name = f->text, .url = url };
        char *next = NULL;
        if (i == PAGES_MAX)
            return err_set(e, ST_INVALID_ARGUMENT, "%.200s: the listing has more than %d pages", f->text, PAGES_MAX);
        TRY(http_do(f->http, &request, a, e));
        TRY(page_read(f, p, a, &next, e));
        free(url);
        url = next;
    }
    return ST_OK;
}

static status_t list(struct finding *f, const char *path, struct err *e) {
    CLEANUP(freep) char *literal = remote_path_decode(path);
    CLEANUP(freep) char *glob = remote_path_glob(path);
    const struct pages p = { .literal = literal, .glob = glob, .deep = remote_path_is_deep(path) };
    const int before = f->ret->n;
    struct answer answer;
    answer_init(&answer);
    status_t st = pages_read(f, &p, &answer, e);
    answer_done(&answer);
    if (st == ST_OK && f->ret->n == before && !f->none_is_fine)
        st = err_set(e, ST_NOT_FOUND, "%.200s: no object matches '%.200s'", f->text, path);
    return st;
}

/* ---- the URIs ---- */

static status_t commit_ask(struct finding *f, struct err *e) {
    CLEANUP(freep) char *repository = store_hf_repository(&f->uri);
    CLEANUP(freep)
    char *url = alloc_format("%s/api/%s/revision/%s?expand=sha", store_of(f)->endpoint, repository, f->uri.revision);
    const struct http_request request = { .store = store_of(f), .name = f->text, .url = url };
    struct answer answer;
    answer_init(&answer);
    status_t st = http_do(f->http, &request, &answer, e);
    if (st == ST_OK && listing_read_commit(answer.body.data, answer.body.len, f->commit, e) != ST_OK)
        st = err_prefix(e, ST_INVALID_ARGUMENT, "%.200s: ", f->text);
    answer_done(&answer);
    return st;
}

/* A commit names itself. The revision of the URI before is not asked for again, so that all files are of one commit. */
static status_t commit_find(struct finding *f, struct err *e) {
    CLEANUP(freep) char *of = alloc_format("%s@%s", f->uri.root, f->uri.revision);
    if (strlen(f->uri.revision) == COMMIT_BYTES - 1 &&
        strspn(f->uri.revision, "0123456789abcdef") == COMMIT_BYTES - 1) {
        memcpy(f->commit, f->uri.revision, COMMIT_BYTES);
    } else if (f->commit_of && strcmp(f->commit_of, of) == 0) {
        return ST_OK;
    } else {
        TRY(commit_ask(f, e));
    }
    free(f->commit_of);
    f->commit_of = take_ptr(&of);
    return ST_OK;
}

static status_t path_take(struct finding *f, const char *path, struct err *e) {
    if (remote_path_is_pattern(f->uri.scheme, path))
        return list(f, path, e);
    CLEANUP(freep) char *decoded = f->uri.scheme == DATA_HTTPS ? alloc_copy_text(path) : remote_path_decode(path);
    return add(f, decoded, NULL, e);
}

static status_t uri_take(struct finding *f, struct err *e) {
    struct data_uris paths = { 0 };
    const int from = f->ret->n;
    TRY(store_check(store_of(f), &f->uri, e));
    if (f->uri.scheme == DATA_HF)
        TRY(commit_find(f, e));
    TRY(data_braces_expand(f->uri.path, 0, LIMIT_DATA_OBJECTS, &paths, e));
    status_t st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < paths.n; i++)
        st = path_take(f, paths.all[i], e);
    data_uris_free(&paths);
    if (st == ST_OK)
        sort(f->ret, from);
    return st;
}

static status_t find(const struct stores *stores, int n, char *const *uris, bool none_is_fine, struct data_objects *ret,
                     struct err *e) {
    struct data_objects objects = { 0 };
    struct finding f = { .stores = stores, .ret = &objects, .none_is_fine = none_is_fine };
    status_t st = http_open(&f.http, e);
    for (int i = 0; st == ST_OK && i < n; i++) {
        f.index = i;
        f.text = uris[i];
        st = remote_uri_parse(uris[i], &f.uri, e);
        if (st == ST_OK)
            st = uri_take(&f, e);
        remote_uri_done(&f.uri);
    }
    f.http = http_close(f.http);
    free(f.commit_of);
    if (st == ST_OK)
        *ret = objects;
    else
        data_objects_done(&objects);
    return st;
}

status_t find_objects(const struct stores *stores, int n, char *const *uris, struct data_objects *ret, struct err *e) {
    return find(stores, n, uris, false, ret, e);
}

status_t find_objects_or_none(const struct stores *stores, char *pattern, struct data_objects *ret, struct err *e) {
    return find(stores, 1, &pattern, true, ret, e);
}
