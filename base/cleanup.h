/* Release on every path: variables that free what they hold when they leave scope, and `take_` to hand it out.
 *
 *     CLEANUP(closep) int fd = open(...);
 *     CLEANUP(freep) char *head = malloc(64);
 *     ...
 *     *ret_fd = take_fd(&fd);      // success: the caller owns it now, nothing is closed here
 *
 * Every handle type of the project offers `thing_closep` or `thing_freep` beside its `thing_close`/`thing_free` by
 * CLEANUP_DEFINE. close and free take NULL and half-built objects, and return NULL: `t = thing_close(t);`. */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* CLEANUP_DEFINE(struct store *, store_close) makes store_closep(struct store **). */
#define CLEANUP_DEFINE(type, fn)                                                                                       \
    static inline void fn##p(type *p) {                                                                                \
        if (*p)                                                                                                        \
            *p = fn(*p);                                                                                               \
    }

static inline void freep(void *p) {
    void **pp = (void **)p;
    free(*pp);
    *pp = NULL;
}

static inline void closep(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static inline void fclosep(FILE **f) {
    if (*f)
        fclose(*f);
    *f = NULL;
}

/* The descriptor changes owner: the variable becomes -1. */
static inline int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* The pointer changes owner: the variable becomes NULL. take_ptr(&p) keeps p's type. */
#define take_ptr(pp)                                                                                                   \
    __extension__({                                                                                                    \
        __typeof__(*(pp)) taken_ = *(pp);                                                                              \
        *(pp) = NULL;                                                                                                  \
        taken_;                                                                                                        \
    })

#endif
