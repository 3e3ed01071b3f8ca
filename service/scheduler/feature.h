/* Features of agents that some jobs need, so that an executor of an older release does not run such a job in a wrong
 * way. Agents name them in AgentHello.features. A job's row has the sum of the features that it needs. */
#ifndef SERVICE_SCHEDULER_FEATURE_H
#define SERVICE_SCHEDULER_FEATURE_H

#include <stdbool.h>
#include <stdint.h>

/* The numbers are stored with jobs. Never change one. */
enum scheduler_feature {
    SCHEDULER_FEATURE_CODE = 1,                /* program.code */
    SCHEDULER_FEATURE_SECRETS = 2,             /* program.secrets */
    SCHEDULER_FEATURE_PYTHON = 4,              /* program.python */
    SCHEDULER_FEATURE_IMAGE = 8,               /* program.image; a host may be unable to do it */
    SCHEDULER_FEATURE_DATA = 16,               /* data of stores; a host may be unable to do it */
    SCHEDULER_FEATURE_IMAGES = 32,             /* images of no folder, or changed by more than crop_padding and flip */
    SCHEDULER_FEATURE_MIXTURE = 64,            /* data.mixture */
    SCHEDULER_FEATURE_CHANGED_DATA = 128,      /* train.changed_data */
    SCHEDULER_FEATURE_STORE_CHECKPOINTS = 256, /* checkpoint.store; a host may be unable to do it */
    SCHEDULER_FEATURE_STORE_WEIGHTS = 512,     /* train.init_from in a store; a host may be unable to do it */
    SCHEDULER_FEATURE_MIXUP = 1024,            /* augment.mixup */
};

#define SCHEDULER_STORE_CHECKPOINTS "store_checkpoints"

/* The number of a feature; 0: this controller does not know the name. */
uint32_t scheduler_feature_read(const char *name);
/* Whether the first of these features also depends on what the agent's host can do, not only on the agent's release. */
bool scheduler_feature_is_of_host(uint32_t features);
/* What the log of such a host calls its reason: "no_images". NULL: the first of these features is no such feature. */
const char *scheduler_feature_host_event(uint32_t features);
/* The name of the first of these features, as agents write it; "unknown" if none has a name. */
const char *scheduler_feature_name(uint32_t features);

#endif
