/* The verifier's book of one rank's parameters: which elements of which still hold the step's weights, which are
 * stepped, which are on their way, and under ZeRO-3 which units are gathered. At the end of a step every parameter that
 * the stage reads must be new, whole, and nowhere in flight. */
#ifndef EXECUTOR_ENGINE_PLAN_PARAMETER_BOOK_H
#define EXECUTOR_ENGINE_PLAN_PARAMETER_BOOK_H

#include "executor/engine/plan/live_set.h"
#include "executor/engine/plan/plan.h"

/* A set of integers as sorted, disjoint ranges. */
struct spans {
    int64_t (*at)[2];
    int n;
};
void spans_done(struct spans *s);
/* Nothing changes when it already holds one of them, which spans_meet tells. */
MUST_CHECK status_t spans_add(struct spans *s, int64_t begin, int64_t end, struct err *e);
bool spans_meet(const struct spans *s, int64_t begin, int64_t end);
bool spans_hold(const struct spans *s, int64_t begin, int64_t end);

enum unit_state { UNIT_DROPPED, UNIT_COMING, UNIT_THERE };

struct parameter_book {
    const struct plan *plan;
    struct live_set *communication; /* borrowed: FAMILY_COMMUNICATION */
    struct spans *fresh;            /* [n_parameters] elements whose new value stands where this rank's ops read it */
    int *held;                      /* [n_parameters] transfers that read or write it just now */
    enum unit_state *unit;          /* [n_buckets] */
    bool *gathering;                /* [n_buckets] ZeRO 1-2 */
    int *bucket_of;                 /* [n_parameters] whose unit holds it; -1 */
    bool *read;                     /* [n_parameters] by an op of this stage */
};

/* parameter_book_done, after a failure too. */
MUST_CHECK status_t parameter_book_init(struct parameter_book *b, const struct plan *plan,
                                        struct live_set *communication, struct err *e);
void parameter_book_done(struct parameter_book *b);

/* An op that reads its parameters. */
MUST_CHECK status_t parameter_book_read(const struct parameter_book *b, const struct op *op, struct err *e);
MUST_CHECK status_t parameter_book_step(struct parameter_book *b, int piece, struct err *e);
/* GATHER, posted and waited for; DROP. */
MUST_CHECK status_t parameter_book_gather(struct parameter_book *b, int bucket, struct err *e);
MUST_CHECK status_t parameter_book_gathered(struct parameter_book *b, int bucket, struct err *e);
MUST_CHECK status_t parameter_book_drop(struct parameter_book *b, int bucket, struct err *e);
/* SEND and RECV of a weight: posted, and waited for. */
MUST_CHECK status_t parameter_book_post(struct parameter_book *b, const struct instruction *i, struct err *e);
MUST_CHECK status_t parameter_book_arrived(struct parameter_book *b, const struct instruction *i, struct err *e);
MUST_CHECK status_t parameter_book_end(const struct parameter_book *b, struct err *e);

#endif
