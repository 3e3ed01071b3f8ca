#include "cli/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 24, INTERVAL_MS = 100, COLUMNS_DEFAULT = 80, LINE_BYTES = 512 };

bool progress_redraws(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

static size_t columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS_DEFAULT;
}

void progress_init(struct progress *p) { *p = (struct progress){ .terminal = progress_redraws(STDERR_FILENO) }; }

void progress_bar(uint64_t done, uint64_t total, int cells, char *ret) {
    const double fraction = total == 0 || done >= total ? 1 : (double)done / (double)total;
    const int full = (int)(fraction * cells);
    for (int i = 0; i < cells; i++)
        ret[1 + i] = i < full ? '=' : i == full ? '>' : ' ';
    ret[0] = '[';
    ret[cells + 1] = ']';
    ret[cells + 2] = '\0';
}

void progress_draw(struct progress *p, const char *what, uint64_t done, uint64_t total, const char *after) {
    const int64_t now = clock_mono_ms();
    char bar[BAR_CELLS + 3], line[LINE_BYTES];
    if (!p->terminal || (now < p->next_ms && done != total))
        return;
    p->next_ms = now + INTERVAL_MS;
    progress_bar(done, total, BAR_CELLS, bar);
    if (total > 0)
        snprintf(line, sizeof line, "%s %s %llu/%llu%s", what, bar, (unsigned long long)done, (unsigned long long)total,
                 after);
    else
        snprintf(line, sizeof line, "%s %llu%s", what, (unsigned long long)done, after);
    fprintf(stderr, "\r\033[K%.*s", (int)columns() - 1, line);
    fflush(stderr);
    p->drawn = true;
}

void progress_clear(struct progress *p) {
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

void progress_end(struct progress *p) {
    if (p->drawn)
        fputc('\n', stderr);
    p->drawn = false;
}
