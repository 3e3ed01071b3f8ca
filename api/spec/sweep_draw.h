/* The values of a sweep's trials.
 *
 * Grid: all combinations, numbered like the digits of a number: the last parameter (by path) changes fastest. A range
 * gives `count` values at equal distances, of the values or of their logarithms, with both ends.
 *
 * Random and ASHA: the first 53 bits of SHA-256("trainyard sweep" and a zero byte, seed and trial as 8 bytes each, the
 * lowest first, path) are a number u in [0, 1). A choice is the element u x n. A range is min + u (max - min), or for
 * `log` the same of the logarithms; `integer` divides the range into equal parts for min to max. So a value depends on
 * the seed, the trial and the path alone: another parameter, or more trials, change nothing. Values that are not whole
 * are rounded to six significant digits, and what is shown is exactly what the job gets.
 *
 * Pure and thread-safe. */
#ifndef API_SPEC_SWEEP_DRAW_H
#define API_SPEC_SWEEP_DRAW_H

#include <stdint.h>
#include <trainyard/v1/sweep_spec.pb-c.h>

/* The text of a value, as --set takes it: points into the sweep or to `number`, so a copy of the struct is invalid. */
struct sweep_value {
    const char *path, *text;
    char number[32];
};

/* The number of values that a grid takes of a parameter; 0: the parameter is wrong. */
int64_t sweep_grid_values(const Trainyard__V1__SweepParameter *p);

/* Writes the values of a trial (1 to sweep_trials) of a resolved sweep: ret[sweep->n_parameters], sorted by path. */
void sweep_draw(const Trainyard__V1__SweepSpec *sweep, int trial, struct sweep_value *ret);

/* The value of position i (0 to count - 1) of the range of a grid. ret has 32 bytes. */
void sweep_grid_number(const Trainyard__V1__SweepParameter *p, int64_t i, char ret[32]);

#endif
