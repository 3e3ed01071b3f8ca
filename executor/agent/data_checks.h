/* The first part of the check of a spec with remote data: trainyard-data looks for the objects, with the keys of the
 * job, and copies nothing. What is missing is a problem of the spec. The check goes on when that is known, or after a
 * few seconds.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_DATA_CHECKS_H
#define EXECUTOR_AGENT_DATA_CHECKS_H

#include "executor/agent/host.h"

#include <trainyard/v1/dispatch.pb-c.h>

struct data_checks;

struct data_checks_owner {
    void *ctx;
    void (*finding)(void *ctx, int64_t check, Trainyard__V1__CheckFinding *finding);
    void (*done)(void *ctx, const Trainyard__V1__StartCheck *start); /* the check goes on; without keys */
};

struct data_checks *data_checks_new(const struct host *host, const struct data_checks_owner *owner);
struct data_checks *data_checks_free(struct data_checks *ds); /* NULL is fine; returns NULL */

/* Whether the request has remote data, and all keys of its stores. */
bool data_checks_needed(const Trainyard__V1__WorkerCheck *request);
int data_checks_count(const struct data_checks *ds);
void data_checks_start(struct data_checks *ds, const Trainyard__V1__StartCheck *start);
/* The check is not wanted any more: nothing is reported. */
void data_checks_stop(struct data_checks *ds, int64_t check);
void data_checks_stop_all(struct data_checks *ds);

#endif
