/* A curve drawn with Braille characters: each cell is a grid of 2 x 4 dots. Pure. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "base/bytes.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { PLOT_MAX_COLUMNS = 400 };

struct plot {
    const char *title;
    const int64_t *x; /* (n), ascending */
    const double *y;  /* (n); values that are not finite are skipped */
    size_t n;
    int columns, rows; /* of the curve's field, in cells; at least 1 */
};

/* Appends the title and the curve, with the ends of the y axis on the left and those of the x axis below. Straight
 * lines join neighbouring points. Appends "no points" if there is nothing to draw. */
MUST_CHECK status_t plot_print(const struct plot *p, struct bytes *ret, struct err *e);

#endif
