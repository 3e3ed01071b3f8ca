/* Page sizes and page tokens. A token is opaque to clients and bound to the filter of the request that it continues. */
#ifndef SERVICE_RPC_PAGE_H
#define SERVICE_RPC_PAGE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define PAGE_TOKEN_BYTES 112
#define PAGE_MAX_NUMBERS 6

/* 0 becomes DEFAULT_PAGE_SIZE, a size above LIMIT_PAGE_SIZE becomes LIMIT_PAGE_SIZE; INVALID_ARGUMENT if negative. */
MUST_CHECK status_t page_size(int32_t asked, int *ret, struct err *e);

/* last: the place where the next page begins. filter: the fields of the request that must not change between pages, as
 * text. */
void page_token_write(int64_t last, const char *filter, char ret[PAGE_TOKEN_BYTES]);
/* "" gives 0. INVALID_ARGUMENT for text that is not a token, and for a token of another filter. */
MUST_CHECK status_t page_token_read(const char *token, const char *filter, int64_t *ret_last, struct err *e);

/* The same with n numbers for the place where the next page begins: at most PAGE_MAX_NUMBERS, none negative. Reading ""
 * leaves the numbers unchanged. */
void page_token_write_all(const int64_t *numbers, size_t n, const char *filter, char ret[PAGE_TOKEN_BYTES]);
MUST_CHECK status_t page_token_read_all(const char *token, const char *filter, int64_t *ret_numbers, size_t n,
                                        struct err *e);

#endif
