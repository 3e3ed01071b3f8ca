/* Why a rank ended: the cause that the controller judges its attempt by, and a sentence, from all that is known of it
 * here. Pure. */
#ifndef EXECUTOR_AGENT_VERDICT_H
#define EXECUTOR_AGENT_VERDICT_H

#include "executor/agent/reap.h"

struct verdict_facts {
    const struct reaped *how;
    const Trainyard__V1__WorkerEnd *word; /* its last one; NULL without. It counts unless a signal ended the worker */
    const char *killed_because;           /* as reap_sentence */
    int device;                           /* devices_index */
    const char *device_lost;              /* why `device`, its own, is quarantined; NULL: it is not */
    bool leaving;                         /* the agent stops its workers */
};

enum { VERDICT_SENTENCE_BYTES = 240 };
struct verdict {
    Trainyard__V1__WorkerEnd__Cause cause;
    char sentence[VERDICT_SENTENCE_BYTES];
    bool by_word; /* the worker has said so itself */
};

void verdict_reach(const struct verdict_facts *facts, struct verdict *ret);

#endif
