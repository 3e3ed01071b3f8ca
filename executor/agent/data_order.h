/* The order to trainyard-data for one job: what it copies, from where, and with which keys. */
#ifndef EXECUTOR_AGENT_DATA_ORDER_H
#define EXECUTOR_AGENT_DATA_ORDER_H

#include "executor/agent/host.h"
#include "executor/agent/worker_process.h"

#include <trainyard/v1/worker.pb-c.h>

/* Owned by the caller. secrets: the values that the spec's stores name, as in AttemptStart; they are copied. */
Trainyard__V1__DataFetch *data_order_new(const struct host *host, const Trainyard__V1__JobSpec *spec,
                                         Trainyard__V1__AttemptSecret *const *secrets, size_t n_secrets);
/* Starts trainyard-data with this command. *ret may be set after an error, too. */
MUST_CHECK status_t data_process_start(const struct host *host, const Trainyard__V1__WorkerCommand *command,
                                       const struct worker_process_owner *owner, struct worker_process **ret,
                                       struct err *e);
/* The same with this order. */
MUST_CHECK status_t data_order_send(const struct host *host, Trainyard__V1__DataFetch *order,
                                    const struct worker_process_owner *owner, struct worker_process **ret,
                                    struct err *e);
/* Overwrites the keys. NULL is fine; returns NULL. */
Trainyard__V1__DataFetch *data_order_free(Trainyard__V1__DataFetch *order);

#endif
