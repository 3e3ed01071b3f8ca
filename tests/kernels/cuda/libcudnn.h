/* A libcudnn.so.9 that computes nothing: it answers as the test says, and remembers what it was given to run. */
#ifndef TESTS_KERNELS_CUDA_LIBCUDNN_H
#define TESTS_KERNELS_CUDA_LIBCUDNN_H

#include <cudnn.h>
#include <stdbool.h>

enum { SCRIPT_ENGINES_MOST = 20, SCRIPT_POINTERS_MOST = 32 };

extern struct cudnn_script {
    size_t version;
    cudnnStatus_t create, graph; /* of the handle; of an operation graph */
    int engines, first;          /* that the heuristic offers, and which one before the others */
    struct {
        bool nondeterministic;
        cudnnStatus_t plan, run; /* of its execution plan; of a run */
        int64_t workspace;
        int ms; /* of a run */
    } engine[SCRIPT_ENGINES_MOST];
    int plans, runs, clock_ms;
    /* Of the last run. */
    int ran; /* the engine */
    int64_t n, id[SCRIPT_POINTERS_MOST];
    void *pointer[SCRIPT_POINTERS_MOST];
} cudnn_script;

#endif
