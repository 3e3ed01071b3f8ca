/* What a plan's instructions take on a device: seconds of compute, seconds and bytes on the wire. Estimates from a
 * profile (profile.h) and the op's own figures (cost.h), the same for every rank of a class; timeline.h puts them one
 * behind the other as the plan's queues would.
 *
 * Collectives are costed as collective/ runs them: recursive halving, at level k between data ranks d and d xor 2^k,
 * each of which sends and receives at once; ZeRO 0 and GATHER go the way back. */
#ifndef EXECUTOR_ENGINE_PLAN_STEP_COST_H
#define EXECUTOR_ENGINE_PLAN_STEP_COST_H

#include "executor/engine/plan/plan.h"
#include "executor/engine/plan/profile.h"

/* Work of a compute instruction; zero for WAIT and DROP. */
struct op_cost step_cost_work(const struct plan *plan, const struct instruction *i);
/* Seconds of a compute instruction, of an entry of the data queue, and of a SEND or RECV. */
double step_cost_seconds(const struct plan *plan, enum plan_queue queue, const struct instruction *i,
                         const struct plan_profile *profile);

enum wire_kind {
    WIRE_REDUCE,      /* gradients among data ranks */
    WIRE_GATHER,      /* parameters among data ranks */
    WIRE_ACTIVATIONS, /* boundary tensors */
    WIRE_GRADIENTS,   /* their gradients */
    WIRE_SHARED,      /* gradients and weights of parameters that two stages use */
    WIRE_KINDS,
};
const char *wire_kind_name(enum wire_kind kind);

/* Bytes that this rank sends in a step, to ranks of its node and of others. Step records and chunk sums, which are
 * small, are left out. */
struct wire_bytes {
    double near[WIRE_KINDS], far[WIRE_KINDS];
};
struct wire_bytes step_cost_wire(const struct plan *plan, const struct plan_profile *profile);

#endif
