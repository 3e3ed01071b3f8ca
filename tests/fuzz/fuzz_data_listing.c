/* Listings of S3 (XML) and of hf (JSON), which come from a store: any bytes are a page with usable names, or a
 * sentence. */
#include "executor/data/listing.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

static void check(struct listing_page *page) {
    for (int i = 0; i < page->n; i++)
        assert(*page->entries[i].path && page->entries[i].bytes >= 0 && !strchr(page->entries[i].path, '\n'));
    listing_page_done(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct listing_page page = { 0 };
    char commit[41];
    if (listing_read_s3((const char *)data, n, &page, NULL) == ST_OK)
        check(&page);
    if (listing_read_uploads((const char *)data, n, &page, NULL) == ST_OK)
        check(&page);
    if (listing_read_hf((const char *)data, n, &page, NULL) == ST_OK)
        check(&page);
    if (listing_read_commit((const char *)data, n, commit, NULL) == ST_OK)
        assert(strlen(commit) == 40);
    return 0;
}
