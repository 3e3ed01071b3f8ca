/* Ranks of one host: what one sends, the other reads from its memory (process_vm_readv(2), "cross memory attach" in MPI
 * libraries), instead of both copying it through a socket. The sockets carry where it lies and that it was taken, so
 * deaths, deadlines and aborts are told as ever. Private to this folder.
 *
 * A peer that fails goes on to use its memory, and what is read from then on is worthless. That does no harm: its
 * connections were closed before, so this rank's next call with any rank fails, and no step ends without one. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_NEAR_H
#define EXECUTOR_ENGINE_COLLECTIVE_NEAR_H

#include "executor/engine/collective/internal.h"

/* Finds out whose memory this rank may read and who may read its own, and keeps in c->near who both: all ranks at once,
 * over the host's transport. Lets processes of this user read this process's memory, where Yama would not
 * (PR_SET_PTRACER). */
status_t near_meet(struct collective *c, struct err *e);

/* A swap as collective_swap's, where a direction that is worth it goes by memory: not a small one, and not what is
 * or-ed, which may overwrite what is sent. Both ends judge a direction alike. */
status_t near_swap(struct collective *c, enum collective_channel channel, const struct swap *swap, struct err *e);

#endif
