#include "executor/data/object.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

void data_objects_done(struct data_objects *objects) {
    for (int i = 0; i < objects->n; i++) {
        struct data_object *o = &objects->items[i];
        free(o->path);
        free(o->name);
        free(o->url);
        free(o->etag);
        free(o->modified);
    }
    free(objects->items);
    *objects = (struct data_objects){ 0 };
}

/* The object of a commit is found again without a question to the store: its size cannot be a part of the key. */
void data_object_set_key(struct data_object *o) {
    const char *const parts[] = { o->store->endpoint ? o->store->endpoint : "", o->name,
                                  !o->is_fixed && o->etag ? o->etag : "",
                                  !o->is_fixed && o->modified ? o->modified : "" };
    uint8_t digest[SHA256_BYTES];
    char size[24];
    struct sha256 s;
    sha256_begin(&s);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sha256_update(&s, parts[i], strlen(parts[i]) + 1);
    snprintf(size, sizeof size, "%lld", (long long)(o->is_fixed ? 0 : o->bytes));
    sha256_update(&s, size, strlen(size));
    sha256_final(&s, digest);
    sha256_hex(digest, o->key);
}

static void replace(char **text, const char *with) {
    free(*text);
    *text = *with ? alloc_copy_text(with) : NULL;
}

#define NAME(o) (int)strcspn((o)->name, "?"), (o)->name

/* hf answers with the object or with a redirect to it; the headers of the first answer describe it. */
static status_t take_hf(struct data_object *o, const struct answer *a, struct err *e) {
    o->bytes = a->linked_bytes >= 0 ? a->linked_bytes : a->status / 100 == 2 ? a->length : -1;
    o->check = (struct check){ 0 };
    char id[ANSWER_TAG_BYTES];
    snprintf(id, sizeof id, "%s", *a->linked_etag ? a->linked_etag : a->etag);
    char *plain = *id == '"' ? id + 1 : id;
    plain[strcspn(plain, "\"")] = '\0';
    check_add(&o->check, CHECK_SHA256, plain, true);
    check_add(&o->check, CHECK_GIT, plain, true);
    if (o->bytes < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "%.*s: the server does not say how large the object is (status %ld)",
                       NAME(o), a->status);
    return ST_OK;
}

static status_t take_other(struct data_object *o, const struct answer *a, struct err *e) {
    const bool is_s3 = o->store->scheme == DATA_S3;
    o->bytes = a->status == 206 ? a->range_total : a->length;
    replace(&o->etag, a->etag);
    replace(&o->modified, *a->etag ? "" : a->modified);
    o->whole = !is_s3 && !a->ranges && a->status != 206;
    o->check = a->check;
    if (is_s3 && !a->encrypted && strlen(a->etag) == 34) {
        char md5[33];
        snprintf(md5, sizeof md5, "%.32s", a->etag + 1);
        check_add(&o->check, CHECK_MD5, md5, true); /* the ETag of parts has a '-' */
    }
    if (o->bytes < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "%.*s: the server does not say how large the object is", NAME(o));
    if (!o->etag && !o->modified)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "%.*s: the server gives neither an ETag nor a time of change, by which a copy could be known to be "
            "current",
            NAME(o));
    return ST_OK;
}

/* A signature in the query of an https URI may be for GET alone. */
static status_t ask(const struct data_object *o, struct http *h, struct answer *answer, struct err *e) {
    struct http_request request = {
        .store = o->store, .name = o->name, .url = o->url, .head = true, .no_redirect = o->store->scheme == DATA_HF
    };
    status_t st = http_do(h, &request, answer, e);
    if (st != ST_PERMISSION_DENIED || o->store->scheme != DATA_HTTPS || !strchr(o->url, '?'))
        return st;
    request.head = false;
    request.first_byte = true;
    return http_do(h, &request, answer, e);
}

status_t data_object_ask(struct data_object *o, struct http *h, struct err *e) {
    const bool is_hf = o->store->scheme == DATA_HF;
    struct answer answer;
    answer_init(&answer);
    status_t st = ask(o, h, &answer, e);
    if (st == ST_OK)
        st = is_hf ? take_hf(o, &answer, e) : take_other(o, &answer, e);
    answer_done(&answer);
    o->is_known = st == ST_OK;
    o->is_listed = false;
    return st;
}
