#include "service/store/text.h"

#include "base/utf8.h"

#include <string.h>

size_t text_clean(const char *text, char *ret, size_t capacity) {
    size_t n = strlen(text), len = 0;
    for (size_t i = 0; i < n;) {
        size_t one;
        uint32_t code = utf8_next(text + i, n - i, &one);
        char bytes[4];
        size_t put = utf8_put(one ? code : 0xFFFD, bytes);
        if (len + put + 1 > capacity)
            break;
        memcpy(ret + len, bytes, put);
        len += put;
        i += one ? one : 1;
    }
    ret[len] = '\0';
    return len;
}
