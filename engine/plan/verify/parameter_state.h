/* The parameters of one rank during the simulation: which elements have been stepped (updated), which transfers are
 * posted, and with ZeRO 3 which buckets are gathered. When a step ends, every parameter that the stage reads must be
 * updated completely, and no transfer of it may be open. */
#ifndef ENGINE_PLAN_VERIFY_PARAMETER_STATE_H
#define ENGINE_PLAN_VERIFY_PARAMETER_STATE_H

#include "engine/plan/plan.h"
#include "engine/plan/verify/live_set.h"

/* A set of integers as sorted, disjoint ranges. */
struct range_set {
    int64_t (*at)[2];
    int n;
};
void range_set_done(struct range_set *s);
/* Adds a range. Does nothing if the set overlaps it (range_set_overlaps). */
MUST_CHECK status_t range_set_add(struct range_set *s, int64_t begin, int64_t end, struct err *e);
bool range_set_overlaps(const struct range_set *s, int64_t begin, int64_t end);
bool range_set_contains(const struct range_set *s, int64_t begin, int64_t end);

enum gather_state { GATHER_NONE, GATHER_POSTED, GATHER_DONE };

struct parameter_state {
    const struct plan *plan;
    struct live_set *communication; /* borrowed: FAMILY_COMMUNICATION */
    struct range_set *updated;      /* [n_parameters] elements whose new value is where this rank's ops read it */
    int *transfers;                 /* [n_parameters] posted transfers that read or write it */
    enum gather_state *gathered;    /* [n_buckets] */
    bool *gathering;                /* [n_buckets] ZeRO 1-2 */
    int *bucket_of;                 /* [n_parameters] the bucket that holds it; -1 */
    bool *read;                     /* [n_parameters] an op of this stage reads it */
};

/* parameter_state_done, after a failure too. */
MUST_CHECK status_t parameter_state_init(struct parameter_state *b, const struct plan *plan,
                                         struct live_set *communication, struct err *e);
void parameter_state_done(struct parameter_state *b);

/* An op that reads its parameters. */
MUST_CHECK status_t parameter_state_read(const struct parameter_state *b, const struct op *op, struct err *e);
MUST_CHECK status_t parameter_state_step(struct parameter_state *b, int shard, struct err *e);
/* SWITCH_AVERAGES of a shard. Twice would undo it. */
MUST_CHECK status_t parameter_state_switch(struct parameter_state *b, int shard, struct err *e);
/* GATHER, posted and waited for; DROP. */
MUST_CHECK status_t parameter_state_gather(struct parameter_state *b, int bucket, struct err *e);
MUST_CHECK status_t parameter_state_gathered(struct parameter_state *b, int bucket, struct err *e);
MUST_CHECK status_t parameter_state_drop(struct parameter_state *b, int bucket, struct err *e);
/* SEND and RECV of a weight: posted, and waited for. */
MUST_CHECK status_t parameter_state_post(struct parameter_state *b, const struct instruction *i, struct err *e);
MUST_CHECK status_t parameter_state_transferred(struct parameter_state *b, const struct instruction *i, struct err *e);
MUST_CHECK status_t parameter_state_end(const struct parameter_state *b, struct err *e);

#endif
