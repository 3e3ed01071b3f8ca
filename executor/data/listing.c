/* The XML of S3 is read with expat, event by event: a text is kept from the beginning of a leaf of interest to its end.
 * A document type, which S3 does not send and which could define entities, ends the reading. The JSON of hf is read
 * with jansson. */
#include "executor/data/listing.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/bytes.h"
#include "base/utf8.h"

#include <expat.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 8192, DEPTH_MAX = 16, PAGE_MAX = 20000 };

void listing_page_done(struct listing_page *page) {
    for (int i = 0; i < page->n; i++) {
        free(page->entries[i].path);
        free(page->entries[i].etag);
    }
    free(page->entries);
    free(page->next);
    free(page->next_id);
    *page = (struct listing_page){ 0 };
}

/* A name that can be written in an URI, a line and a path. */
static bool name_good(const char *name) {
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    return *name && utf8_valid(name, strlen(name));
}

/* Owns path and etag. Names that cannot be used are left out: no pattern matches them. */
static status_t entry_add(struct listing_page *page, char *path, int64_t bytes, char *etag, const struct check *check,
                          struct err *e) {
    status_t st = page->n < PAGE_MAX ? array_grow(&page->entries, page->n, e)
                                     : err_set(e, ST_INVALID_ARGUMENT, "a page of the listing has too many names");
    if (st != ST_OK || !name_good(path)) {
        free(path);
        free(etag);
        return st;
    }
    page->entries[page->n++] = (struct listing_entry){ .path = path, .bytes = bytes, .etag = etag, .check = *check };
    return ST_OK;
}

/* ---- S3 ---- */

/* The elements of a listing: its root, an item, what identifies a version of the item, where the next page begins. */
struct form {
    const char *root, *item, *id, *next, *next_id;
};
static const struct form OBJECTS = { "ListBucketResult", "Contents", "ETag", "NextContinuationToken", "" };
static const struct form UPLOADS = { "ListMultipartUploadsResult", "Upload", "UploadId", "NextKeyMarker",
                                     "NextUploadIdMarker" };

struct reading {
    const struct form *form;
    XML_Parser parser;
    struct listing_page *page;
    int depth;
    bool is_listing, in_contents, truncated;
    struct bytes text;
    char *key, *etag, *next, *next_id;
    int64_t bytes;
    status_t st;
    struct err why;
};

static void stop(struct reading *r, status_t st) {
    r->st = st;
    XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL on_begin(void *ctx, const char *name, const char **attributes) {
    struct reading *r = ctx;
    (void)attributes;
    r->depth++;
    bytes_clear(&r->text);
    if (r->depth > DEPTH_MAX)
        stop(r, err_set(&r->why, ST_INVALID_ARGUMENT, "the listing is nested too deeply"));
    if (r->depth == 1)
        r->is_listing = strcmp(name, r->form->root) == 0;
    if (r->depth == 2)
        r->in_contents = strcmp(name, r->form->item) == 0;
}

static void XMLCALL on_text(void *ctx, const char *text, int n) {
    struct reading *r = ctx;
    if ((r->depth == 2 || (r->depth == 3 && r->in_contents)) &&
        bytes_append(&r->text, text, (size_t)n, &r->why) != ST_OK)
        stop(r, err_set(&r->why, ST_INVALID_ARGUMENT, "the listing has a text of more than %d bytes", TEXT_MAX));
}

static void replace(char **text, const char *with) {
    free(*text);
    *text = alloc_copy_text(with);
}

/* If-Match needs the quotes, which some servers leave out here. */
static char *quoted(const char *etag) {
    const size_t n = strlen(etag);
    return n > 200 ? NULL : *etag == '"' ? alloc_copy_text(etag) : alloc_format("\"%s\"", etag);
}

static void upload_end(struct reading *r) {
    const struct check none = { 0 };
    char *key = take_ptr(&r->key), *id = take_ptr(&r->etag);
    status_t st;
    if (key && id && *id) {
        st = entry_add(r->page, key, 0, id, &none, &r->why);
    } else {
        free(key);
        free(id);
        st = err_set(&r->why, ST_INVALID_ARGUMENT, "the listing has an upload without a key or an id");
    }
    if (st != ST_OK)
        stop(r, st);
}

static void contents_end(struct reading *r) {
    const struct check none = { 0 };
    char *key = take_ptr(&r->key), *etag = r->etag ? quoted(r->etag) : NULL;
    const bool folder = key && *key && key[strlen(key) - 1] == '/';
    if (!key || r->bytes < 0 || folder) {
        free(key);
        free(etag);
        if (!folder)
            stop(r, err_set(&r->why, ST_INVALID_ARGUMENT, "the listing has an object without a key or a size"));
    } else {
        status_t st = entry_add(r->page, key, r->bytes, etag, &none, &r->why);
        if (st != ST_OK)
            stop(r, st);
    }
    free(r->etag);
    r->etag = NULL;
    r->bytes = -1;
}

static int64_t size_read(const char *text) {
    const size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 18 && !text[n] ? strtoll(text, NULL, 10) : -1;
}

static void XMLCALL on_end(void *ctx, const char *name) {
    struct reading *r = ctx;
    const char *text = r->text.len ? r->text.data : "";
    if (r->depth == 3 && r->in_contents && strcmp(name, "Key") == 0)
        replace(&r->key, text);
    else if (r->depth == 3 && r->in_contents && strcmp(name, r->form->id) == 0)
        replace(&r->etag, text);
    else if (r->depth == 3 && r->in_contents && strcmp(name, "Size") == 0)
        r->bytes = size_read(text);
    else if (r->depth == 2 && r->in_contents && r->form == &UPLOADS)
        upload_end(r);
    else if (r->depth == 2 && r->in_contents)
        contents_end(r);
    else if (r->depth == 2 && strcmp(name, "IsTruncated") == 0)
        r->truncated = strcmp(text, "true") == 0;
    else if (r->depth == 2 && strcmp(name, r->form->next) == 0)
        replace(&r->next, text);
    else if (r->depth == 2 && *text && strcmp(name, r->form->next_id) == 0)
        replace(&r->next_id, text);
    r->depth--;
    bytes_clear(&r->text);
}

static void XMLCALL on_doctype(void *ctx, const char *name, const char *system, const char *public, int internal) {
    struct reading *r = ctx;
    (void)name, (void)system, (void)public, (void)internal;
    stop(r, err_set(&r->why, ST_INVALID_ARGUMENT, "the listing has a document type"));
}

static status_t read_xml(struct reading *r, const char *xml, size_t n, struct err *e) {
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_begin, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
    const enum XML_Status ok = XML_Parse(r->parser, xml, (int)n, 1);
    if (r->st != ST_OK)
        return err_set(e, r->st, "%s", r->why.msg);
    if (ok != XML_STATUS_OK || !r->is_listing)
        return err_set(e, ST_INVALID_ARGUMENT, "the answer is no listing of S3: %s",
                       ok != XML_STATUS_OK ? XML_ErrorString(XML_GetErrorCode(r->parser)) : "it has another root");
    if (r->truncated && (!r->next || !*r->next))
        return err_set(e, ST_INVALID_ARGUMENT, "the listing goes on, and does not say where");
    if (r->truncated) {
        r->page->next = take_ptr(&r->next);
        r->page->next_id = take_ptr(&r->next_id);
    }
    return ST_OK;
}

static status_t read_form(const struct form *form, const char *xml, size_t n, struct listing_page *ret, struct err *e) {
    struct listing_page page = { 0 };
    struct reading r = { .form = form, .page = &page, .bytes = -1, .parser = XML_ParserCreate(NULL) };
    if (!r.parser)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "expat has no memory");
    bytes_init(&r.text, TEXT_MAX);
    status_t st = n < INT32_MAX ? read_xml(&r, n ? xml : "", n, e)
                                : err_set(e, ST_INVALID_ARGUMENT, "the listing is too long");
    XML_ParserFree(r.parser);
    bytes_done(&r.text);
    free(r.key);
    free(r.etag);
    free(r.next);
    free(r.next_id);
    if (st == ST_OK)
        *ret = page;
    else
        listing_page_done(&page);
    return st;
}

status_t listing_read_s3(const char *xml, size_t n, struct listing_page *ret, struct err *e) {
    return read_form(&OBJECTS, xml, n, ret, e);
}

status_t listing_read_uploads(const char *xml, size_t n, struct listing_page *ret, struct err *e) {
    return read_form(&UPLOADS, xml, n, ret, e);
}

/* ---- hf ---- */

static const char *text_of(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static status_t file_add(struct listing_page *page, const json_t *file, struct err *e) {
    const char *path = text_of(file, "path"), *oid = text_of(file, "oid");
    const json_t *lfs = json_object_get(file, "lfs"), *size = json_object_get(file, "size");
    struct check check = { 0 };
    if (!path || !json_is_integer(size) || json_integer_value(size) < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the listing has a file without a path or a size");
    if (json_is_object(lfs)) {
        if (text_of(lfs, "oid"))
            check_add(&check, CHECK_SHA256, text_of(lfs, "oid"), true);
        if (json_is_integer(json_object_get(lfs, "size")))
            size = json_object_get(lfs, "size");
    } else if (oid) {
        check_add(&check, CHECK_GIT, oid, true);
    }
    if (json_integer_value(size) < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the listing has a file without a size");
    return entry_add(page, alloc_copy_text(path), json_integer_value(size), NULL, &check, e);
}

status_t listing_read_hf(const char *json, size_t n, struct listing_page *ret, struct err *e) {
    CLEANUP(json_decrefp) json_t *all = json_loadb(n ? json : "", n, 0, NULL);
    struct listing_page page = { 0 };
    status_t st = json_is_array(all) ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "the listing is no array of JSON");
    for (size_t i = 0; st == ST_OK && i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *type = text_of(entry, "type");
        if (type && strcmp(type, "file") == 0)
            st = file_add(&page, entry, e);
    }
    if (st == ST_OK)
        *ret = page;
    else
        listing_page_done(&page);
    return st;
}

status_t listing_read_commit(const char *json, size_t n, char ret[41], struct err *e) {
    CLEANUP(json_decrefp) json_t *revision = json_loadb(n ? json : "", n, 0, NULL);
    const char *commit = text_of(revision, "sha");
    if (!commit || strlen(commit) != 40 || strspn(commit, "0123456789abcdef") != 40)
        return err_set(e, ST_INVALID_ARGUMENT, "the answer names no commit");
    memcpy(ret, commit, 41);
    return ST_OK;
}
