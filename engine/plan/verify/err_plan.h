/* The one error of the verifier. */
#ifndef ENGINE_PLAN_VERIFY_ERR_PLAN_H
#define ENGINE_PLAN_VERIFY_ERR_PLAN_H

#include "base/status.h"

/* FAILED_PRECONDITION with a message as by printf: the plan breaks a rule. */
#define err_plan(e, ...) err_set((e), ST_FAILED_PRECONDITION, __VA_ARGS__)

#endif
