/* How much memory this process may use. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdint.h>

/* Bytes: this host's memory, but no more than the control group allows (memory.max of cgroup v2, here and in the
 * groups above). 0: not known. */
int64_t memory_allowed(void);

/* The control group's limit alone, as cores_of_quota finds the CPU's. 0: none, or it cannot be read. */
int64_t memory_of_group(const char *membership, const char *root);

#endif
