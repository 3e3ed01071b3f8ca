/* What an instruction is called where people see it: traces, tools. */
#ifndef EXECUTOR_ENGINE_RUN_LABEL_H
#define EXECUTOR_ENGINE_RUN_LABEL_H

#include "executor/engine/plan/plan.h"

enum { LABEL_BYTES = 160 };

/* "FORWARD block0.attention": what it does, and the op, tensor or parameter that it does it with, if it has one. */
void label_instruction(const struct plan *plan, const struct instruction *i, char ret[LABEL_BYTES]);

#endif
