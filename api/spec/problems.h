/* How rules report: a line a problem, with the field's path. Internal to this folder. */
#ifndef API_SPEC_PROBLEMS_H
#define API_SPEC_PROBLEMS_H

#include "api/spec/spec.h"

#include <stdbool.h>

/* Adds a line; past SPEC_PROBLEMS it is dropped. */
void problem_add(struct spec_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ranges: adds "path: 7 is not from 1 to 4" and returns false when the value is outside. Values at either end are in.
 */
bool check_int(struct spec_problems *p, const char *path, int64_t value, int64_t least, int64_t most);
/* As check_int, for fields without presence whose zero means that nothing was given. */
bool check_given(struct spec_problems *p, const char *path, int64_t value, int64_t most);
bool check_real(struct spec_problems *p, const char *path, double value, double least, double most);
/* least <= value < below */
bool check_real_below(struct spec_problems *p, const char *path, double value, double least, double below);
/* Choices end with NULL: "path: 'bf16' is not one of: fp32". */
bool check_choice(struct spec_problems *p, const char *path, const char *value, const char *const choices[]);
/* 1 to 63 letters, digits, '.', '_' or '-', the first a letter or a digit. */
bool check_name(struct spec_problems *p, const char *path, const char *value);

#endif
