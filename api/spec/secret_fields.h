/* The secrets that a job names: as variables of its program (program.secrets), or as keys of stores. No I/O. */
#ifndef API_SPEC_SECRET_FIELDS_H
#define API_SPEC_SECRET_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct secret_field {
    char path[160];       /* of the field, for sentences: "program.secrets.TOKEN", "stores.s3.secret_key" */
    const char *variable; /* as in AttemptSecret; a constant, or points into the spec */
    const char *secret;   /* its name; points into the spec */
};

/* Of a resolved spec, in its order. The caller frees the list. NULL and 0: none. */
struct secret_field *spec_secret_fields(const Trainyard__V1__JobSpec *spec, size_t *ret_n);
bool spec_names_secrets(const Trainyard__V1__JobSpec *spec);

#endif
