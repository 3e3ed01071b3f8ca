/* The values of fields that were left out. Internal to this folder. */
#ifndef API_SPEC_DEFAULTS_H
#define API_SPEC_DEFAULTS_H

#include "api/spec/spec.h"

/* Fills every default into a spec of malloc'ed parts. A default that cannot be computed because another field is wrong
 * stays unset: the rules find that field. Fails only without memory. */
MUST_CHECK status_t defaults_fill(Trainyard__V1__JobSpec *spec, struct err *e);

/* Only the defaults that are options of fields, of any message inside SweepSpec (sweep_spec.proto). */
MUST_CHECK status_t defaults_fill_constants(ProtobufCMessage *msg, struct err *e);

#endif
