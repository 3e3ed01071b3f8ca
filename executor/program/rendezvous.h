/* Where the ranks of an attempt are. Each rank offers its address as a record; the controller gathers all of them and
 * sends them back as one command.
 *
 * A rank's address is the text "HOST PORT AGENT": the interface by which other ranks reach its host, a TCP port that
 * the rank keeps reserved, and its agent's pid, which distinguishes the hosts. The port of rank 0 becomes
 * MASTER_PORT. With `launcher: host`, the address goes on with " PID GPU": the pid of its trainyard-program, and its
 * CUDA_VISIBLE_DEVICES or "-". */
#ifndef EXECUTOR_PROGRAM_RENDEZVOUS_H
#define EXECUTOR_PROGRAM_RENDEZVOUS_H

#include "base/status.h"

#include <trainyard/v1/worker.pb-c.h>

enum { RENDEZVOUS_ADDRESS_BYTES = 448, RENDEZVOUS_GPU_BYTES = 96, RENDEZVOUS_GPUS_BYTES = 8 << 10 };

struct reserved_port {
    int fd; /* a bound socket; close it to free the port for the program */
    int port;
};

MUST_CHECK status_t rendezvous_reserve_port(struct reserved_port *ret, struct err *e);

/* Writes this rank's address. host: WorkerStart.address. gpu: NULL unless the job has `launcher: host`; "" without a
 * GPU. */
void rendezvous_address(const char *host, int port, const char *gpu, char ret[RENDEZVOUS_ADDRESS_BYTES]);

struct place {
    char master_address[256];
    int master_port;
    int local_rank, local_world_size; /* among the ranks of this agent */
    int group_rank, groups; /* this agent among the agents of the attempt, in the order of their first ranks */
    /* With `launcher: host`: */
    int leader;                       /* pid of the trainyard-program of this host's rank with local_rank 0 */
    char gpus[RENDEZVOUS_GPUS_BYTES]; /* of all ranks of this host, separated by commas; empty: none */
};

/* The place of `rank`. INTERNAL: an address is not of this form, or their number is not world_size. */
MUST_CHECK status_t rendezvous_place(const Trainyard__V1__Rendezvous *all, int rank, int world_size, struct place *ret,
                                     struct err *e);

#endif
