/* A job spec from a file and the changes of the command line. */
#ifndef CLI_SPEC_FILE_H
#define CLI_SPEC_FILE_H

#include "cli/command.h"

#include <trainyard/v1/spec.pb-c.h>

/* Reads the file ("-": standard input) as YAML or JSON, then sets each "key.path=value" of `changes`, then the name
 * unless NULL. Defaults are not filled in. INVALID_ARGUMENT also for a file that cannot be read. Free it with
 * spec_free. */
MUST_CHECK status_t spec_file_read(const char *file, const struct text_list *changes, const char *name,
                                   Trainyard__V1__JobSpec **ret, struct err *e);

/* What sentences call it: the path, or "standard input". */
const char *spec_file_name(const char *file);

/* The same changes on a spec that came from elsewhere. */
MUST_CHECK status_t spec_file_change(Trainyard__V1__JobSpec *spec, const struct text_list *changes, const char *name,
                                     struct err *e);

#endif
