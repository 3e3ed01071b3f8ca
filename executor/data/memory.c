#include "executor/data/memory.h"

#include <curl/curl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void wiped_free(void *p) {
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

/* realloc could leave the old bytes behind. */
static void *wiped_resize(void *p, size_t n) {
    if (p && n <= malloc_usable_size(p))
        return p;
    void *ret = malloc(n);
    if (ret && p)
        memcpy(ret, p, malloc_usable_size(p));
    if (ret)
        wiped_free(p);
    return ret;
}

status_t memory_init(struct err *e) {
    const CURLcode rc = curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiped_free, wiped_resize, strdup, calloc);
    return rc == CURLE_OK ? ST_OK : err_set(e, ST_INTERNAL, "libcurl cannot start: %s", curl_easy_strerror(rc));
}
