#include "service/scheduler/feature.h"

#include <stddef.h>
#include <string.h>

static const struct {
    uint32_t feature;
    const char *name;
} names[] = {
    { SCHEDULER_FEATURE_CODE, "code" },
    { SCHEDULER_FEATURE_SECRETS, "secrets" },
    { SCHEDULER_FEATURE_PYTHON, "python" },
};

uint32_t scheduler_feature_read(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].feature;
    return 0;
}

const char *scheduler_feature_name(uint32_t features) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].feature & features)
            return names[i].name;
    return "unknown";
}
