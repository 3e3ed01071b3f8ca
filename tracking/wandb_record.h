/* The records of a run file of Weights & Biases (wandb_log.h): the run, its history, its end. Pure. */
#ifndef TRACKING_WANDB_RECORD_H
#define TRACKING_WANDB_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text of the configuration or a tag; value is JSON, or "" for a tag. Valid during the call. */
typedef void wandb_text_add(void *ctx, const char *name, const char *value);

struct wandb_run {
    const char *id, *project, *name, *notes; /* "": none. Valid during the call */
    int64_t start_us;                        /* since 1970 */
};

/* What gets the contents of records. */
struct wandb_taker {
    void *ctx;
    void (*run)(void *ctx, const struct wandb_run *run);
    wandb_text_add *parameter, *tag;
    void (*point)(void *ctx, int64_t step, int64_t time_us, const char *name, double value);
    void (*exit)(void *ctx, int code); /* the program's; a run that has not ended, or was killed, has none */
};

/* data: the n bytes of a record, from outside. *ret_others grows by the number of values of the history that are no
 * numbers. False: the bytes are no record. */
bool wandb_record_take(const uint8_t *data, size_t n, const struct wandb_taker *t, int64_t *ret_others);

#endif
