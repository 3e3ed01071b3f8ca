/* Only one executor of a host offers a GPU at a time.
 *
 * The claim is an abstract socket. The kernel frees its name when the process ends, even after a crash. Executors in
 * different network namespaces do not see each other's claims. */
#ifndef EXECUTOR_AGENT_DEVICE_CLAIM_H
#define EXECUTOR_AGENT_DEVICE_CLAIM_H

#include "base/status.h"

/* *ret: a descriptor, which holds the claim until it is closed. ALREADY_EXISTS: another executor has it. */
MUST_CHECK status_t device_claim_take(const char *uuid, int *ret, struct err *e);

#endif
