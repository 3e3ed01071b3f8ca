/* A run file of Weights & Biases: the input as the whole file. */
#include "tracking/wandb_log.h"
#include "tracking/wandb_record.h"

#include <assert.h>
#include <string.h>

static void take_run(void *ctx, const struct wandb_run *run) {
    (void)ctx;
    assert(run->id && run->project && run->name && run->notes && run->start_us >= 0);
}

static void take_text(void *ctx, const char *name, const char *value) {
    (void)ctx;
    assert(name && value);
}

static void take_point(void *ctx, int64_t step, int64_t time_us, const char *name, double value) {
    (void)ctx, (void)value;
    assert(step >= 0 && time_us >= 0 && strlen(name) < 256);
}

static void take_exit(void *ctx, int code) { (void)ctx, (void)code; }

static void take_record(void *ctx, const uint8_t *data, size_t n) {
    const struct wandb_taker taker = { ctx, take_run, take_text, take_text, take_point, take_exit };
    (void)wandb_record_take(data, n, &taker, ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    int64_t others = 0;
    struct wandb_log log = { .add = take_record, .ctx = &others };
    for (size_t at = 0; at < n; at += WANDB_BLOCK_BYTES)
        if (!wandb_log_block(&log, data + at, n - at < WANDB_BLOCK_BYTES ? n - at : WANDB_BLOCK_BYTES))
            break;
    wandb_log_done(&log);
    /* The checksums keep most inputs from the records. */
    take_record(&others, data, n);
    return 0;
}
