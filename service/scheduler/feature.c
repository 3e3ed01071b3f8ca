#include "service/scheduler/feature.h"

#include <stddef.h>
#include <string.h>

static const struct {
    uint32_t feature;
    const char *name;
    const char *host_event; /* NULL: every host of the release has it */
} names[] = {
    { SCHEDULER_FEATURE_CODE, "code", NULL },
    { SCHEDULER_FEATURE_SECRETS, "secrets", NULL },
    { SCHEDULER_FEATURE_PYTHON, "python", NULL },
    { SCHEDULER_FEATURE_IMAGE, "image", "no_images" },
    { SCHEDULER_FEATURE_DATA, "data", "no_data_cache" },
    { SCHEDULER_FEATURE_IMAGES, "images", NULL },
    { SCHEDULER_FEATURE_MIXTURE, "mixture", NULL },
    { SCHEDULER_FEATURE_STORE_CHECKPOINTS, SCHEDULER_STORE_CHECKPOINTS, "no_data_cache" },
    { SCHEDULER_FEATURE_STORE_WEIGHTS, "store_weights", "no_data_cache" },
    { SCHEDULER_FEATURE_CHANGED_DATA, "changed_data", NULL },
    { SCHEDULER_FEATURE_MIXUP, "mixup", NULL },
};

uint32_t scheduler_feature_read(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].feature;
    return 0;
}

const char *scheduler_feature_host_event(uint32_t features) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].feature & features)
            return names[i].host_event;
    return NULL;
}

bool scheduler_feature_is_of_host(uint32_t features) { return scheduler_feature_host_event(features) != NULL; }

const char *scheduler_feature_name(uint32_t features) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].feature & features)
            return names[i].name;
    return "unknown";
}
