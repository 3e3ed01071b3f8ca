/* The phases of a plan's rank, in the order of its schedule (engine/plan/schedule_kind.h). */
#ifndef ENGINE_PLAN_BUILD_SCHEDULE_H
#define ENGINE_PLAN_BUILD_SCHEDULE_H

#include "engine/plan/plan.h"

/* The order of a plan's rank: its schedule, or forward passes only. phase_list_done, after a failure too. */
MUST_CHECK status_t schedule_order(const struct plan_layout *layout, struct phase_list *ret, struct err *e);
/* The largest number of micro-batches of a virtual stage whose `from` has started and whose `to` has not ended. */
int schedule_max_in_flight(const struct phase_list *list, int virtual_stage, enum phase_kind from, enum phase_kind to);

#endif
