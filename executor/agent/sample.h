/* Text samples from checkpoints: each a worker of its own, beside the slots, at most SAMPLES_MOST at a time and
 * SAMPLE_SECONDS_MOST long. What it writes goes up the control stream as it comes; one that finds the stream congested
 * is ended, so that text never holds back what happens to ranks. */
#ifndef EXECUTOR_AGENT_SAMPLE_H
#define EXECUTOR_AGENT_SAMPLE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/agent.h"

#include <trainyard/v1/dispatch.pb-c.h>

enum { SAMPLES_MOST = 4, SAMPLE_SECONDS_MOST = 600 };

MUST_CHECK status_t samples_open(struct agent *agent, struct samples **ret, struct err *e);
struct samples *samples_close(struct samples *s); /* kills those that run */
CLEANUP_DEFINE(struct samples *, samples_close)

/* A sample that cannot be started ends at once with the reason. */
void samples_start(struct samples *s, const Trainyard__V1__StartSample *start);
void samples_stop(struct samples *s, int64_t sample);
void samples_stop_all(struct samples *s);

#endif
