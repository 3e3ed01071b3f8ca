/* Readable names of instructions, for traces and tools. */
#ifndef ENGINE_RUN_LABEL_H
#define ENGINE_RUN_LABEL_H

#include "engine/plan/plan.h"

enum { LABEL_BYTES = 160 };

/* "FORWARD block0.attention": the kind of instruction, and the op, tensor or parameter it works on, if any. */
void label_instruction(const struct plan *plan, const struct instruction *i, char ret[LABEL_BYTES]);

#endif
