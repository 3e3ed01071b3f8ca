/* The addresses of a gang's ranks: one blob per rank is collected, then all blobs are sent to each agent of the gang,
 * in rank order. They are kept until the attempt is over, for agents whose stream breaks meanwhile.
 *
 * Bounded by live attempts x world size x LIMIT_RENDEZVOUS_BYTES. One thread owns it (the loop). */
#ifndef SERVICE_CONTROLLER_RENDEZVOUS_H
#define SERVICE_CONTROLLER_RENDEZVOUS_H

#include "base/cleanup.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

struct rendezvous;
struct rendezvous *rendezvous_new(void);
struct rendezvous *rendezvous_free(struct rendezvous *r);
CLEANUP_DEFINE(struct rendezvous *, rendezvous_free)

/* Expects the addresses of an attempt that begins or was loaded. An older attempt of the job is forgotten. */
void rendezvous_expect(struct rendezvous *r, int64_t job, int attempt, int world_size);
/* False for an attempt that is not expected, a rank outside it, or a blob that is too long. */
bool rendezvous_offer(struct rendezvous *r, int64_t job, int attempt, int rank, const void *address, size_t n);
/* All addresses in rank order, [ret_n] entries that stay valid until the next call; NULL while one is missing. */
ProtobufCBinaryData *rendezvous_addresses(struct rendezvous *r, int64_t job, int attempt, size_t *ret_n);
void rendezvous_forget(struct rendezvous *r, int64_t job);

#endif
