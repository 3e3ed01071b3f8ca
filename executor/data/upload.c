/* A file of at most PART_BYTES is one PUT. A longer one is a multipart upload: create, parts on several threads,
 * complete. What is sent is proved three times:
 *
 *   x-amz-content-sha256    part of the signature: the server refuses other bytes
 *   x-amz-checksum-sha256   of a whole object: the server keeps it, and the reader compares it
 *   the ETag of the answer  if it is an MD5, it must be that of the bytes
 *
 * Requests are repeated as those that read (http.h); after the status 400 a few times, because a server that got other
 * bytes answers so. If the answer to the completion was lost, the repetition finds no upload: then the object that is
 * there decides. An upload that the server has forgotten begins anew. In the end the size of the object is compared. */
#include "executor/data/upload.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "executor/data/check.h"
#include "executor/data/find.h"
#include "executor/data/leftovers.h"
#include "executor/data/parallel.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PART_BYTES = 8 << 20,
    PARTS_MAX = 10000, /* of S3 */
    BAD_TRIES = 3,     /* after the status 400 */
    UPLOAD_TRIES = 3,  /* of a file */
    ID_BYTES = 1024,
};

struct upload {
    const struct store *store;
    char *name, *url;   /* s3://..., https://... */
    char *bucket, *key; /* decoded */
    int file;
    int64_t bytes, part_bytes;
    int n;                           /* parts */
    char id[ID_BYTES];               /* of the multipart upload, encoded */
    char (*etags)[ANSWER_TAG_BYTES]; /* of the parts */
};

static void upload_done(struct upload *u) {
    closep(&u->file);
    free(u->name);
    free(u->url);
    free(u->bucket);
    free(u->key);
    free(u->etags);
}

/* ---- requests ---- */

/* A body that is sent, and what the answer must say of it. */
struct body {
    char *data;
    size_t n;
    uint8_t digest[SHA256_BYTES];
    char sha256[SHA256_HEX];
};

static void body_digest(struct body *b) {
    sha256_of(b->data, b->n, b->digest);
    sha256_hex(b->digest, b->sha256);
}

static status_t compare(const struct upload *u, const struct body *b, const struct answer *a, struct err *e) {
    CLEANUP(digest_closep) struct digest *digest = NULL;
    struct check check = { 0 };
    char md5[33], sha256[SHA256_HEX];
    bool good = true;
    if (a->encrypted || strlen(a->etag) != 34)
        return ST_OK;
    snprintf(md5, sizeof md5, "%.32s", a->etag + 1);
    check_add(&check, CHECK_MD5, md5, true);
    TRY(digest_open(check.kind, (int64_t)b->n, &digest, e));
    digest_update(digest, b->data, b->n);
    digest_final(digest, &check, sha256, &good);
    return good ? ST_OK
                : err_set(e, ST_UNAVAILABLE, "%s: the store has not %s of what was sent", u->name,
                          check_name(check.kind));
}

/* Repeats the request as long as that can help. etag: the answer's must be that of the body. */
static status_t send_body(const struct upload *u, const struct http_request *request, const struct body *b, bool etag,
                          struct http *h, struct answer *answer, struct err *e) {
    struct http_patience patience;
    http_patience_init(&patience, u->store);
    for (int bad = 0;;) {
        struct err why = { "" };
        status_t st = http_try(h, request, answer, &why);
        if (st == ST_OK && answer->body.len && strstr(answer->body.data, "<Error>")) /* of a completion that failed */
            st = err_set(&why, ST_UNAVAILABLE, "%s: the store could not complete the object", u->name);
        if (st == ST_OK && etag)
            st = compare(u, b, answer, &why);
        if (st == ST_OK)
            return ST_OK;
        if (answer->status == 400 && bad++ < BAD_TRIES)
            st = ST_UNAVAILABLE;
        st = http_patience_wait(&patience, st, answer, &why);
        if (st != ST_OK)
            return err_set(e, st, "%s", why.msg);
    }
}

static struct http_request request_of(const struct upload *u, const char *method, const char *url,
                                      const struct body *b) {
    return (struct http_request){ .store = u->store,
                                  .name = u->name,
                                  .url = url,
                                  .method = method,
                                  .body = b->data,
                                  .body_bytes = b->n,
                                  .body_sha256 = b->sha256 };
}

/* ---- the file ---- */

static status_t file_fail(const struct upload *u, struct err *e) {
    return err_set(e, ST_INTERNAL, "%s: the file cannot be read: %s", u->name, strerror(errno));
}

static status_t read_part(const struct upload *u, int part, struct body *ret, struct err *e) {
    const int64_t from = part * u->part_bytes, left = u->bytes - from;
    ret->n = (size_t)(left < u->part_bytes ? left : u->part_bytes);
    ret->data = malloc(ret->n + 1);
    if (!ret->data)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a part of %lld bytes", (long long)u->part_bytes);
    for (size_t done = 0; done < ret->n;) {
        const ssize_t n = pread(u->file, ret->data + done, ret->n - done, from + (int64_t)done);
        if (n == 0)
            errno = EIO; /* it has become shorter */
        if (n <= 0 && errno != EINTR)
            return file_fail(u, e);
        done += n > 0 ? (size_t)n : 0;
    }
    body_digest(ret);
    return ST_OK;
}

/* ---- one PUT ---- */

enum { CHECKSUM_BYTES = 96 };

static void checksum_header(const struct body *b, char ret[CHECKSUM_BYTES]) {
    char base64[4 * ((SHA256_BYTES + 2) / 3) + 1];
    EVP_EncodeBlock((unsigned char *)base64, b->digest, SHA256_BYTES);
    snprintf(ret, CHECKSUM_BYTES, "x-amz-checksum-sha256: %s", base64);
}

static status_t put_whole(struct upload *u, struct http *h, struct answer *answer, struct err *e) {
    struct body b = { 0 };
    char header[CHECKSUM_BYTES];
    status_t st = read_part(u, 0, &b, e);
    if (st == ST_OK) {
        checksum_header(&b, header);
        struct http_request request = request_of(u, "PUT", u->url, &b);
        request.header = header;
        st = send_body(u, &request, &b, true, h, answer, e);
    }
    free(b.data);
    return st;
}

/* ---- parts ---- */

static status_t create(struct upload *u, struct http *h, struct answer *answer, struct err *e) {
    CLEANUP(freep) char *url = alloc_format("%s?uploads=", u->url);
    struct body b = { .data = (char[1]){ "" } };
    body_digest(&b);
    const struct http_request request = request_of(u, "POST", url, &b);
    TRY(send_body(u, &request, &b, false, h, answer, e));
    const char *from = answer->body.len ? strstr(answer->body.data, "<UploadId>") : NULL;
    const char *to = from ? strstr(from, "</UploadId>") : NULL;
    CLEANUP(freep) char *id = to ? strndup(from + 10, (size_t)(to - from) - 10) : NULL;
    CLEANUP(freep) char *encoded = id ? remote_text_encode(id, "") : NULL;
    if (!encoded || !*encoded || snprintf(u->id, sizeof u->id, "%s", encoded) >= (int)sizeof u->id)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: the store began an upload of parts without an id", u->name);
    return ST_OK;
}

static status_t put_part(void *ctx, int i, struct http *h, struct err *e) {
    struct upload *u = ctx;
    struct body b = { 0 };
    struct answer answer;
    CLEANUP(freep) char *url = alloc_format("%s?partNumber=%d&uploadId=%s", u->url, i + 1, u->id);
    answer_init(&answer);
    status_t st = read_part(u, i, &b, e);
    if (st == ST_OK) {
        const struct http_request request = request_of(u, "PUT", url, &b);
        st = send_body(u, &request, &b, true, h, &answer, e);
    }
    if (st == ST_OK && !*answer.etag)
        st = err_set(e, ST_INVALID_ARGUMENT, "%s: the store gives no ETag for a part", u->name);
    memcpy(u->etags[i], answer.etag, sizeof answer.etag);
    answer_done(&answer);
    free(b.data);
    return st;
}

static status_t complete(struct upload *u, struct http *h, struct answer *answer, struct err *e) {
    CLEANUP(freep) char *url = alloc_format("%s?uploadId=%s", u->url, u->id);
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, (size_t)PARTS_MAX * (ANSWER_TAG_BYTES + 100));
    TRY(bytes_printf(&text, e, "<CompleteMultipartUpload>"));
    for (int i = 0; i < u->n; i++)
        TRY(bytes_printf(&text, e, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i + 1, u->etags[i]));
    TRY(bytes_printf(&text, e, "</CompleteMultipartUpload>"));
    struct body b = { .data = text.data, .n = text.len };
    body_digest(&b);
    const struct http_request request = request_of(u, "POST", url, &b);
    return send_body(u, &request, &b, false, h, answer, e);
}

/* What is in the store of a failed upload costs money until it is removed. One try: the store may be away. */
static void give_up(struct upload *u, struct http *h, struct answer *answer) {
    CLEANUP(freep) char *url = alloc_format("%s?uploadId=%s", u->url, u->id);
    const struct http_request request = { .store = u->store, .name = u->name, .url = url, .method = "DELETE" };
    status_ignore(http_try(h, &request, answer, NULL));
}

static status_t size_compare(const struct upload *u, struct http *h, struct answer *answer, struct err *e) {
    const struct http_request request = { .store = u->store, .name = u->name, .url = u->url, .head = true };
    TRY(http_do(h, &request, answer, e));
    return answer->length == u->bytes ? ST_OK
                                      : err_set(e, ST_NOT_FOUND, "%s: the object has %lld bytes in the store, not %lld",
                                                u->name, (long long)answer->length, (long long)u->bytes);
}

static bool is_key(const void *ctx, const char *key) { return strcmp(key, ctx) == 0; }

/* Of processes that were killed: an agent has one upload of a file at a time. One try: the file does not need it. */
static void earlier_abort(const struct upload *u, struct http *h) {
    const struct leftovers l = {
        .store = u->store, .bucket = u->bucket, .prefix = u->key, .chosen = is_key, .ctx = u->key, .once = true
    };
    status_ignore(leftovers_abort(&l, h, NULL));
}

static status_t put_parts(struct upload *u, struct http *h, struct answer *answer, struct err *e) {
    earlier_abort(u, h);
    TRY(create(u, h, answer, e));
    status_t st = parallel_each(u->n, put_part, u, e);
    if (st == ST_OK)
        st = complete(u, h, answer, e);
    if (st == ST_NOT_FOUND && size_compare(u, h, answer, NULL) == ST_OK) /* it was completed, and the answer was lost */
        return ST_OK;
    if (st != ST_OK)
        give_up(u, h, answer);
    return st;
}

/* ---- files ---- */

static status_t put(struct upload *u, struct http *h, struct answer *answer, struct err *e) {
    for (int i = 1;; i++) {
        struct err why = { "" };
        status_t st = u->n > 1 ? put_parts(u, h, answer, &why) : put_whole(u, h, answer, &why);
        if (st == ST_OK)
            st = size_compare(u, h, answer, &why);
        if (st == ST_OK)
            return ST_OK;
        if (st != ST_NOT_FOUND || i == UPLOAD_TRIES)
            return err_set(e, st, "%s", why.msg);
    }
}

/* Who owns the folder could put a link to any file into it. */
static status_t file_open(int folder, const char *name, struct upload *u, struct err *e) {
    struct stat file, own;
    TRY(beneath_open(folder, name, O_RDONLY | O_NONBLOCK, name, &u->file, e));
    if (fstat(u->file, &file) < 0 || fstat(folder, &own) < 0)
        return file_fail(u, e);
    if (!S_ISREG(file.st_mode) || file.st_uid != own.st_uid || file.st_nlink != 1)
        return err_set(e, ST_PERMISSION_DENIED, "%s: the file is not one that the rank has written", u->name);
    u->bytes = file.st_size;
    u->part_bytes = PART_BYTES;
    while (u->bytes > u->part_bytes * PARTS_MAX)
        u->part_bytes *= 2;
    u->n = (int)((u->bytes + u->part_bytes - 1) / u->part_bytes);
    u->etags = alloc_zeroed((size_t)u->n + 1, sizeof *u->etags);
    return ST_OK;
}

static status_t file_put(const Trainyard__V1__ShardUpload *order, const struct store *store, int folder,
                         const char *name, struct http *h, struct answer *answer, struct err *e) {
    CLEANUP(upload_done) struct upload u = { .store = store, .file = -1 };
    struct remote_uri uri = { 0 };
    u.name = alloc_format("%s/%s", order->uri, name);
    status_t st = remote_uri_parse(u.name, &uri, e);
    if (st == ST_OK) {
        u.key = remote_path_decode(uri.path);
        u.bucket = alloc_copy_text(uri.root);
        u.url = store_object_url(store, &uri, "", u.key);
        st = file_open(folder, name, &u, e);
    }
    remote_uri_done(&uri);
    return st == ST_OK ? put(&u, h, answer, e) : st;
}

status_t upload_files(const Trainyard__V1__ShardUpload *order, const struct store *store, struct err *e) {
    CLEANUP(http_closep) struct http *h = NULL;
    CLEANUP(closep) int folder = open(order->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct answer answer;
    if (folder < 0)
        return err_set(e, ST_INTERNAL, "the folder '%s' cannot be opened: %s", order->folder, strerror(errno));
    TRY(http_open(&h, e));
    answer_init(&answer);
    status_t st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < order->n_files; i++)
        st = file_put(order, store, folder, order->files[i], h, &answer, e);
    answer_done(&answer);
    return st;
}

/* ---- removal ---- */

static status_t remove_one(void *ctx, int i, struct http *h, struct err *e) {
    const struct data_object *o = &((struct data_objects *)ctx)->items[i];
    const struct http_request request = { .store = o->store, .name = o->name, .url = o->url, .method = "DELETE" };
    struct answer answer;
    answer_init(&answer);
    status_t st = http_do(h, &request, &answer, e);
    answer_done(&answer);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* A store that lists no uploads, or not for these keys, keeps what killed processes have left. */
static status_t leftovers_remove(const struct stores *stores, const char *pattern, struct err *e) {
    CLEANUP(http_closep) struct http *h = NULL;
    struct remote_uri uri = { 0 };
    TRY(http_open(&h, e));
    status_t st = remote_uri_parse(pattern, &uri, e);
    if (st == ST_OK) {
        CLEANUP(freep) char *prefix = remote_path_decode(uri.path);
        const struct leftovers l = { .store = &stores->of[DATA_S3], .bucket = uri.root, .prefix = prefix };
        st = leftovers_abort(&l, h, e);
    }
    remote_uri_done(&uri);
    return st == ST_PERMISSION_DENIED || st == ST_INVALID_ARGUMENT || st == ST_NOT_FOUND ? ST_OK : st;
}

status_t remove_objects(const struct stores *stores, char *pattern, struct err *e) {
    struct data_objects objects = { 0 };
    TRY(find_objects_or_none(stores, pattern, &objects, e));
    status_t st = parallel_each(objects.n, remove_one, &objects, e);
    data_objects_done(&objects);
    return st == ST_OK ? leftovers_remove(stores, pattern, e) : st;
}
