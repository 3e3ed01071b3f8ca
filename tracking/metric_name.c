#include "tracking/metric_name.h"

#include "base/crc32c.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CUT_BYTES = LIMIT_METRIC_NAME_BYTES - 9 }; /* what is left of a long name before '~' and its checksum */

static bool name_char(char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\'; }

bool metric_name_make(const char *whole, char ret[LIMIT_METRIC_NAME_BYTES + 1]) {
    const size_t n = strlen(whole);
    const bool cut = n > LIMIT_METRIC_NAME_BYTES;
    const size_t kept = cut ? CUT_BYTES : n;
    bool changed = cut;
    for (size_t i = 0; i < kept; i++) {
        ret[i] = name_char(whole[i]) ? whole[i] : '_';
        changed |= ret[i] != whole[i];
    }
    ret[kept] = '\0';
    if (cut)
        snprintf(ret + kept, LIMIT_METRIC_NAME_BYTES + 1 - kept, "~%08" PRIx32, crc32c(0, whole, n));
    return changed;
}
