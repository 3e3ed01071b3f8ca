/* What a filled spec must satisfy: ranges of single fields, then combinations. Internal to this folder. */
#ifndef API_SPEC_RULES_H
#define API_SPEC_RULES_H

#include "api/spec/problems.h"

/* Adds a line for each problem. A combination is judged only when its parts are in range, so that one mistake gives one
 * line. spec has all defaults. */
void rules_check(const Trainyard__V1__JobSpec *spec, struct spec_problems *p);

#endif
