/* How the shim describes its fibres to TSan. TSan takes each fibre for a thread. Only barriers, and the beginning and
 * end of a launch, order the accesses of two fibres. So TSan finds a missing barrier, and blocks that access the same
 * memory, in whatever order they run. Without TSan these functions do nothing.
 *
 * A shuffle does not order memory accesses, according to CUDA's guide, but __syncwarp does. runtime.cc itself is
 * compiled without TSan, so its own accesses are not checked. */
#ifndef TESTS_KERNELS_CUDA_SHIM_RACES_H
#define TESTS_KERNELS_CUDA_SHIM_RACES_H

#include <stddef.h>

#ifdef SHIM_RACES
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateBenignRaceSized(const char *file, int line, const volatile void *at, size_t bytes, const char *why);
}
#endif

namespace shim {

enum {
#ifdef SHIM_RACES
    RACES = 1
#else
    RACES = 0
#endif
};

#ifdef SHIM_RACES
static inline void *race_thread_mine() { return __tsan_get_current_fiber(); }
static inline void *race_thread_new() { return __tsan_create_fiber(0); }
static inline void race_thread_goes_on(void *thread) { __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync); }
/* The caller's accesses so far happen before the later accesses of every thread that calls race_after for this place.
 */
static inline void race_before(void *place) { __tsan_release(place); }
static inline void race_after(void *place) { __tsan_acquire(place); }
/* Stacks: one thread uses this memory after another, which is no race. */
static inline void race_never(void *at, size_t bytes) {
    AnnotateBenignRaceSized(__FILE__, __LINE__, at, bytes, "a stack");
}
static inline void race_look_away() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
static inline void race_look_again() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void *race_thread_mine() { return NULL; }
static inline void *race_thread_new() { return NULL; }
static inline void race_thread_goes_on(void *) {}
static inline void race_before(void *) {}
static inline void race_after(void *) {}
static inline void race_never(void *, size_t) {}
static inline void race_look_away() {}
static inline void race_look_again() {}
#endif

} // namespace shim

#endif
