/* A file of requirements, which any user may submit. Any bytes give lines with growing numbers and whole paths; joined
 * paths stay in their folder. */
#include "api/code/requirements.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *at = (const char *)data, *end = at + n;
    int number = 0, last = 0;
    for (bool over = false; !over;) {
        struct requirements_line line;
        char joined[REQUIREMENTS_PATH_BYTES];
        const char *const before = at;
        if (requirements_next(&at, end, &number, &line, &over, NULL) != ST_OK)
            return 0;
        assert(at <= end && (over || (at > before && line.number > last)));
        last = line.number;
        assert(strnlen(line.include, sizeof line.include) < sizeof line.include);
        if (*line.include && requirements_join("a/b.txt", line.include, joined)) {
            assert(strlen(joined) < sizeof joined && (*joined == '/') == (*line.include == '/'));
            assert(strncmp(joined, "../", 3) != 0 && !strstr(joined, "/../"));
        }
    }
    return 0;
}
