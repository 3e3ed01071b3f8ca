#include "cli/nearest.h"

#include <string.h>

enum { MAX_LETTERS = 24, TOO_FAR = 3 };

static const char *const ALIASES[][2] = {
    { "ls", "list" },         { "ps", "list" },     { "jobs", "list" },        { "show", "get" },
    { "describe", "get" },    { "info", "get" },    { "log", "logs" },         { "rm", "delete" },
    { "remove", "delete" },   { "stop", "cancel" }, { "kill", "cancel" },      { "run", "submit" },
    { "create", "submit" },   { "start", "up" },    { "hosts", "executors" },  { "nodes", "executors" },
    { "why", "explain" },     { "fork", "submit" }, { "contexts", "context" }, { "ctx", "context" },
    { "overview", "status" },
};

static int min_of(int a, int b) { return a < b ? a : b; }

/* Optimal string alignment: insertions, deletions, substitutions, and transpositions of neighbours. */
static int distance(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    int row[MAX_LETTERS + 1][MAX_LETTERS + 1];
    if (n > MAX_LETTERS || m > MAX_LETTERS)
        return TOO_FAR;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                row[i][j] = (int)(i + j);
                continue;
            }
            row[i][j] = min_of(min_of(row[i - 1][j], row[i][j - 1]) + 1, row[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[i][j] = min_of(row[i][j], row[i - 2][j - 2] + 1);
        }
    return row[n][m];
}

const char *nearest_command(const char *word, const char *const *names, size_t n) {
    for (size_t i = 0; i < sizeof ALIASES / sizeof *ALIASES; i++)
        if (strcmp(word, ALIASES[i][0]) == 0)
            return ALIASES[i][1];
    return nearest_word(word, names, n);
}

const char *nearest_word(const char *word, const char *const *names, size_t n) {
    const char *found = NULL;
    int best = TOO_FAR;
    for (size_t i = 0; i < n; i++) {
        const int d = distance(word, names[i]);
        if (d < best && 2 * (size_t)d < strlen(names[i])) {
            best = d;
            found = names[i];
        }
    }
    return found;
}
