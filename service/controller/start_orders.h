/* The start orders of live attempts. They stay in memory, so that the controller can send an order again to an agent
 * that lost it, even while the database is unreachable. Bounded by the number of live attempts. Only the loop's thread
 * uses them. */
#ifndef SERVICE_CONTROLLER_START_ORDERS_H
#define SERVICE_CONTROLLER_START_ORDERS_H

#include "base/status.h"
#include "service/controller/attempt_secrets.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/worker.pb-c.h>

struct start_order {
    int64_t job; /* first: the tree's key */
    /* Complete but for `ranks`, which differ from agent to agent, and `secrets`. */
    Trainyard__V1__AttemptStart *start;
    struct attempt_secrets secrets;
    bool has_secrets;   /* they were read; false after a change of the leader */
    char **executors;   /* [start->world_size] the executor of each rank */
    bool has_stop_step; /* of a program that is stopped */
    int64_t stop_step;
};

struct start_orders {
    void *by_job;
};
void start_orders_done(struct start_orders *orders);

/* The stored spec of a job, packed, and where checkpoints may be. */
struct start_order_spec {
    const void *packed;
    size_t n;
    const struct checkpoint_place *place;
};

/* Stores a copy of `start`, with the spec and the checkpoint directory filled in. executors: [start->world_size].
 * Replaces an older order of the job. DATA_LOSS: the stored spec cannot be read. */
MUST_CHECK status_t start_orders_put(struct start_orders *orders, const Trainyard__V1__AttemptStart *start,
                                     const struct start_order_spec *spec, const char *const *executors, struct err *e);
const struct start_order *start_orders_find(const struct start_orders *orders, int64_t job, int attempt);
/* Stores the stop step of the attempt. Its first stop step stays: some ranks may know it already. NULL: no order. */
const struct start_order *start_orders_set_stop_step(struct start_orders *orders, int64_t job, int attempt,
                                                     int64_t step);
/* Takes the secrets of the attempt, which has an order. */
void start_orders_take_secrets(struct start_orders *orders, int64_t job, int attempt, struct attempt_secrets *secrets);
void start_orders_forget(struct start_orders *orders, int64_t job);

/* Writes the ranks of one executor to ret[world_size] and returns their number. */
size_t start_order_ranks(const struct start_order *order, const char *executor, int32_t *ret);

#endif
