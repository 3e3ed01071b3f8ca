/* A GPU is offered by one executor of a host at a time.
 *
 * The claim is a name of the kernel's (an abstract socket), free again once its process has ended, however it did.
 * Executors in other network namespaces do not meet. */
#ifndef EXECUTOR_AGENT_CLAIM_H
#define EXECUTOR_AGENT_CLAIM_H

#include "base/status.h"

/* *ret: a descriptor, the claim until it is closed. ALREADY_EXISTS: another has it. */
MUST_CHECK status_t claim_take(const char *uuid, int *ret, struct err *e);

#endif
