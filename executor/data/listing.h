/* One page of a listing, as a store sends it. The bytes come from outside: whatever they are, the result is a page or a
 * sentence. Pure. */
#ifndef EXECUTOR_DATA_LISTING_H
#define EXECUTOR_DATA_LISTING_H

#include "executor/data/check.h"

struct listing_entry {
    char *path; /* s3: the key; hf: in the repository */
    int64_t bytes;
    char *etag; /* s3: with quotes; of an upload: its id; else NULL */
    struct check check;
};

struct listing_page {
    struct listing_entry *entries;
    int n;
    char *next;    /* s3: the token of the next page; of uploads: its first key. NULL: this is the last one */
    char *next_id; /* of uploads: its first id; NULL: not said */
};
void listing_page_done(struct listing_page *page);

/* The answer of ListObjectsV2. Keys that end in '/', which stand for folders, are left out. */
MUST_CHECK status_t listing_read_s3(const char *xml, size_t n, struct listing_page *ret, struct err *e);
/* The answer of ListMultipartUploads: uploads of parts that were begun and neither completed nor aborted. */
MUST_CHECK status_t listing_read_uploads(const char *xml, size_t n, struct listing_page *ret, struct err *e);
/* An array of hf's tree. Folders are left out. */
MUST_CHECK status_t listing_read_hf(const char *json, size_t n, struct listing_page *ret, struct err *e);
/* The commit in hf's description of a revision. */
MUST_CHECK status_t listing_read_commit(const char *json, size_t n, char ret[41], struct err *e);

#endif
