/* AdamW for shards, with their states wherever the caller has them: Muon steps by it what is no matrix. Private to this
 * folder. */
#ifndef ENGINE_OPTIMIZER_ADAMW_H
#define ENGINE_OPTIMIZER_ADAMW_H

#include "engine/optimizer/optimizer.h"

MUST_CHECK status_t adamw_check(const char *path, const struct adamw_settings *s, struct err *e);
/* As kind.step; `learning_rate`, the device's, in place of the call's. */
MUST_CHECK status_t adamw_step(const struct adamw_settings *s, const struct optimizer_call *c,
                               const double *learning_rate, struct err *e);

#endif
