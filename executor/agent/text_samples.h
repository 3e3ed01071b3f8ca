/* Text samples from checkpoints, and verifications of checkpoints (request_workers.h). If the control stream is
 * congested, the worker is killed, so that text never delays the reports about ranks. */
#ifndef EXECUTOR_AGENT_TEXT_SAMPLES_H
#define EXECUTOR_AGENT_TEXT_SAMPLES_H

#include "executor/agent/request_workers.h"

enum { SAMPLE_SECONDS_MAX = 600, VERIFY_SECONDS_MAX = 3600 };

extern const struct request_kind text_sample_kind;

/* A checkpoint of a store that was copied to a folder of this host, and what is called when the sample has ended. */
struct text_sample_copy {
    const char *local, *folder; /* below local */
    void (*ended)(void *ctx, int64_t sample);
    void *ctx;
};
/* copy: NULL = the checkpoint is in a folder. */
void text_sample_start(struct request_workers *samples, const struct host *host,
                       const Trainyard__V1__StartSample *start, const struct text_sample_copy *copy);

#endif
