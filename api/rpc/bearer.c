#include "api/rpc/bearer.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char SCHEME[] = "Bearer ";

bool bearer_read(const uint8_t *value, size_t n, const uint8_t **ret, size_t *ret_n) {
    size_t scheme = strlen(SCHEME);
    if (n <= scheme || n - scheme > MAX_BEARER_BYTES || strncasecmp((const char *)value, SCHEME, scheme) != 0)
        return false;
    for (size_t i = scheme; i < n; i++)
        if (!isalnum(value[i]) && (!value[i] || !strchr("-._~+/=", value[i])))
            return false;
    *ret = value + scheme;
    *ret_n = n - scheme;
    return true;
}
