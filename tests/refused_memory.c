#include "tests/refused_memory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void __wrap_free(void *p);

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

int refuse_each_allocation(const char *what, status_t (*act)(void *ctx, struct err *e), void *ctx) {
    for (int n = 0;; n++) {
        struct err e = { "" };
        left = n;
        refused = held = 0;
        watched = true;
        status_t st = act(ctx, &e);
        watched = false;
        if (held)
            fail_msg("%s, allocation %d: %d stay", what, n, held);
        if (!refused && st == ST_OK)
            return n;
        if (!refused || st != ST_RESOURCE_EXHAUSTED || !e.msg[0])
            fail_msg("%s, allocation %d: %s, \"%s\"", what, n, status_name(st), e.msg);
    }
}
