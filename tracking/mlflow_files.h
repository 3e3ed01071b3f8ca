/* The files of MLflow's file store (mlruns/EXPERIMENT/RUN/): the lines of meta.yaml and of a metric. Pure. */
#ifndef TRACKING_MLFLOW_FILES_H
#define TRACKING_MLFLOW_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a key at the top of meta.yaml, as text: plain, or in single or double quotes. It is cut to capacity.
 * False: text, which ends with NUL, has no such key, or its value is null. */
bool mlflow_meta_value(const char *text, const char *key, char *ret, size_t capacity);

struct mlflow_point {
    int64_t time_ms, step;
    double value;
};
/* One line of a metric, "TIME VALUE STEP", without its newline and NUL-terminated; more columns are ignored, and a line
 * without a step has step 0. False: it is no such line. */
bool mlflow_metric_line(const char *line, struct mlflow_point *ret);

#endif
