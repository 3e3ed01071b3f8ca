/* Prints a spec for people. */
#ifndef CLI_SPEC_PRINT_H
#define CLI_SPEC_PRINT_H

#include "base/status.h"

#include <trainyard/v1/spec.pb-c.h>

/* "spec:", and the spec as indented YAML, on stdout. */
MUST_CHECK status_t spec_print(const Trainyard__V1__JobSpec *spec, struct err *e);

#endif
