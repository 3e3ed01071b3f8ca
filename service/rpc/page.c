#include "service/rpc/page.h"

#include "base/limits.h"
#include "base/sha256.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

status_t page_size(int32_t asked, int *ret, struct err *e) {
    if (asked < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "page_size: %d is negative", (int)asked);
    *ret = asked == 0 ? DEFAULT_PAGE_SIZE : asked > LIMIT_PAGE_SIZE ? LIMIT_PAGE_SIZE : asked;
    return ST_OK;
}

/* 24 bits of a digest detect a token of another request. They need not resist forgery: a token only selects where a
 * page of the caller's own request begins. */
static unsigned filter_mark(const char *filter) {
    uint8_t digest[SHA256_BYTES];
    sha256_of(filter, strlen(filter), digest);
    return (unsigned)digest[0] << 16 | (unsigned)digest[1] << 8 | digest[2];
}

void page_token_write_all(const int64_t *numbers, size_t n, const char *filter, char ret[PAGE_TOKEN_BYTES]) {
    assert(n <= PAGE_MAX_NUMBERS);
    int len = snprintf(ret, PAGE_TOKEN_BYTES, "%06x", filter_mark(filter));
    for (size_t i = 0; i < n; i++)
        len += snprintf(ret + len, PAGE_TOKEN_BYTES - (size_t)len, "%s%llx", i ? "-" : "",
                        (unsigned long long)numbers[i]);
}

static bool parse(const char *at, unsigned *ret_mark, int64_t *ret_numbers, size_t n) {
    int used = 0;
    if (sscanf(at, "%6x%n", ret_mark, &used) != 1 || used != 6)
        return false;
    at += used;
    for (size_t i = 0; i < n; i++, at += used) {
        unsigned long long number;
        if ((i > 0 && *at++ != '-') || sscanf(at, "%llx%n", &number, &used) != 1 || number > INT64_MAX)
            return false;
        ret_numbers[i] = (int64_t)number;
    }
    return *at == '\0';
}

status_t page_token_read_all(const char *token, const char *filter, int64_t *ret_numbers, size_t n, struct err *e) {
    unsigned mark;
    if (!token[0])
        return ST_OK;
    if (!parse(token, &mark, ret_numbers, n))
        return err_set(e, ST_INVALID_ARGUMENT, "page_token: '%.40s' is not a token of this service", token);
    if (mark != filter_mark(filter))
        return err_set(e, ST_INVALID_ARGUMENT, "page_token: it belongs to a request with other filters");
    return ST_OK;
}

void page_token_write(int64_t last, const char *filter, char ret[PAGE_TOKEN_BYTES]) {
    page_token_write_all(&last, 1, filter, ret);
}

status_t page_token_read(const char *token, const char *filter, int64_t *ret_last, struct err *e) {
    *ret_last = 0;
    TRY(page_token_read_all(token, filter, ret_last, 1, e));
    if (token[0] && *ret_last == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "page_token: '%.40s' is not a token of this service", token);
    return ST_OK;
}
