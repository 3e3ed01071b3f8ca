#include "executor/program/tracking/tracking.h"

#include "base/alloc.h"
#include "executor/program/tracking/tensorboard_files.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { READ_FILES_MS = 1000, VARIABLES = 16 };

struct tracking {
    struct points *points;
    struct tensorboard_files *files;
    char tensorboard[PATH_MAX];
    deadline_ms_t read_at;
    struct tracking_variable variables[VARIABLES];
    size_t n_variables;
};

static void files_open(struct tracking *t, const struct tracking_options *o) {
    t->files = tensorboard_files_new(t->points);
    snprintf(t->tensorboard, sizeof t->tensorboard, "%s/tensorboard", o->scratch);
    if (mkdir(t->tensorboard, 0700) < 0)
        points_event(t->points, "tracking_off", "the folder for event files cannot be made: %s", strerror(errno));
    tensorboard_files_watch(t->files, o->work, false);
    tensorboard_files_watch(t->files, t->tensorboard, false);
    if (o->tensorboard && *o->tensorboard)
        tensorboard_files_watch(t->files, o->tensorboard, true);
    t->variables[t->n_variables++] = (struct tracking_variable){ .name = "TRAINYARD_TENSORBOARD",
                                                                 .value = t->tensorboard };
}

struct tracking *tracking_open(const struct tracking_options *options) {
    struct tracking *t = alloc_zeroed(1, sizeof *t);
    t->points = points_new(&options->sink);
    files_open(t, options);
    return t;
}

struct tracking *tracking_close(struct tracking *t) {
    if (t) {
        tensorboard_files_free(t->files);
        points_free(t->points);
    }
    free(t);
    return NULL;
}

size_t tracking_variables(const struct tracking *t, const struct tracking_variable **ret) {
    *ret = t->variables;
    return t->n_variables;
}

void tracking_row(struct tracking *t, int64_t step, char *const *names, const double *values, size_t n) {
    points_flush(t->points);
    for (size_t i = 0; i < n; i++)
        points_add(t->points, "", names[i], step, values[i]);
    points_flush(t->points);
}

int tracking_fd(const struct tracking *t) {
    (void)t;
    return -1;
}

deadline_ms_t tracking_due(const struct tracking *t) { return t->read_at; }

void tracking_run(struct tracking *t) {
    if (clock_mono_ms() < t->read_at)
        return;
    t->read_at = tensorboard_files_read(t->files) ? 0 : deadline_in(READ_FILES_MS);
}

void tracking_end(struct tracking *t, void (*tick)(void *ctx), void *ctx) {
    tensorboard_files_end(t->files, tick, ctx);
    points_end(t->points);
}
