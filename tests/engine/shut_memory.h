/* A stand-in for a device whose memory the host cannot touch, and whose calls run later than they are made:
 * kernels_open of "cuda:N" gives, in programs that link shut_memory.c with --wrap for the three functions of its end,
 * the CPU's table over memory that is mapped without any rights but while its functions run; and they run only when
 * somebody waits for them. What is captured runs at each launch with the arguments that it was called with. Whoever
 * touches the memory, changes what an upload has yet to read, or waits inside a capture, dies or computes something
 * else. */
#ifndef TESTS_ENGINE_SHUT_MEMORY_H
#define TESTS_ENGINE_SHUT_MEMORY_H

enum { SHUT_MEMORY_ORDINAL = 1 }; /* the N that it answers to */
#define SHUT_MEMORY_DEVICE "cuda:1"

/* What it does with a capture: what a device does; nothing; or the same but that uploads have what they had then. */
enum shut_memory_capture { SHUT_MEMORY_CAPTURES, SHUT_MEMORY_REFUSES, SHUT_MEMORY_FREEZES };
void shut_memory_reset(enum shut_memory_capture capture); /* of this process and those that it forks */
int shut_memory_launches(void);                           /* of theirs, since then */

#endif
