/* Lines that a program writes to its metrics FIFO. Any cut of the bytes gives the same rows, and each row is within the
 * limits that the store has for it. */
#include "base/limits.h"
#include "executor/program/metric_lines.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

struct seen {
    size_t rows, values, refused;
    double sum;
    int64_t steps;
};

static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct seen *seen = ctx;
    assert(step >= 0 && n > 0 && n <= METRIC_LINE_VALUES);
    for (size_t i = 0; i < n; i++) {
        assert(*names[i] && strlen(names[i]) <= LIMIT_METRIC_NAME_BYTES);
        seen->sum += values[i];
    }
    seen->rows++;
    seen->values += n;
    seen->steps ^= step;
}

static void on_refused(void *ctx, const char *sentence) {
    assert(*sentence);
    ((struct seen *)ctx)->refused++;
}

static struct seen feed(const uint8_t *data, size_t n, size_t cut) {
    static struct metric_lines lines;
    struct seen seen = { 0 };
    const struct metric_sink sink = { &seen, on_row, on_refused };
    lines = (struct metric_lines){ .n = 0 };
    for (size_t at = 0; at < n; at += cut)
        metric_lines_feed(&lines, (const char *)data + at, n - at < cut ? n - at : cut, &sink);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const struct seen whole = feed(data, n, n + 1), pieces = feed(data, n, 7);
    assert(whole.rows == pieces.rows && whole.values == pieces.values && whole.refused == pieces.refused);
    assert(whole.steps == pieces.steps && memcmp(&whole.sum, &pieces.sum, sizeof whole.sum) == 0);
    return 0;
}
