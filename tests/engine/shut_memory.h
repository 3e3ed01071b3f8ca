/* A stand-in for a device whose memory the host cannot touch: kernels_open of "cuda:N" gives, in programs that link
 * shut_memory.c with --wrap for the three functions of its end, the CPU's table over memory that is mapped without any
 * rights but while one of the table's functions runs. Whoever touches it otherwise dies of it. */
#ifndef TESTS_ENGINE_SHUT_MEMORY_H
#define TESTS_ENGINE_SHUT_MEMORY_H

enum { SHUT_MEMORY_ORDINAL = 1 }; /* the N that it answers to */
#define SHUT_MEMORY_DEVICE "cuda:1"

#endif
