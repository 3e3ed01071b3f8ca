#include "cli/csv.h"
#include "cli/export.h"
#include "cli/export_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The limit for the lines of one page, which is a message of at most 4 MiB. */
#define TEXT_BYTES (64 << 20)

struct sheet {
    char part[PATH_MAX]; /* "": standard output */
    bool begun;
    struct bytes text;
};

static status_t put(struct sheet *s, const char *text, size_t n, struct err *e) {
    if (s->part[0])
        return export_append(s->part, text, n, e);
    return fwrite(text, 1, n, stdout) == n ? ST_OK : err_set(e, ST_INTERNAL, "standard output cannot be written");
}

static status_t take(void *ctx, const Trainyard__V1__MetricPoints *run, struct err *e) {
    struct sheet *s = ctx;
    bytes_clear(&s->text);
    TRY(csv_append(&s->text, run, e));
    if (!s->begun)
        TRY(put(s, CSV_HEADER, strlen(CSV_HEADER), e));
    s->begun = true;
    return put(s, s->text.data, s->text.len, e);
}

static status_t write_sheet(struct cli *c, const struct export_target *to, struct sheet *s, struct err *e) {
    TRY(export_points(c, to->job, take, s, e));
    if (!s->begun)
        TRY(put(s, CSV_HEADER, strlen(CSV_HEADER), e));
    return s->part[0] ? export_finish(s->part, to->path, to->overwrite, e) : ST_OK;
}

/* Checks the target before the first request. The rename would fail on a folder, and would replace /dev/null. */
static status_t check_file(const struct export_target *to, struct err *e) {
    struct stat at;
    if (lstat(to->path, &at) != 0)
        return ST_OK;
    if (stat(to->path, &at) == 0 && !S_ISREG(at.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not a file: give another name, or - for standard output",
                       to->path);
    if (!to->overwrite)
        return err_set(e, ST_ALREADY_EXISTS, "'%s' exists: give another name, or --overwrite", to->path);
    return ST_OK;
}

status_t export_csv(struct cli *c, const struct export_target *to, struct err *e) {
    struct sheet s = { .begun = false };
    char mark[EXPORT_MARK];
    if (strcmp(to->path, "-") != 0) {
        TRY(check_file(to, e));
        export_mark(mark);
        TRY(export_path(s.part, e, "%s%s", to->path, mark));
    }
    bytes_init(&s.text, TEXT_BYTES);
    status_t st = write_sheet(c, to, &s, e);
    bytes_done(&s.text);
    if (st != ST_OK && s.part[0])
        unlink(s.part);
    return st;
}
