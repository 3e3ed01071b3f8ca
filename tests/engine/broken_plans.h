/* Plans of every kind of layout, and functions that break them. test_verify.c checks that the verifier refuses each
 * broken plan. */
#ifndef TESTS_ENGINE_BROKEN_PLANS_H
#define TESTS_ENGINE_BROKEN_PLANS_H

#include "engine/plan/plan.h"

enum { RANKS_MOST = 16 };

struct setting {
    const char *name;
    struct plan_layout layout; /* the rank is not set; NULL optimizer: AdamW */
};

struct gang {
    const char *name;
    struct graph *graph;
    struct plan *plans[RANKS_MOST];
    int n;
};

extern const struct setting SETTINGS[];
extern const int N_SETTINGS;

/* Builds the plans of a small GPT. The test fails if they cannot be built. */
struct gang make_gang(const struct setting *s);
/* The same for any model. The gang owns the graph. */
struct gang make_gang_of(const struct setting *s, struct graph *graph);
void free_gang(struct gang *g);
status_t verify_gang(const struct gang *g, struct err *e);

/* --- tools ---*/

/* The n-th instruction of a kind in a queue, or NULL. */
struct instruction *find(struct plan *p, enum plan_queue queue, enum instruction_kind kind, int n);
struct instruction *find_compute(struct plan *p, enum instruction_kind kind, int n);
/* The n-th instruction of a kind in the compute queue whose range is not empty. */
struct instruction *find_range(struct plan *p, enum instruction_kind kind, int n);
/* The first instruction of a kind that transfers this payload. */
struct instruction *find_what(struct plan *p, enum plan_queue queue, enum instruction_kind kind,
                              enum plan_payload what);
/* Removes an instruction from the compute queue. An `after` that names a later instruction still names it. */
void drop(struct plan *p, struct instruction *i);
/* Removes an entry from another queue. WAITs for it are removed too, or wait for the data queue's entry before it. */
void drop_entry(struct plan *p, enum plan_queue queue, int entry);
struct instruction *insert(struct plan *p, int at, struct instruction what);
void swap(struct instruction *a, struct instruction *b);

/* --- ways to break a plan ---*/

/* make returns false if this layout has nothing that this mistake can break. says is the text that the verifier's
 * message must contain. '|' separates alternatives, because the verifier finds the same mistake at different places in
 * different layouts. */
struct plan_break {
    const char *name;
    bool (*make)(struct gang *g);
    const char *says;
};
extern const struct plan_break BREAKS_OF_A_RANK[], BREAKS_OF_PLACES[], BREAKS_BETWEEN_RANKS[];
extern const int N_BREAKS_OF_A_RANK, N_BREAKS_OF_PLACES, N_BREAKS_BETWEEN_RANKS;

#endif
