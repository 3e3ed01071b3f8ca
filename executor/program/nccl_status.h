/* What NCCL knows about the ranks of a gang that hangs: the answer of its RAS service (NCCL 2.24 and later), which one
 * thread of each process with a communicator runs and which gathers the state of all of them.
 *
 * Source of the protocol: NCCL's client `ncclras`. Lines of text over TCP: CLIENT PROTOCOL, then TIMEOUT, then VERBOSE
 * STATUS, whose answer ends with the connection. */
#ifndef EXECUTOR_PROGRAM_NCCL_STATUS_H
#define EXECUTOR_PROGRAM_NCCL_STATUS_H

enum { NCCL_STATUS_LINES = 200, NCCL_STATUS_MS = 1500 };

/* put() gets the lines of the answer, at most NCCL_STATUS_LINES, within NCCL_STATUS_MS; none if nobody answers.
 *
 * address: as in NCCL_RAS_ADDR, "HOST:PORT" of this machine: localhost, an address in 127.0.0.0/8, or [::1]. Any other,
 * NULL and "" are not asked. */
void nccl_status_collect(const char *address, void (*put)(void *ctx, const char *line), void *ctx);

#endif
