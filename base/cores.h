/* How many processors this process may use: those of its affinity (taskset, cpuset), not those of the machine. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

int cores_allowed(void); /* at least 1 */

#endif
