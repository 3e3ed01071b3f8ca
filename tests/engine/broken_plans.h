/* Plans of every kind of layout, and ways to break them: what test_verify.c tries the verifier with. */
#ifndef TESTS_ENGINE_BROKEN_PLANS_H
#define TESTS_ENGINE_BROKEN_PLANS_H

#include "executor/engine/plan/plan.h"

enum { RANKS_MOST = 16 };

struct setting {
    const char *name;
    struct plan_layout layout; /* without rank; no optimizer: AdamW */
};

struct gang {
    const char *name;
    struct graph *graph;
    struct plan *plans[RANKS_MOST];
    int n;
};

extern const struct setting SETTINGS[];
extern const int N_SETTINGS;

/* Plans of a small GPT; the test fails when they cannot be built. */
struct gang make_gang(const struct setting *s);
/* Of any model; the gang owns the graph. */
struct gang make_gang_of(const struct setting *s, struct graph *graph);
void free_gang(struct gang *g);
status_t verify_gang(const struct gang *g, struct err *e);

/* --- tools ---*/

/* The n-th instruction of a kind in a queue, or NULL. */
struct instruction *find(struct plan *p, enum plan_queue queue, enum instruction_kind kind, int n);
struct instruction *find_compute(struct plan *p, enum instruction_kind kind, int n);
/* The n-th in the compute queue that covers something. */
struct instruction *find_range(struct plan *p, enum instruction_kind kind, int n);
/* The first that transfers this. */
struct instruction *find_what(struct plan *p, enum plan_queue queue, enum instruction_kind kind, enum plan_what what);
/* Takes an instruction out of the compute queue; whoever came after one behind it still does. */
void drop(struct plan *p, struct instruction *i);
/* Takes an entry out of another queue, with the WAITs for it. */
void drop_entry(struct plan *p, enum plan_queue queue, int entry);
struct instruction *insert(struct plan *p, int at, struct instruction what);
void swap(struct instruction *a, struct instruction *b);

/* --- ways to break a plan ---*/

/* make: false = this layout has nothing to break so. says: what the sentence must contain; alternatives are separated
 * by '|', because layouts meet the same mistake at different moments. */
struct plan_break {
    const char *name;
    bool (*make)(struct gang *g);
    const char *says;
};
extern const struct plan_break BREAKS_OF_A_RANK[], BREAKS_OF_PLACES[], BREAKS_BETWEEN_RANKS[];
extern const int N_BREAKS_OF_A_RANK, N_BREAKS_OF_PLACES, N_BREAKS_BETWEEN_RANKS;

#endif
