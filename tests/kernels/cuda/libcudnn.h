/* A libcudnn.so.9 that computes nothing: it answers as the test says, and remembers what it was given to run. */
#ifndef TESTS_KERNELS_CUDA_LIBCUDNN_H
#define TESTS_KERNELS_CUDA_LIBCUDNN_H

#include <cudnn.h>
#include <stdbool.h>

enum { SCRIPT_ENGINES_MOST = 20, SCRIPT_POINTERS_MOST = 32 };

extern struct cudnn_script {
    size_t version;
    cudnnStatus_t create, graph; /* of the handle; of an operation graph */
    int engines;                 /* that the heuristic offers */
    struct {
        bool nondeterministic;
        cudnnStatus_t plan; /* of its execution plan */
        int64_t workspace;
    } engine[SCRIPT_ENGINES_MOST];
    int plans, runs;
    /* Of the last run. */
    int ran; /* the engine */
    int64_t n, id[SCRIPT_POINTERS_MOST];
    void *pointer[SCRIPT_POINTERS_MOST];
} cudnn_script;

#endif
