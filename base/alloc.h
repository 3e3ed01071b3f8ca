/* Small allocations. If the system refuses one, the process prints one line and ends with status 71 (EX_OSERR): no
 * caller can go on without a few kilobytes, and the libraries below (gRPC, glib, libc) end the process then, too.
 *
 *     struct client *c = alloc_zeroed(1, sizeof *c);
 *     c->items = alloc_resize(c->items, n + 1, sizeof *c->items);
 *     c->name = alloc_copy_text(name);
 *
 * Use it for memory whose size does not depend on a model, a file or a peer. Large buffers (the arena, spools, batches,
 * messages of a peer's size) are allocated by functions that return a status, so that a job can fail with a sentence
 * instead of the process: base/bytes.h, base/array.h, and malloc with a check.
 *
 * What these functions return is never NULL and is released by free. They take any thread. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stddef.h>

/* n elements of `size` bytes, all zero. n or size may be 0. */
void *alloc_zeroed(size_t n, size_t size) __attribute__((malloc, returns_nonnull, warn_unused_result));

/* The array p (NULL: none) with n elements of `size` bytes; added elements are uninitialised. p is invalid from then
 * on. */
void *alloc_resize(void *p, size_t n, size_t size) __attribute__((returns_nonnull, warn_unused_result));

/* The array p (NULL: none), which has n elements of `size` bytes, with capacity for one more. Doubles the capacity when
 * n is a power of two, so that the capacity need not be stored: call it before each added element. */
void *alloc_grow(void *p, size_t n, size_t size) __attribute__((returns_nonnull, warn_unused_result));

/* tsearch(3): returns the tree's node of `key`, a new one if there was none. */
void *alloc_tree_node(const void *key, void **root, int (*compare)(const void *, const void *))
    __attribute__((returns_nonnull));

/* A copy of a NUL-terminated text. */
char *alloc_copy_text(const char *text) __attribute__((malloc, returns_nonnull, warn_unused_result));

/* A text of any length, as by printf. */
char *alloc_format(const char *fmt, ...)
    __attribute__((malloc, returns_nonnull, warn_unused_result, format(printf, 1, 2)));

/* Prints "out of memory: N bytes were refused" and ends the process: for allocators of libraries. */
void alloc_refused(size_t bytes) __attribute__((noreturn));

#endif
