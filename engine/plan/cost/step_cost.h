/* What a plan's instructions take on a device: seconds of compute, seconds and bytes on the wire. Estimates from a
 * profile (profile.h) and the op's own figures (op_cost.h). timeline.h arranges
 * them in time.
 *
 * Collectives are costed as collective/ runs them: recursive halving, at level k between data ranks d and d xor 2^k,
 * each of which sends and receives at once; ZeRO 0 and GATHER go the way back. */
#ifndef ENGINE_PLAN_COST_STEP_COST_H
#define ENGINE_PLAN_COST_STEP_COST_H

#include "engine/plan/cost/profile.h"
#include "engine/plan/plan.h"

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

/* Bytes that this rank sends in a step, to ranks of its node and of others. Step results and chunk sums, which are
 * small, are left out. */
struct wire_bytes {
    double intra_node[WIRE_KINDS], inter_node[WIRE_KINDS];
};
struct wire_bytes step_cost_wire(const struct plan *plan, const struct plan_profile *profile);

#endif
