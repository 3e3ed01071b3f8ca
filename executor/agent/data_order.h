/* The order to trainyard-data for one job: what it copies, from where, and with which keys. */
#ifndef EXECUTOR_AGENT_DATA_ORDER_H
#define EXECUTOR_AGENT_DATA_ORDER_H

#include "executor/agent/host.h"
#include "executor/agent/worker_process.h"

#include <trainyard/v1/worker.pb-c.h>

/* Owned by the caller. secrets: the values that the spec's stores name, as in AttemptStart; they are copied. */
Trainyard__V1__DataFetch *data_order_new(const struct host *host, const Trainyard__V1__JobSpec *spec,
                                         Trainyard__V1__AttemptSecret *const *secrets, size_t n_secrets);
/* The same without the URIs of the spec's data: the cache, and how the stores are reached. */
Trainyard__V1__DataFetch *data_order_new_stores(const struct host *host, const Trainyard__V1__JobSpec *spec,
                                                Trainyard__V1__AttemptSecret *const *secrets, size_t n_secrets);
/* The name of an object below checkpoint.store that this executor writes and removes to see that it may. It is the same
 * each time, so that at most one is left by killed processes. */
char *data_order_marker(const struct host *host, const Trainyard__V1__JobSpec *spec);
/* Adds the caches of other hosts that the start order names, which are copied. */
void data_order_add_peers(Trainyard__V1__DataFetch *order, const struct host *host,
                          const Trainyard__V1__AttemptStart *start);
/* Starts trainyard-data with this command. *ret may be set after an error, too. */
MUST_CHECK status_t data_process_start(const struct host *host, const Trainyard__V1__WorkerCommand *command,
                                       const struct worker_process_owner *owner, struct worker_process **ret,
                                       struct err *e);
/* The same with this order. */
MUST_CHECK status_t data_order_send(const struct host *host, Trainyard__V1__DataFetch *order,
                                    const struct worker_process_owner *owner, struct worker_process **ret,
                                    struct err *e);
/* Overwrites the values of an order's secrets, for those who need no longer have them. */
void attempt_secrets_wipe(Trainyard__V1__AttemptSecret *const *secrets, size_t n);
/* Overwrites the keys. NULL is fine; returns NULL. */
Trainyard__V1__DataFetch *data_order_free(Trainyard__V1__DataFetch *order);

#endif
