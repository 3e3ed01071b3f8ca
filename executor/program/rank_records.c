/* The records of a rank, and its metrics FIFO. */
#include "base/utf8.h"
#include "executor/program/rank_state.h"

#include <string.h>
#include <unistd.h>

enum {
    REFUSED_MAX = 10,
    REFUSED_BYTES = 400,
    FIFO_READ_BYTES = 64 << 10,
    FIFO_READS = 16, /* a FIFO holds at most 1 MiB; a writer outside the rank's processes must not keep it open */
};

static char *text(const char *s) { return (char *)(uintptr_t)s; }

void rank_put_notice(struct rank *r, const char *kind, const char *message) {
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    notice.kind = text(kind);
    notice.message = text(message);
    notice.step = r->step;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE;
    record.notice = &notice;
    emitter_put(r->emitter, &record);
}

/* The lines come from a build: packages wrote them. */
void rank_put_environment(struct rank *r, const Trainyard__V1__EnvironmentReport *report) {
    if (*report->event)
        rank_put_notice(r, report->event, report->message);
    for (size_t i = 0; i < report->n_lines; i++) {
        Trainyard__V1__LogText line = TRAINYARD__V1__LOG_TEXT__INIT;
        line.stream = text("environment");
        line.text = report->lines[i];
        emitter_put(r->emitter, WORKER_RECORD(LOG, log, &line));
    }
}

/* The rows of rank 0 are metrics of the job. The rows of another rank are stored under the number of that rank. */
void rank_on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct rank *r = ctx;
    Trainyard__V1__MetricRow row = TRAINYARD__V1__METRIC_ROW__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    row.step = step;
    row.n_names = row.n_values = n;
    row.names = (char **)(uintptr_t)names;
    row.values = (double *)(uintptr_t)values;
    row.per_rank = r->start->rank != 0;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    record.metrics = &row;
    emitter_put(r->emitter, &record);
    r->measured = true;
    silence_sign(&r->silence);
    if (step > r->step)
        r->step = step;
}

static void on_line(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct rank *r = ctx;
    tracking_row(r->tracking, step, names, values, n);
}

void rank_on_event(void *ctx, const char *kind, const char *message) { rank_put_notice(ctx, kind, message); }

void rank_on_tick(void *ctx) {
    struct rank *r = ctx;
    emitter_progress(r->emitter);
}

void rank_on_artifact(void *ctx, const char *path, int64_t bytes, const char *sha256) {
    struct rank *r = ctx;
    Trainyard__V1__ArtifactStored artifact = TRAINYARD__V1__ARTIFACT_STORED__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    artifact.path = text(path);
    artifact.bytes = bytes;
    artifact.sha256 = text(sha256);
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ARTIFACT;
    record.artifact = &artifact;
    emitter_put(r->emitter, &record);
    silence_sign(&r->silence);
}

/* The sentence has bytes of the program. */
static void on_refused(void *ctx, const char *sentence) {
    struct rank *r = ctx;
    char printable[REFUSED_BYTES];
    utf8_copy_printable(sentence, printable, sizeof printable);
    if (++r->refused <= REFUSED_MAX)
        rank_put_notice(r, "metric_refused", printable);
    if (r->refused == REFUSED_MAX)
        rank_put_notice(r, "metric_refused", "further lines that are refused are not reported");
}

bool rank_fifo_read(struct rank *r) {
    static char data[FIFO_READ_BYTES];
    const struct metric_sink sink = { r, on_line, on_refused };
    ssize_t n = read(r->scratch.fifo, data, sizeof data);
    if (n > 0)
        silence_sign(&r->silence);
    if (n > 0)
        metric_lines_feed(&r->lines, data, (size_t)n, &sink);
    return n > 0;
}

void rank_fifo_drain(struct rank *r) {
    for (int i = 0; i < FIFO_READS && rank_fifo_read(r); i++)
        continue;
}

/* A last line may have no newline. */
void rank_fifo_end(struct rank *r) {
    const struct metric_sink sink = { r, on_line, on_refused };
    rank_fifo_drain(r);
    metric_lines_feed(&r->lines, "\n", 1, &sink);
}

void rank_put_address(struct rank *r, const char *address) {
    Trainyard__V1__RankAddress offered = TRAINYARD__V1__RANK_ADDRESS__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    offered.address = (ProtobufCBinaryData){ .data = (uint8_t *)text(address), .len = strlen(address) };
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS;
    record.address = &offered;
    emitter_put(r->emitter, &record);
}

void rank_put_joined(struct rank *r) {
    Trainyard__V1__RankJoined joined = TRAINYARD__V1__RANK_JOINED__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    joined.from_step = checkpoints_resume_step(r->checkpoints);
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED;
    record.joined = &joined;
    emitter_put(r->emitter, &record);
}
