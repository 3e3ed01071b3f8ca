/* Attempts and ranks of the core as protobuf messages: for the controller, and for the agent's directory. */
#ifndef EXECUTOR_AGENT_ATTEMPT_MESSAGES_H
#define EXECUTOR_AGENT_ATTEMPT_MESSAGES_H

#include "executor/agent/control_stream.h"
#include "executor/agent/core/agent_core.h"
#include "executor/agent/rank_workers.h"

/* The reports of the core's actions: each is dropped if there is no stream. */
struct attempt_reporter {
    const struct host *host;
    struct control_stream *stream;
    const struct rank_workers *workers;
};

void report_rank_started(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r);
void report_rank_address(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r);
void report_rank_joined(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r);
void report_rank_stop_step(const struct attempt_reporter *p, const struct agent_attempt *at,
                           const struct agent_rank *r);
void report_rank_threads(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r);
void report_rank_ended(const struct attempt_reporter *p, const struct agent_attempt *at, const struct agent_rank *r);
/* at: NULL for an attempt that this agent does not know. The report then names no ranks. */
void report_attempt_ended(const struct attempt_reporter *p, int64_t job, int32_t attempt,
                          const struct agent_attempt *at);

/* An attempt's status; owns its arrays and borrows the rest from the core and the workers. */
struct attempt_status {
    Trainyard__V1__AttemptStatus message;
    Trainyard__V1__AttemptEnded end;
    Trainyard__V1__RankStatus *ranks, **rank_pointers;
    Trainyard__V1__RankEnd *ends, **end_pointers;
};
void attempt_status_init(struct attempt_status *s, const struct agent_attempt *at, const struct host *host,
                         const struct rank_workers *workers);
void attempt_status_done(struct attempt_status *s);

/* An attempt of an earlier agent, from its record in the directory: kills its processes if they still run, waits until
 * they are gone, and loads the attempt into the core as an ended attempt. running: its ranks that were handed over and
 * continue, and the attempt's threads; NULL: there are none. */
MUST_CHECK status_t attempt_recover(struct agent_core *core, const Trainyard__V1__AttemptStatus *record,
                                    const struct agent_attempt *running, struct err *e);

#endif
