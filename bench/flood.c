/* A worker that trains nothing and reports much, for bench/ingest.py: `trainyard-executor --worker bench_flood`. It
 * joins as a rank does, writes one metric row of EIGHT values for each step of the spec, and ends as a worker that
 * failed, so that the job is FAILED once everything before that last word is stored. */
#include "api/codec/frame.h"
#include "base/clock.h"
#include "base/limits.h"

#include <stdio.h>
#include <unistd.h>

#include <trainyard/v1/worker.pb-c.h>

enum { COMMANDS_FD = 3, RECORDS_FD = 4, EIGHT = 8 };

static void put(Trainyard__V1__WorkerRecord *record) {
    record->time_us = clock_wall_us();
    struct err e;
    if (frame_write(RECORDS_FD, &record->base, &e) != ST_OK) {
        fprintf(stderr, "bench_flood: %s\n", e.msg);
        _exit(1);
    }
}

/* The next command; they are few, and live until the process ends. */
static const Trainyard__V1__WorkerCommand *command(struct frame_reader *reader) {
    struct err e;
    ProtobufCMessage *m = NULL;
    bool ended = false;
    for (;;) {
        if (frame_reader_next(reader, &trainyard__v1__worker_command__descriptor, &m, &e) != ST_OK)
            break;
        if (m)
            return (const Trainyard__V1__WorkerCommand *)m;
        if (ended || frame_reader_fill(reader, COMMANDS_FD, &ended, &e) != ST_OK)
            break;
    }
    fprintf(stderr, "bench_flood: no command\n");
    _exit(1);
}

static void join(struct frame_reader *reader) {
    Trainyard__V1__RankAddress address = TRAINYARD__V1__RANK_ADDRESS__INIT;
    address.address = (ProtobufCBinaryData){ .len = 5, .data = (uint8_t *)"flood" };
    Trainyard__V1__WorkerRecord offer = TRAINYARD__V1__WORKER_RECORD__INIT;
    offer.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS, offer.address = &address;
    put(&offer);
    while (command(reader)->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS)
        ;
    Trainyard__V1__RankJoined joined = TRAINYARD__V1__RANK_JOINED__INIT;
    joined.numerics_id = "flood";
    Trainyard__V1__WorkerRecord ready = TRAINYARD__V1__WORKER_RECORD__INIT;
    ready.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED, ready.joined = &joined;
    put(&ready);
}

static void flood(int64_t steps) {
    static char *names[EIGHT] = { "loss",         "learning_rate", "grad_norm",          "tokens_per_second",
                                  "step_seconds", "data_wait",     "communication_wait", "checkpoint_stall" };
    double values[EIGHT];
    Trainyard__V1__MetricRow row = TRAINYARD__V1__METRIC_ROW__INIT;
    row.names = names, row.n_names = EIGHT, row.values = values, row.n_values = EIGHT, row.per_rank = 1;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS, record.metrics = &row;
    for (row.step = 1; row.step <= steps; row.step++) {
        for (int i = 0; i < EIGHT; i++)
            values[i] = (double)row.step / (i + 1);
        put(&record);
    }
}

int main(void) {
    struct frame_reader reader;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    const Trainyard__V1__WorkerCommand *start = command(&reader);
    if (start->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_START)
        return 1;
    int64_t steps = start->start->attempt->spec->train->steps;
    join(&reader);
    flood(steps);
    Trainyard__V1__WorkerEnd end = TRAINYARD__V1__WORKER_END__INIT;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC, end.message = "the flood is over", end.step = steps;
    Trainyard__V1__WorkerRecord last = TRAINYARD__V1__WORKER_RECORD__INIT;
    last.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_END, last.end = &end;
    put(&last);
    frame_reader_done(&reader);
    return 23;
}
