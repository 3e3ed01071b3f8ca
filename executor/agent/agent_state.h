/* The agent's parts, for agent.c and agent_step.c only. */
#ifndef EXECUTOR_AGENT_AGENT_STATE_H
#define EXECUTOR_AGENT_AGENT_STATE_H

#include "executor/agent/cache_server.h"
#include "executor/agent/code_copies.h"
#include "executor/agent/control_stream.h"
#include "executor/agent/core/agent_core.h"
#include "executor/agent/data_checks.h"
#include "executor/agent/data_copies.h"
#include "executor/agent/devices.h"
#include "executor/agent/environments.h"
#include "executor/agent/rank_workers.h"
#include "executor/agent/report_stream.h"
#include "executor/agent/sample_copies.h"
#include "executor/agent/shard_uploads.h"
#include "executor/agent/spec_checks.h"
#include "executor/agent/text_encoders.h"
#include "executor/agent/text_samples.h"

struct agent {
    struct host host;
    struct nvml *nvml; /* the library that found the inventory, until devices_open takes it */
    struct agent_core *core;
    struct agent_actions actions; /* actions of the events in progress */
    bool acting;                  /* an outer call of agent_step does the actions */
    struct reactor_timer tick;
    struct rank_workers *workers;
    struct code_copies *code;
    struct environments *environments;
    struct data_copies *data;
    struct cache_server *cache;
    struct shard_uploads *uploads;
    struct text_encoders *encoders;
    struct data_checks *data_checks;
    struct sample_copies *sample_copies;
    struct devices *devices;
    struct request_workers *samples, *checks;
    struct control_stream *control;
    struct report_stream *report;
    void (*attached)(const struct agent *agent);
    struct reactor_timer restart;
    const char *restart_program; /* NULL: no restart was asked for */
    char **restart_argv;
    int restart_tries;
};

/* Passes an event to the core and does the actions that the core returns. An event that arises during an action (a
 * process was spawned) changes the state at once; its actions are done after the remaining actions. */
void agent_step(struct agent *a, struct agent_event *event);

/* Writes the attempt's record to the directory. Only a start requires success: after other failures, the attempt's next
 * change writes the record again. */
MUST_CHECK status_t agent_save_attempt(const struct agent *a, const struct agent_attempt *at, struct err *e);

/* The timer's function; ctx: the agent. */
void agent_tick(void *ctx);

#endif
