/* The step after which all ranks of a program stop, so that all of them save the same step without communication.
 *
 * A program and this process share a file of two 64-bit integers in the machine's byte order:
 *
 *     byte 0   the stop step, written here: INT64_MAX until a stop is ordered
 *     byte 8   the last finished step, written by the program after each step; -1 at first. Optional: if the program
 *              never writes it, the steps of metrics count
 *
 * After step k the program writes k to byte 8 and then reads byte 0. If k has reached the stop step, it saves its state
 * and exits.
 *
 * Rank 0 chooses the stop step so far ahead that it reaches every rank before the rank finishes that step. The choice
 * assumes that no rank is ahead of rank 0 by more than a step, as in data-parallel training. */
#ifndef EXECUTOR_PROGRAM_STOP_STEP_H
#define EXECUTOR_PROGRAM_STOP_STEP_H

#include "base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { STOP_STEP_SAMPLES = 8 };

struct stop_step {
    char path[PATH_MAX];
    int fd;
    struct {
        int64_t step, time_ms;
    } samples[STOP_STEP_SAMPLES]; /* a ring of steps, newest last */
    int64_t n_samples;            /* taken so far */
    int64_t last_step, last_ms;   /* the newest step, and when it was seen; last_step -1: none */
    bool written;                 /* the program has written a step: those of metrics no longer count */
};

/* Creates the file `stop` in the folder. */
MUST_CHECK status_t stop_step_open(struct stop_step *s, const char *directory, struct err *e);
void stop_step_close(struct stop_step *s);

/* Reads the program's step. metric_step: the highest step of a metric, -1: none. Call it about once a second. */
void stop_step_sample(struct stop_step *s, int64_t metric_step, int64_t now_ms);

/* Chooses the stop step, for rank 0, from the steps seen so far. -1: no step was seen. false: the speed is not known
 * yet; call it again after the next sample. */
bool stop_step_choose(const struct stop_step *s, int64_t now_ms, int64_t *ret);

/* Shows the stop step to the program. False: the program has already finished that step, so that its ranks may stop
 * after different steps. */
bool stop_step_set(struct stop_step *s, int64_t step);

#endif
