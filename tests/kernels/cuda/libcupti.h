/* A CUPTI for tests, which says what they script: cupti_script is the one of the loaded library. */
#ifndef TESTS_KERNELS_CUDA_LIBCUPTI_H
#define TESTS_KERNELS_CUDA_LIBCUPTI_H

#include <cupti.h>
#include <stdbool.h>

/* How cuptiActivityGetNextRecord walks: as it should; on over the end of what is valid; or on the spot. */
enum cupti_walk { CUPTI_WALKS, CUPTI_RUNS_ON, CUPTI_STANDS };

struct cupti_script {
    uint32_t version;
    CUptiResult registers, flushes;
    CUpti_ActivityKind refused; /* by cuptiActivityEnable; 0: none */
    enum cupti_walk walk;
    size_t dropped; /* told once */

    /* What it was told. */
    bool enabled[CUPTI_ACTIVITY_KIND_COUNT];
    int enables;
    uint64_t pushed[8]; /* in order */
    int n_pushed, n_open;
    CUpti_TimestampCallbackFunc clock;
    CUpti_BuffersCallbackRequestFunc wanted;
    CUpti_BuffersCallbackCompleteFunc full;

    /* What the next flush delivers: so many bytes in one buffer, and how many of them it calls valid. */
    const void *records;
    size_t bytes, valid;
};

#endif
