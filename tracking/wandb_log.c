#include "tracking/wandb_log.h"

#include "base/alloc.h"

#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 7, TYPE_AT = 6 };
enum piece_type { ZERO, WHOLE, FIRST, MIDDLE, LAST };

static uint32_t little(const uint8_t *at, int bytes) {
    uint32_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

static bool fault(struct wandb_log *log, const char *why) {
    log->why = why;
    return false;
}

/* A record that is too large is not kept: n counts on. */
static void data_append(struct wandb_log *log, const uint8_t *data, size_t n) {
    if (log->n + n <= WANDB_RECORD_BYTES) {
        if (log->n + n > log->capacity) {
            log->capacity = 2 * (log->n + n);
            log->record = alloc_resize(log->record, log->capacity, 1);
        }
        memcpy(log->record + log->n, data, n);
    }
    log->n += n;
}

static bool piece_take(struct wandb_log *log, unsigned type, const uint8_t *data, size_t n) {
    if (type < WHOLE || type > LAST)
        return fault(log, "a record has an unknown type");
    if ((type == WHOLE || type == FIRST) == log->inside)
        return fault(log, "a record has a wrong sequence of pieces");
    if (!log->inside)
        log->n = 0;
    data_append(log, data, n);
    log->inside = type == FIRST || type == MIDDLE;
    if (log->inside)
        return true;
    if (log->n > WANDB_RECORD_BYTES)
        log->large++;
    else
        log->add(log->ctx, log->record, log->n);
    return true;
}

bool wandb_log_block(struct wandb_log *log, const uint8_t *block, size_t n) {
    size_t at = 0;
    if (!log->begun) {
        if (n < WANDB_MAGIC_BYTES || memcmp(block, ":W&B", 4) != 0)
            return fault(log, "it does not begin like a run file of W&B");
        at = WANDB_MAGIC_BYTES;
        log->begun = true;
    }
    while (n - at >= HEAD_BYTES) {
        const uint8_t *head = block + at, *data = head + HEAD_BYTES;
        const size_t bytes = little(head + 4, 2);
        if (head[TYPE_AT] == ZERO && bytes == 0) /* space that a writer reserved */
            return false;
        if (bytes > n - at - HEAD_BYTES)
            return n < WANDB_BLOCK_BYTES ? false : fault(log, "a record crosses the end of its block");
        if (crc32_gzip_refl(crc32_gzip_refl(0, head + TYPE_AT, 1), data, bytes) != little(head, 4))
            return fault(log, "a record is corrupt");
        if (!piece_take(log, head[TYPE_AT], data, bytes))
            return false;
        at += HEAD_BYTES + bytes;
    }
    return n == WANDB_BLOCK_BYTES;
}

void wandb_log_done(struct wandb_log *log) {
    free(log->record);
    log->record = NULL;
    log->capacity = 0;
}
