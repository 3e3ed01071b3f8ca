/* SVG: the rows are laid out first, a thin row for each queue that a rank uses; then one rectangle per span, and a time
 * axis with round numbers. Text: for each column, the work that fills most of it. */
#include "engine/plan/cost/timeline_svg.h"

#include "base/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Colours that stay apart for colour-blind eyes (Okabe and Ito 2008). */
static const struct {
    char letter;
    const char *colour;
} STYLE[TIMELINE_WORKS] = {
    [TIMELINE_FORWARD] = { 'F', "#56b4e9" },  [TIMELINE_RECOMPUTE] = { 'R', "#0072b2" },
    [TIMELINE_BACKWARD] = { 'B', "#e69f00" }, [TIMELINE_WEIGHT] = { 'W', "#009e73" },
    [TIMELINE_UPDATE] = { 'U', "#8c8c8c" },   [TIMELINE_REDUCE] = { 'r', "#cc79a7" },
    [TIMELINE_GATHER] = { 'g', "#d55e00" },   [TIMELINE_EXCHANGE] = { 'x', "#f0e442" },
    [TIMELINE_TRANSFER] = { 't', "#bbbbbb" },
};

enum {
    LEFT = 84,    /* of the rows: space for names */
    WIDTH = 1200, /* of the time axis */
    TOP = 56,     /* title and legend above it */
    ROW = 24,     /* compute */
    THIN = 6,     /* each other queue that does something */
    GAP = 8,      /* between ranks */
    NUMBER = 13,  /* a box as wide as this shows its micro-batch */
    MAX_TICKS = 10
};

/* A round number of seconds that cuts the step in at most MAX_TICKS parts. */
static double tick_of(double seconds) {
    double tick = pow(10, floor(log10(seconds / MAX_TICKS)));
    while (seconds / tick > MAX_TICKS)
        tick *= seconds / tick > 5 * MAX_TICKS ? 10 : seconds / tick > 2 * MAX_TICKS ? 5 : 2;
    return tick;
}

static status_t escaped(struct bytes *ret, const char *text, struct err *e) {
    for (; *text; text++)
        switch (*text) {
        case '&': TRY(bytes_append(ret, "&amp;", 5, e)); break;
        case '<': TRY(bytes_append(ret, "&lt;", 4, e)); break;
        case '>': TRY(bytes_append(ret, "&gt;", 4, e)); break;
        default: TRY(bytes_append(ret, text, 1, e));
        }
    return ST_OK;
}

/* Where each rank's row begins, and how high its thin rows are; ret[n] = the end. */
static void lay_rows(const struct timeline *t, bool (*used)[QUEUES], double *y) {
    for (int i = 0; i < t->n_spans; i++)
        used[t->spans[i].number][t->spans[i].queue] = true;
    y[0] = TOP;
    for (int m = 0; m < t->n; m++) {
        y[m + 1] = y[m] + ROW + GAP;
        for (enum plan_queue q = QUEUE_DATA; q < QUEUES; q++)
            y[m + 1] += used[m][q] ? THIN : 0;
    }
}

static double row_of(const struct timeline_span *s, bool (*used)[QUEUES], const double *y) {
    double at = y[s->number];
    if (s->queue == QUEUE_COMPUTE)
        return at;
    at += ROW;
    for (enum plan_queue q = QUEUE_DATA; q < s->queue; q++)
        at += used[s->number][q] ? THIN : 0;
    return at;
}

static status_t draw_span(const struct timeline *t, const struct timeline_span *s, bool (*used)[QUEUES],
                          const double *y, struct bytes *ret, struct err *e) {
    double scale = WIDTH / t->seconds, x = LEFT + s->begin * scale, w = (s->end - s->begin) * scale;
    double at = row_of(s, used, y);
    bool compute = s->queue == QUEUE_COMPUTE;
    TRY(bytes_printf(ret, e, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s", x, at, w,
                     compute ? ROW : THIN - 1, STYLE[s->work].colour, timeline_work_name(s->work)));
    if (s->micro_batch >= 0)
        TRY(bytes_printf(ret, e, ", micro-batch %d, virtual stage %d", s->micro_batch, s->virtual_stage));
    TRY(bytes_printf(ret, e, ", %.4g ms</title></rect>\n", (s->end - s->begin) * 1e3));
    if (compute && s->in_flight >= 0 && w >= NUMBER)
        TRY(bytes_printf(ret, e, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", x + w / 2,
                         at + ROW * 0.7, s->in_flight));
    return ST_OK;
}

static status_t draw_head(const struct timeline *t, const char *title, double height, struct bytes *ret,
                          struct err *e) {
    TRY(bytes_printf(ret, e,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" "
                     "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                     "<text x=\"%d\" y=\"18\" font-size=\"14\">",
                     LEFT + WIDTH + 16, height, LEFT));
    TRY(escaped(ret, title, e));
    TRY(bytes_printf(ret, e, " &#8211; %.4g ms a step</text>\n", t->seconds * 1e3));
    bool drawn[TIMELINE_WORKS] = { false };
    for (int i = 0; i < t->n_spans; i++)
        drawn[t->spans[i].work] = true;
    for (int w = 0, x = LEFT; w < TIMELINE_WORKS; w++) {
        if (!drawn[w])
            continue;
        TRY(bytes_printf(
            ret, e,
            "<rect x=\"%d\" y=\"28\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"38\">%s</text>\n", x,
            STYLE[w].colour, x + 16, timeline_work_name((enum timeline_work)w)));
        x += 96;
    }
    return ST_OK;
}

static status_t draw_axis(const struct timeline *t, double bottom, struct bytes *ret, struct err *e) {
    double tick = tick_of(t->seconds);
    for (int i = 0; i * tick <= t->seconds * (1 + 1e-9); i++) {
        double x = LEFT + i * tick / t->seconds * WIDTH;
        TRY(bytes_printf(ret, e,
                         "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#dddddd\"/>"
                         "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%g ms</text>\n",
                         x, TOP - 6, x, bottom, x, bottom + 14, i * tick * 1e3));
    }
    return ST_OK;
}

static status_t draw(const struct timeline *t, const char *title, bool (*used)[QUEUES], double *y, struct bytes *ret,
                     struct err *e) {
    lay_rows(t, used, y);
    TRY(draw_head(t, title, y[t->n] + 28, ret, e));
    TRY(draw_axis(t, y[t->n], ret, e));
    for (int m = 0; m < t->n; m++)
        TRY(bytes_printf(ret, e,
                         "<text x=\"4\" y=\"%.1f\">stage %d</text><text x=\"4\" y=\"%.1f\" fill=\"#666666\" "
                         "font-size=\"9\">idle %.1f %%</text>\n",
                         y[m] + 11, t->ranks[m].stage, y[m] + 22, 100 * t->ranks[m].bubble));
    for (int i = 0; i < t->n_spans; i++)
        TRY(draw_span(t, &t->spans[i], used, y, ret, e));
    return bytes_append(ret, "</svg>\n", 7, e);
}

status_t timeline_svg(const struct timeline *t, const char *title, struct bytes *ret, struct err *e) {
    if (!(t->seconds > 0))
        return err_set(e, ST_FAILED_PRECONDITION, "a step that takes no time cannot be drawn");
    CLEANUP(freep) bool(*used)[QUEUES] = NULL;
    CLEANUP(freep) double *y = NULL;
    TRY(array_new(&used, t->n, e));
    TRY(array_new(&y, t->n + 1, e));
    return draw(t, title, used, y, ret, e);
}

/* --- text ---*/

/* What fills most of each column: letter and digit. */
static status_t fill_row(const struct timeline *t, int number, int columns, char *letters, char *digits,
                         struct err *e) {
    CLEANUP(freep) double *max = NULL;
    TRY(array_new(&max, columns, e));
    memset(letters, '.', (size_t)columns);
    memset(digits, ' ', (size_t)columns);
    for (int i = 0; i < t->n_spans; i++) {
        const struct timeline_span *s = &t->spans[i];
        if (s->number != number || s->queue != QUEUE_COMPUTE)
            continue;
        double begin = s->begin / t->seconds * columns, end = s->end / t->seconds * columns;
        for (int c = (int)begin; c < columns && c < end; c++) {
            double share = fmin(end, c + 1) - fmax(begin, c);
            if (share <= max[c] || share < 0.2) /* what is mostly idle looks idle */
                continue;
            max[c] = share;
            letters[c] = STYLE[s->work].letter;
            digits[c] = s->in_flight >= 0 ? (char)('0' + s->in_flight % 10) : ' ';
        }
    }
    return ST_OK;
}

status_t timeline_text(const struct timeline *t, int columns, struct bytes *ret, struct err *e) {
    if (!(t->seconds > 0) || columns < 1)
        return err_set(e, ST_FAILED_PRECONDITION, "a step that takes no time cannot be drawn");
    CLEANUP(freep) char *letters = NULL, *digits = NULL;
    TRY(array_new(&letters, columns, e));
    TRY(array_new(&digits, columns, e));
    for (int m = 0; m < t->n; m++) {
        TRY(fill_row(t, m, columns, letters, digits, e));
        TRY(bytes_printf(ret, e, "stage %-3d %.*s  idle %.1f %%\n", t->ranks[m].stage, columns, letters,
                         100 * t->ranks[m].bubble));
        TRY(bytes_printf(ret, e, "          %.*s\n", columns, digits));
    }
    return bytes_printf(ret, e, "          0%*s%.4g ms\n", columns > 8 ? columns - 8 : 0, "", t->seconds * 1e3);
}
