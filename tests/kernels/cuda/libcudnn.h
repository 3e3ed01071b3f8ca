/* A libcudnn.so.9 that computes nothing. It answers as the test scripts it, and records each run. */
#ifndef TESTS_KERNELS_CUDA_LIBCUDNN_H
#define TESTS_KERNELS_CUDA_LIBCUDNN_H

#include <cudnn.h>
#include <stdbool.h>

enum { MAX_SCRIPT_ENGINES = 20, MAX_SCRIPT_POINTERS = 32 };

extern struct cudnn_script {
    size_t version;
    cudnnStatus_t create, graph; /* of the handle; of an operation graph */
    int engines, first;          /* the engines that the heuristic offers, and the engine that it offers first */
    struct {
        bool nondeterministic;
        cudnnStatus_t plan, run; /* of its execution plan; of a run */
        int64_t workspace;
        int ms; /* of a run */
    } engine[MAX_SCRIPT_ENGINES];
    int plans, runs, clock_ms;
    /* The last run: */
    int ran; /* the engine */
    int64_t n, id[MAX_SCRIPT_POINTERS];
    void *pointer[MAX_SCRIPT_POINTERS];
} cudnn_script;

#endif
