/* SHA-256 digests of specs, which differ if the specs do. */
#ifndef API_SPEC_DIGEST_H
#define API_SPEC_DIGEST_H

#include "base/sha256.h"

#include <trainyard/v1/spec.pb-c.h>

/* Of a spec as a client sent it, resolved or not, and of `more`, text from the same request. The order of labels does
 * not matter: some languages send a map in another order each time. Pure. */
void spec_digest(const Trainyard__V1__JobSpec *spec, const char *more, uint8_t ret[SHA256_BYTES]);

/* Of a resolved spec, and of `more`: only of the fields that a check on a host depends on. Specs that differ in names,
 * labels, queue, priority, retries, seed, steps, learning rate and the like have the same digest. */
void spec_digest_checked(const Trainyard__V1__JobSpec *spec, const char *more, uint8_t ret[SHA256_BYTES]);

#endif
