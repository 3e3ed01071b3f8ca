/* What a field that was left out becomes. Internal to this folder. */
#ifndef API_SPEC_DEFAULTS_H
#define API_SPEC_DEFAULTS_H

#include "api/spec/spec.h"

/* Fills every default into a spec of malloc'ed parts. What cannot be derived because another field is wrong stays
 * unset: the rules find that field. Only memory can fail. */
MUST_CHECK status_t defaults_fill(Trainyard__V1__JobSpec *spec, struct err *e);

/* The largest power of two, at most 8, that divides n; n > 0. */
int32_t largest_power_of_two_dividing(int32_t n);

#endif
