/* Shared memory between ranks of one host: a rank reads long messages from the sender's memory with
 * process_vm_readv(2) ("cross memory attach", CMA, in MPI libraries), instead of both copying them through a socket.
 * Everything else goes over the transport below. Private to this folder. */
#ifndef ENGINE_COLLECTIVE_SHM_TRANSPORT_H
#define ENGINE_COLLECTIVE_SHM_TRANSPORT_H

#include "engine/collective/transport.h"

/* Replaces *t by a transport above it, which owns it from then on. After an error *t is unchanged. All ranks call it at
 * once: they find out over *t, on COLLECTIVE_CONTROL, which ranks may read each other's memory. Lets processes of this
 * user read this process's memory also if Yama would refuse it (PR_SET_PTRACER). `staging` as in transport.h, for that
 * stream. */
status_t shm_transport_open(int rank, int world_size, char *staging, struct collective_transport **t, struct err *e);

/* Whether long messages between this rank and `peer` use shared memory. False for other transports. */
bool shm_transport_shares(const struct collective_transport *t, int peer);

#endif
