/* Which metrics a program repeats with the same bits, if it computes the same. */
#ifndef SERVICE_STORE_METRIC_REPEATABLE_H
#define SERVICE_STORE_METRIC_REPEATABLE_H

#include <stdbool.h>

/* False for a metric whose name says that it measures time, speed or the machine: one of its words, which are divided
 * by every character that is no letter and no digit, is in the list of metric_repeatable.c ("time", "seconds", "gpu").
 * tokens_per_second, step_ms, system/cpu and train/samples_per_second are such metrics; learning_rate is none. */
bool metric_repeatable(const char *name);

#endif
