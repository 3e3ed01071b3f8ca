/* What a job would take, found out without training it: memory, time and bytes on the wire of a layout, from its plans.
 *
 *     struct plan_report report;
 *     TRY(plan_report_make(graph, &layout, &profile, &report, e));
 *     ... report.stages[0].bytes, report.timeline.seconds ...
 *     plan_report_done(&report);
 *
 * One column of ranks (verify.h) stands for all: it is planned, verified and simulated. Of each stage the memory is
 * that of the data rank that owns most of it; bytes on the wire and times are the column's. */
#ifndef ENGINE_PLAN_COST_PLAN_REPORT_H
#define ENGINE_PLAN_COST_PLAN_REPORT_H

#include "engine/plan/cost/profile.h"
#include "engine/plan/cost/step_cost.h"
#include "engine/plan/cost/timeline.h"
#include "engine/plan/host_memory.h"
#include "engine/plan/plan.h"

struct stage_report {
    int rank; /* the fullest one; bytes are its */
    size_t family_bytes[FAMILIES], bytes;
    struct host_memory host;   /* zeros without a rule */
    size_t limited_bytes;      /* what a limit covers of both */
    int first_block, n_blocks; /* the first one's number; how many in all virtual stages */
    int64_t parameters;        /* weights that the stage steps */
    double balance;            /* the fullest rank's share of them over the mean one */
    struct wire_bytes wire;    /* what a rank sends */
};

struct plan_report {
    struct plan_layout layout; /* as plan_build resolved it; rank 0 */
    struct stage_report *stages;
    int n_stages;
    size_t max_bytes;   /* the largest limited_bytes */
    int64_t parameters; /* weights of the model */
    /* Bytes for each, before sharding. */
    double weight_bytes, gradient_bytes, optimizer_bytes;
    double model_flops;       /* of a step, without recompute */
    double utilization;       /* of all devices' peak */
    double bubble;            /* mean over stages */
    double bubble_formula;    /* with the stages' mean times */
    struct timeline timeline; /* of the column */
};

/* layout: rank is not read. host: may be NULL. Errors: those of plan_build and plan_verify. */
MUST_CHECK status_t plan_report_make(const struct graph *graph, const struct plan_layout *layout,
                                     const struct host_memory_rule *host, const struct plan_profile *profile,
                                     struct plan_report *ret, struct err *e);
void plan_report_done(struct plan_report *r);

#endif
