/* Checks of specs that have no job yet (request_workers.h). The worker gets the spec with this host's roots,
 * exclusions, cores and memory, and sends its findings. */
#ifndef EXECUTOR_AGENT_SPEC_CHECKS_H
#define EXECUTOR_AGENT_SPEC_CHECKS_H

#include "executor/agent/request_workers.h"

enum { CHECK_SECONDS_MAX = 15 };

extern const struct request_kind spec_check_kind;
void spec_check_start(struct request_workers *checks, const struct host *host, const Trainyard__V1__StartCheck *start);
/* A finding of another part of a check. */
void spec_check_finding(struct request_workers *checks, int64_t check, Trainyard__V1__CheckFinding *finding);

#endif
