/* The files of MLflow's file store: the input as meta.yaml and as a line of a metric. */
#include "tracking/mlflow_files.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const keys[] = { "run_id", "run_name", "status" };
    char *text = malloc(n + 1), value[16];
    struct mlflow_point point;
    assert(text);
    memcpy(text, data, n);
    text[n] = '\0';
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (mlflow_meta_value(text, keys[i], value, sizeof value))
            assert(strlen(value) < sizeof value);
    (void)mlflow_metric_line(text, &point);
    free(text);
    return 0;
}
