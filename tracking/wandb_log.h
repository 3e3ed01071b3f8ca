/* The framing of a run file of Weights & Biases, run-ID.wandb: LevelDB's log format with another checksum.
 *
 * The file is a sequence of blocks of WANDB_BLOCK_BYTES. The first block begins with WANDB_MAGIC_BYTES: ":W&B", a fixed
 * number, a version. Then follow pieces of records: a CRC-32 of the type and the data (4 bytes), the length of the data
 * (2 bytes), the type (1 byte), all little-endian, and the data. A piece does not cross the end of a block; less than a
 * head's bytes before it are zero. A record is one WHOLE piece, or a FIRST, MIDDLE pieces and a LAST.
 *
 *     struct wandb_log log = { .add = take, .ctx = ctx };
 *     for each block, in order: if (!wandb_log_block(&log, block, n)) break;     // log.why: a fault, or NULL
 *     wandb_log_done(&log);
 *
 * No I/O. A log has one thread. */
#ifndef TRACKING_WANDB_LOG_H
#define TRACKING_WANDB_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WANDB_BLOCK_BYTES = 32 << 10, WANDB_MAGIC_BYTES = 7, WANDB_RECORD_BYTES = 4 << 20 };

struct wandb_log {
    void (*add)(void *ctx, const uint8_t *data, size_t n); /* gets each record */
    void *ctx;
    const char *why; /* the fault because of which no more can be read */
    int64_t large;   /* records of more than WANDB_RECORD_BYTES, which are skipped */
    bool begun;      /* the magic number was read */
    bool inside;     /* a record has begun */
    uint8_t *record; /* [capacity]: what is read of it */
    size_t n, capacity;
};

/* n: WANDB_BLOCK_BYTES, except for the last block of the file. False: nothing more can be read, because the file ends
 * here, perhaps in the middle of a record that a client was writing, or because of log->why. */
bool wandb_log_block(struct wandb_log *log, const uint8_t *block, size_t n);
void wandb_log_done(struct wandb_log *log);

#endif
