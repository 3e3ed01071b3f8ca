/* CUDA's events, for programs whose library computes nothing and reports a scripted duration of its work. */
#ifndef TESTS_KERNELS_CUDA_SCRIPTED_EVENTS_H
#define TESTS_KERNELS_CUDA_SCRIPTED_EVENTS_H

extern const int *const scripted_clock_ms; /* the program's: what an event that is recorded now keeps */

#endif
