#include "executor/program/stop_step.h"

#include "base/cleanup.h"

#include <assert.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

enum {
    SAMPLE_MS = 250,   /* between samples: the ring must span more than OBSERVED_MS */
    OBSERVED_MS = 500, /* from the oldest sample to the choice */
    MARGIN_MS = 1000,  /* for the way of the stop step to the other ranks */
};

#define STEP_MAX INT64_C(1000000000000000)

struct shared {
    int64_t stop, finished;
};

static_assert(SAMPLE_MS * (STOP_STEP_SAMPLES - 1) > OBSERVED_MS, "the ring spans the time of observation");

status_t stop_step_open(struct stop_step *s, const char *directory, struct err *e) {
    const struct shared first = { INT64_MAX, -1 };
    *s = (struct stop_step){ .fd = -1, .last_step = -1 };
    if (snprintf(s->path, sizeof s->path, "%s/stop", directory) >= (int)sizeof s->path)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", directory);
    s->fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (s->fd < 0 || pwrite(s->fd, &first, sizeof first, 0) != sizeof first)
        return err_errno(e, "create '%s'", s->path);
    return ST_OK;
}

void stop_step_close(struct stop_step *s) { closep(&s->fd); }

/* The program may have made the file shorter, or written anything. */
static int64_t finished_step(const struct stop_step *s) {
    int64_t step;
    const bool read = pread(s->fd, &step, sizeof step, offsetof(struct shared, finished)) == sizeof step;
    return read && step >= 0 && step <= STEP_MAX ? step : -1;
}

void stop_step_sample(struct stop_step *s, int64_t metric_step, int64_t now_ms) {
    const int64_t finished = finished_step(s);
    if (finished >= 0 && !s->written) {
        s->written = true; /* metrics may count something else, such as tokens */
        s->last_step = -1;
        s->n_samples = 0;
    }
    const int64_t step = s->written ? finished : metric_step;
    if (step <= s->last_step || step > STEP_MAX)
        return;
    s->last_step = step;
    s->last_ms = now_ms;
    const int64_t newest = (s->n_samples - 1) % STOP_STEP_SAMPLES;
    if (s->n_samples && now_ms - s->samples[newest].time_ms < SAMPLE_MS)
        return;
    s->samples[s->n_samples % STOP_STEP_SAMPLES].step = step;
    s->samples[s->n_samples++ % STOP_STEP_SAMPLES].time_ms = now_ms;
}

/* Between the finished step and the stop step lie the steps that are finished while the message is on its way. */
bool stop_step_choose(const struct stop_step *s, int64_t now_ms, int64_t *ret) {
    *ret = -1;
    if (s->last_step < 0)
        return true;
    const int64_t oldest = s->n_samples > STOP_STEP_SAMPLES ? s->n_samples % STOP_STEP_SAMPLES : 0;
    if (now_ms - s->samples[oldest].time_ms < OBSERVED_MS)
        return false;
    const int64_t steps = s->last_step - s->samples[oldest].step, took_ms = s->last_ms - s->samples[oldest].time_ms;
    const double per_ms = took_ms > 0 ? (double)steps / (double)took_ms : 0;
    const double ahead = per_ms * (double)(now_ms - s->last_ms + MARGIN_MS) * 1.25;
    *ret = s->last_step + 1 + (ahead < STEP_MAX ? (int64_t)ahead : STEP_MAX);
    return true;
}

bool stop_step_set(struct stop_step *s, int64_t step) {
    const bool written = pwrite(s->fd, &step, sizeof step, offsetof(struct shared, stop)) == sizeof step;
    return written && finished_step(s) < step;
}
