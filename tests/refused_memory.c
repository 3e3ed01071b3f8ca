#include "tests/refused_memory.h"

#include <errno.h>
#include <search.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static bool watched;
static int left; /* allocations until the one that is refused */
static int refused, held;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void __real_free(void *p);
void *__real_tsearch(const void *key, void **root, int (*compare)(const void *, const void *));
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void __wrap_free(void *p);
void *__wrap_tsearch(const void *key, void **root, int (*compare)(const void *, const void *));

static bool is_refused(void) {
    if (!watched || left-- != 0)
        return false;
    refused++;
    errno = ENOMEM;
    return true;
}

static void *note(void *before, void *p) {
    held += watched && !before && p;
    return p;
}

void *__wrap_malloc(size_t n) { return is_refused() ? NULL : note(NULL, __real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t size) { return is_refused() ? NULL : note(NULL, __real_calloc(n, size)); }
void *__wrap_realloc(void *p, size_t n) { return is_refused() ? NULL : note(p, __real_realloc(p, n)); }

void *__wrap_reallocarray(void *p, size_t n, size_t size) {
    return is_refused() ? NULL : note(p, __real_reallocarray(p, n, size));
}

void __wrap_free(void *p) {
    held -= watched && p;
    __real_free(p);
}

void *__wrap_tsearch(const void *key, void **root, int (*compare)(const void *, const void *)) {
    return !tfind(key, root, compare) && is_refused() ? NULL : __real_tsearch(key, root, compare);
}

void refuse_allocation(int n) {
    left = n;
    refused = held = 0;
    watched = true;
}

bool allow_allocations(void) {
    watched = false;
    return refused > 0;
}

int refuse_each_allocation(const char *what, status_t (*act)(void *ctx, struct err *e), void *ctx) {
    for (int n = 0;; n++) {
        struct err e = { "" };
        refuse_allocation(n);
        status_t st = act(ctx, &e);
        allow_allocations();
        if (held)
            fail_msg("%s, allocation %d: %d stay", what, n, held);
        if (!refused && st == ST_OK)
            return n;
        if (!refused || st != ST_RESOURCE_EXHAUSTED || !e.msg[0])
            fail_msg("%s, allocation %d: %s, \"%s\"", what, n, status_name(st), e.msg);
    }
}
