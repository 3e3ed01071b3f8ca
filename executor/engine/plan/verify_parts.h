/* What the parts of plan_verify hand to each other; for the files of plan/ only.
 *
 *   verify_places.c     what needs no simulation, plan by plan
 *   verify_meetings.c   which SEND meets which RECV, and that both mean the same
 *   verify.c            the simulation: queues, waits, collectives; and what must add up over all ranks
 *   tensor_book.c, parameter_book.c, gradient_ledger.c   what a rank's bytes hold at each moment of it */
#ifndef EXECUTOR_ENGINE_PLAN_VERIFY_PARTS_H
#define EXECUTOR_ENGINE_PLAN_VERIFY_PARTS_H

#include "executor/engine/plan/gradient_ledger.h"
#include "executor/engine/plan/parameter_book.h"
#include "executor/engine/plan/plan.h"
#include "executor/engine/plan/tensor_book.h"

/* The other half of a SEND or RECV. */
struct meeting {
    int machine, entry;
};

/* One rank in the simulation. */
struct machine {
    const struct plan *plan;
    int rank, stage, column;       /* column: its number among the data ranks that are given */
    int at;                        /* next instruction of the compute queue */
    int posted[QUEUES];            /* entries started */
    int first_open[QUEUES];        /* no transfer before it is open */
    int passed;                    /* data queue: entries done */
    int waited;                    /* data queue: entries waited for */
    bool *arrived[QUEUES];         /* [entries] of the other queues: done ... */
    bool *taken[QUEUES];           /* ... and waited for */
    struct meeting *meets[QUEUES]; /* [entries] activations and gradients */
    bool *lost;                    /* [own micro-batches] their loss is known */
    int n_losses;
    int *forwards;  /* [n_ops] */
    bool exchanged; /* the step records of all ranks are here */
    struct live_set communication;
    struct tensor_book tensors;
    struct parameter_book parameters;
    struct gradient_ledger gradients;
};

/* Queues and meetings alone, without the books: for timeline.c too. number: of the plan among those given.
 * verify_machine_close, after a failure too, or of a machine that is all zeros. */
MUST_CHECK status_t verify_machine_open(struct machine *m, const struct plan *plan, int columns, int number,
                                        struct err *e);
void verify_machine_close(struct machine *m);
/* The members of m's group among the n given: numbers *first, *first + *step, ..., *count of them. */
void verify_group(const struct machine *m, int n, enum plan_group group, int *first, int *step, int *count);

/* Sentences name no rank: the caller does. */
MUST_CHECK status_t verify_places(const struct plan *plan, struct err *e);
/* Fills in `meets` of every machine. */
MUST_CHECK status_t verify_meetings(struct machine *all, int n, struct err *e);

const char *plan_queue_name(enum plan_queue queue);

#endif
