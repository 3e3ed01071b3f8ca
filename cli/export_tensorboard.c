#include "base/file.h"
#include "base/limits.h"
#include "cli/event_file.h"
#include "cli/export.h"
#include "cli/export_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The limit for the events of one page, as in export_csv.c. */
#define EVENT_BYTES (64 << 20)

struct folder {
    const struct export_target *to;
    char mark[EXPORT_MARK];
    bool begun[LIMIT_WORLD_SIZE]; /* by rank: its unfinished file exists */
    struct bytes events;
};

/* The name of an unfinished file, which TensorBoard ignores. */
static status_t part_of(const struct folder *f, int rank, char ret[PATH_MAX], struct err *e) {
    return export_path(ret, e, "%s/rank-%d/%s", f->to->path, rank, f->mark);
}

static status_t begin(struct folder *f, const Trainyard__V1__MetricPoints *run, struct err *e) {
    char folder[PATH_MAX];
    TRY(export_path(folder, e, "%s/rank-%d", f->to->path, run->rank));
    TRY(dir_make(folder, 0777, e));
    f->begun[run->rank] = true;
    return event_file_begin(&f->events, run->n_time_us ? run->time_us[0] : 0, e);
}

static status_t take(void *ctx, const Trainyard__V1__MetricPoints *run, struct err *e) {
    struct folder *f = ctx;
    char part[PATH_MAX];
    if (run->rank < 0 || run->rank >= LIMIT_WORLD_SIZE)
        return err_set(e, ST_DATA_LOSS, "the controller sent points of rank %d, which is out of range", run->rank);
    bytes_clear(&f->events);
    if (!f->begun[run->rank])
        TRY(begin(f, run, e));
    TRY(event_file_append(&f->events, run, e));
    TRY(part_of(f, run->rank, part, e));
    return export_append(part, f->events.data, f->events.len, e);
}

static status_t finish(struct folder *f, struct err *e) {
    for (int rank = 0; rank < LIMIT_WORLD_SIZE; rank++) {
        char part[PATH_MAX], path[PATH_MAX];
        if (!f->begun[rank])
            continue;
        TRY(part_of(f, rank, part, e));
        TRY(export_path(path, e, "%s/rank-%d/events.out.tfevents.trainyard", f->to->path, rank));
        TRY(export_finish(part, path, f->to->overwrite, e));
        f->begun[rank] = false;
    }
    return ST_OK;
}

static void drop(const struct folder *f) {
    for (int rank = 0; rank < LIMIT_WORLD_SIZE; rank++) {
        char part[PATH_MAX], folder[PATH_MAX];
        if (!f->begun[rank] || part_of(f, rank, part, NULL) != ST_OK ||
            export_path(folder, NULL, "%s/rank-%d", f->to->path, rank) != ST_OK)
            continue;
        unlink(part);
        rmdir(folder); /* fails if the folder contains other files */
    }
}

/* TensorBoard would show another job's files as runs of this job. */
static status_t check_empty(const char *path, struct err *e) {
    bool empty = false;
    TRY(dir_is_empty(path, &empty, e));
    return empty ? ST_OK
                 : err_set(e, ST_ALREADY_EXISTS, "'%s' is not empty: give another folder, or use --overwrite", path);
}

status_t export_tensorboard(struct cli *c, const struct export_target *to, struct err *e) {
    struct folder f = { .to = to };
    export_mark(f.mark);
    if (!to->overwrite)
        TRY(check_empty(to->path, e));
    bytes_init(&f.events, EVENT_BYTES);
    status_t st = export_points(c, to->job, take, &f, e);
    if (st == ST_OK)
        st = finish(&f, e);
    if (st != ST_OK)
        drop(&f);
    bytes_done(&f.events);
    return st;
}
