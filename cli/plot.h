/* A curve drawn with Braille characters: each cell is a grid of 2 x 4 dots. Pure. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "base/bytes.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { PLOT_MOST_COLUMNS = 400 };

struct plot {
    const char *title;
    const int64_t *x; /* (n), ascending */
    const double *y;  /* (n); what is not finite is left out */
    size_t n;
    int columns, rows; /* of the curve's field, in cells; at least 1 */
};

/* Appends title, the curve with its y axis' ends on the left and its x axis' ends below. Neighbouring points are joined
 * by straight lines. "no points" when there is nothing to draw. */
MUST_CHECK status_t plot_print(const struct plot *p, struct bytes *ret, struct err *e);

#endif
