#include "base/memory.h"

#include "base/control_group.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* "max" means no limit. */
static int64_t limit_bytes(const char *text) {
    long long bytes = 0;
    return sscanf(text, "%lld", &bytes) == 1 && bytes > 0 && bytes < LLONG_MAX ? bytes : 0;
}

int64_t memory_of_group(const char *membership, const char *root) {
    return control_group_min(membership, root, "memory.max", limit_bytes);
}

int64_t memory_allowed(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    const int64_t all = pages > 0 && page_bytes > 0 ? (int64_t)pages * page_bytes : 0;
    const int64_t group = memory_of_group(CONTROL_GROUP_MEMBERSHIP, CONTROL_GROUP_ROOT);
    return group > 0 && (all == 0 || group < all) ? group : all;
}
