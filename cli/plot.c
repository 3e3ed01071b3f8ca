#include "cli/plot.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { DOTS_ACROSS = 2, DOTS_DOWN = 4, BRAILLE = 0x2800, LABEL_WIDTH = 10 };

struct canvas {
    uint8_t *cells; /* (rows, columns): the dots of each */
    int columns, rows;
    int64_t x_min, x_max;
    double y_min, y_max;
    int last_x, last_y; /* the last dot drawn; last_x = -1: none */
};

/* The bit of a dot in its cell, in Unicode's numbering of Braille dots. */
static uint8_t dot_bit(int x, int y) {
    static const uint8_t bits[DOTS_DOWN][DOTS_ACROSS] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };
    return bits[y][x];
}

static void draw_dot(struct canvas *c, int x, int y) {
    c->cells[y / DOTS_DOWN * c->columns + x / DOTS_ACROSS] |= dot_bit(x % DOTS_ACROSS, y % DOTS_DOWN);
}

/* Bresenham's line. */
static void draw_line(struct canvas *c, int x0, int y0, int x1, int y1) {
    int dx = abs(x1 - x0), dy = -abs(y1 - y0), step_x = x0 < x1 ? 1 : -1, step_y = y0 < y1 ? 1 : -1;
    for (int slope = dx + dy;;) {
        draw_dot(c, x0, y0);
        if (x0 == x1 && y0 == y1)
            return;
        int twice = 2 * slope;
        if (twice >= dy) {
            slope += dy;
            x0 += step_x;
        }
        if (twice <= dx) {
            slope += dx;
            y0 += step_y;
        }
    }
}

static int scale(double part, double whole, int dots) { return whole > 0 ? (int)lround(part / whole * (dots - 1)) : 0; }

static void draw_point(struct canvas *c, int64_t x, double y) {
    int at_x = scale((double)(x - c->x_min), (double)(c->x_max - c->x_min), c->columns * DOTS_ACROSS);
    int down = c->rows * DOTS_DOWN;
    int at_y = down - 1 - scale(y - c->y_min, c->y_max - c->y_min, down);
    draw_line(c, c->last_x < 0 ? at_x : c->last_x, c->last_x < 0 ? at_y : c->last_y, at_x, at_y);
    c->last_x = at_x;
    c->last_y = at_y;
}

static bool find_ranges(const struct plot *p, struct canvas *c) {
    bool any = false;
    for (size_t i = 0; i < p->n; i++) {
        if (!isfinite(p->y[i]))
            continue;
        if (!any) {
            c->x_min = p->x[i];
            c->y_min = c->y_max = p->y[i];
        }
        any = true;
        c->x_max = p->x[i];
        c->y_min = fmin(c->y_min, p->y[i]);
        c->y_max = fmax(c->y_max, p->y[i]);
    }
    return any;
}

static status_t print_row(const struct canvas *c, int row, struct bytes *ret, struct err *e) {
    char label[32] = "";
    if (row == 0)
        snprintf(label, sizeof label, "%.4g", c->y_max);
    else if (row == c->rows - 1)
        snprintf(label, sizeof label, "%.4g", c->y_min);
    TRY(bytes_printf(ret, e, "%*s |", LABEL_WIDTH, label));
    for (int i = 0; i < c->columns; i++) {
        char cell[4];
        uint8_t dots = c->cells[row * c->columns + i];
        size_t n = utf8_put(dots ? BRAILLE + dots : ' ', cell);
        TRY(bytes_append(ret, cell, n, e));
    }
    return bytes_append(ret, "\n", 1, e);
}

static status_t print_canvas(const struct canvas *c, struct bytes *ret, struct err *e) {
    char left[24], right[24];
    for (int row = 0; row < c->rows; row++)
        TRY(print_row(c, row, ret, e));
    int n = snprintf(left, sizeof left, "%" PRId64, c->x_min);
    int width = snprintf(right, sizeof right, "%" PRId64, c->x_max) + 1;
    int gap = c->columns - n > width ? c->columns - n : width;
    return bytes_printf(ret, e, "%*s  %s%*s\n", LABEL_WIDTH, "step", left, gap, right);
}

status_t plot_print(const struct plot *p, struct bytes *ret, struct err *e) {
    struct canvas c = { .columns = p->columns, .rows = p->rows, .last_x = -1 };
    TRY(bytes_printf(ret, e, "%s\n", p->title));
    if (!find_ranges(p, &c))
        return bytes_append(ret, "no points\n", 10, e);
    c.cells = alloc_zeroed((size_t)c.columns * (size_t)c.rows, 1);
    for (size_t i = 0; i < p->n; i++)
        if (isfinite(p->y[i]))
            draw_point(&c, p->x[i], p->y[i]);
    status_t st = print_canvas(&c, ret, e);
    free(c.cells);
    return st;
}
