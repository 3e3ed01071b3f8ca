#include "service/rpc/page.h"

#include "base/limits.h"
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

status_t page_size(int32_t asked, int *ret, struct err *e) {
    if (asked < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "page_size: %d is negative", (int)asked);
    *ret = asked == 0 ? DEFAULT_PAGE_SIZE : asked > LIMIT_PAGE_SIZE ? LIMIT_PAGE_SIZE : asked;
    return ST_OK;
}

static unsigned filter_mark(const char *filter) {
    uint8_t digest[SHA256_BYTES];
    sha256_of(filter, strlen(filter), digest);
    return (unsigned)digest[0] << 16 | (unsigned)digest[1] << 8 | digest[2];
}

void page_token_write(int64_t last, const char *filter, char ret[PAGE_TOKEN_BYTES]) {
    snprintf(ret, PAGE_TOKEN_BYTES, "%06x%llx", filter_mark(filter), (unsigned long long)last);
}

status_t page_token_read(const char *token, const char *filter, int64_t *ret_last, struct err *e) {
    if (!token[0]) {
        *ret_last = 0;
        return ST_OK;
    }
    unsigned mark;
    unsigned long long last;
    int used = 0;
    if (sscanf(token, "%6x%llx%n", &mark, &last, &used) != 2 || token[used] || last == 0 || last > INT64_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "page_token: '%.40s' is not a token of this service", token);
    if (mark != filter_mark(filter))
        return err_set(e, ST_INVALID_ARGUMENT, "page_token: it belongs to a request with other filters");
    *ret_last = (int64_t)last;
    return ST_OK;
}
