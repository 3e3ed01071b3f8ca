/* How rules report: one line for each problem, with the field's path. For this folder and service/rpc. */
#ifndef API_SPEC_PROBLEMS_H
#define API_SPEC_PROBLEMS_H

#include "api/spec/spec.h"

#include <stdbool.h>

/* Adds a line; lines beyond SPEC_PROBLEMS are dropped. p may be NULL: nothing is added. */
void problem_add(struct spec_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 1 to 63 letters, digits, '.', '_' or '-', the first a letter or a digit: adds a line and returns false otherwise. */
bool check_name(struct spec_problems *p, const char *path, const char *value);

#endif
