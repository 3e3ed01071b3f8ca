/* A CUPTI for tests that answers as they script it. cupti_script is the script of the loaded library. */
#ifndef TESTS_KERNELS_CUDA_LIBCUPTI_H
#define TESTS_KERNELS_CUDA_LIBCUPTI_H

#include <cupti.h>
#include <stdbool.h>

/* How cuptiActivityGetNextRecord walks: correctly, beyond the end of the valid bytes, or without advancing. */
enum cupti_walk { CUPTI_WALKS, CUPTI_RUNS_ON, CUPTI_STANDS };

struct cupti_script {
    uint32_t version;
    CUptiResult registers, flushes;
    CUpti_ActivityKind refused; /* the kind that cuptiActivityEnable refuses; 0: none */
    enum cupti_walk walk;
    size_t dropped; /* reported once */

    /* The arguments that it received: */
    bool enabled[CUPTI_ACTIVITY_KIND_COUNT];
    int enables;
    uint64_t pushed[8]; /* in order */
    int n_pushed, n_open;
    CUpti_TimestampCallbackFunc clock;
    CUpti_BuffersCallbackRequestFunc wanted;
    CUpti_BuffersCallbackCompleteFunc full;

    /* The next flush delivers one buffer of `bytes` bytes, and reports `valid` of them as valid. */
    const void *records;
    size_t bytes, valid;
};

#endif
