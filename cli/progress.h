/* A progress bar on stderr, one line that is drawn again and again. Without a terminal nothing is drawn. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal; /* stderr can be redrawn */
    bool drawn;    /* the last output is the bar, without a newline */
    int64_t next_ms;
};

void progress_init(struct progress *p);
/* what: "upload". total: 0 = not known, and there is no bar. after: text behind the numbers. The line is cut at the
 * edge of the terminal. Draws at most ten times a second, and the last step. */
void progress_draw(struct progress *p, const char *what, uint64_t done, uint64_t total, const char *after);
/* Removes the bar, so that a line can be printed. */
void progress_clear(struct progress *p);
/* Ends the line of the bar, which stays. */
void progress_end(struct progress *p);

/* Appends "[=====>    ]" with `cells` cells between the brackets to ret, which has at least cells + 3 bytes. */
void progress_bar(uint64_t done, uint64_t total, int cells, char *ret);
/* Whether lines on a descriptor can be redrawn: it is a terminal, and TERM is not "dumb". */
bool progress_redraws(int fd);

#endif
