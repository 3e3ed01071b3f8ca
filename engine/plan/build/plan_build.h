/* Builds a plan from a graph and a layout. building.h lists the steps in their order. */
#ifndef ENGINE_PLAN_BUILD_PLAN_BUILD_H
#define ENGINE_PLAN_BUILD_PLAN_BUILD_H

#include "engine/plan/plan.h"

/* Graph and layout to plan. INVALID_ARGUMENT names the spec's field when the layout is impossible. */
MUST_CHECK status_t plan_build(const struct graph *graph, const struct plan_layout *layout, struct plan **ret,
                               struct err *e);

#endif
