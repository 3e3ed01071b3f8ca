/* The requirements of a program's Python environment, among the files that were packed. */
#ifndef CLI_CODE_PYTHON_H
#define CLI_CODE_PYTHON_H

#include "cli/code/list.h"

#include <trainyard/v1/spec.pb-c.h>

/* INVALID_ARGUMENT: a file of requirements is not packed, or pip would refuse one of its lines. folder: where the files
 * lie. Whether a package exists is found when the environment is built. */
MUST_CHECK status_t code_python_check(const Trainyard__V1__PythonSpec *python, const char *folder,
                                      const struct code_list *list, struct err *e);

#endif
