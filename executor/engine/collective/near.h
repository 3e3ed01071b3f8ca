/* Ranks of one host: what one sends, the other reads from its memory (process_vm_readv(2), "cross memory attach" in MPI
 * libraries), instead of both copying it through a socket. The sockets carry three words of each message:
 *
 *     sender -> receiver    where it lies, and how long it is
 *     receiver -> sender    taken
 *     sender -> receiver    kept until then
 *
 * so deaths, deadlines and aborts are told as ever. Without the last a sender that failed, and used its memory for
 * something else while it was read, would not be noticed. Private to this folder. */
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
