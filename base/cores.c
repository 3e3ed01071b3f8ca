#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

int cores_allowed(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? n : 1;
}
