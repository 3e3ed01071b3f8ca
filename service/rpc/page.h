/* Page sizes and page tokens. A token is opaque to clients and bound to the question that it continues. */
#ifndef SERVICE_RPC_PAGE_H
#define SERVICE_RPC_PAGE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define PAGE_TOKEN_BYTES  112
#define PAGE_NUMBERS_MOST 6

/* 0 becomes DEFAULT_PAGE_SIZE, more than LIMIT_PAGE_SIZE that; INVALID_ARGUMENT for a negative one. */
MUST_CHECK status_t page_size(int32_t asked, int *ret, struct err *e);

/* last: where the next page begins. filter: everything of the request that must not change between pages, as text. */
void page_token_write(int64_t last, const char *filter, char ret[PAGE_TOKEN_BYTES]);
/* "" is 0. INVALID_ARGUMENT for what is no token, or one of another filter. */
MUST_CHECK status_t page_token_read(const char *token, const char *filter, int64_t *ret_last, struct err *e);

/* The same where it takes n numbers to say where the next page begins, none of them negative; "" leaves them as they
 * are. */
void page_token_write_all(const int64_t *numbers, size_t n, const char *filter, char ret[PAGE_TOKEN_BYTES]);
MUST_CHECK status_t page_token_read_all(const char *token, const char *filter, int64_t *ret_numbers, size_t n,
                                        struct err *e);

#endif
