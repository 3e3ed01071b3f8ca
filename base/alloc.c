#include "base/alloc.h"

#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

void alloc_refused(size_t bytes) {
    dprintf(STDERR_FILENO, "out of memory: %zu bytes were refused\n", bytes);
    _exit(EX_OSERR);
}

void *alloc_zeroed(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        alloc_refused(n * size);
    return p;
}

void *alloc_resize(void *p, size_t n, size_t size) {
    void *resized = reallocarray(p, n ? n : 1, size ? size : 1);
    if (!resized)
        alloc_refused(n * size);
    return resized;
}

void *alloc_grow(void *p, size_t n, size_t size) { return n & (n - 1) ? p : alloc_resize(p, n ? 2 * n : 1, size); }

void *alloc_tree_node(const void *key, void **root, int (*compare)(const void *, const void *)) {
    void *node = tsearch(key, root, compare);
    if (!node)
        alloc_refused(3 * sizeof node);
    return node;
}

char *alloc_copy_text(const char *text) {
    const size_t bytes = strlen(text) + 1;
    return memcpy(alloc_zeroed(bytes, 1), text, bytes);
}

char *alloc_format(const char *fmt, ...) {
    char *text;
    va_list args;
    va_start(args, fmt);
    const int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0)
        alloc_refused(strlen(fmt));
    return text;
}
