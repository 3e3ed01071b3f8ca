#include "executor/program/checkpoint_report.h"

#include "base/utf8.h"

#include <stdio.h>

/* A program's checkpoint is one shard, whatever the number of ranks: rank 0 reports all files of all ranks. */
static void report_stored(struct emitter *emitter, const struct checkpoints *c, const struct checkpoint_stored *s) {
    char directory[PATH_MAX + 32], file[48];
    Trainyard__V1__ShardReport shard = TRAINYARD__V1__SHARD_REPORT__INIT;
    snprintf(directory, sizeof directory, "%s/step-%lld", checkpoints_folder(c), (long long)s->step);
    snprintf(file, sizeof file, "step-%lld.json", (long long)s->step);
    shard.step = s->step;
    shard.world_size = 1;
    shard.directory = directory;
    shard.file = file;
    shard.bytes = s->bytes;
    shard.sha256 = (char *)(uintptr_t)s->sha256;
    emitter_put(emitter, WORKER_RECORD(SHARD, shard, &shard));
    emitter_log(emitter, "step %lld: stored %s, %zu file%s, %lld bytes", (long long)s->step, directory, s->files,
                s->files == 1 ? "" : "s", (long long)s->bytes);
}

static void report_notice(struct emitter *emitter, const struct checkpoints_event *event) {
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    char printable[sizeof event->text.msg]; /* it names the program's files */
    utf8_copy_printable(event->text.msg, printable, sizeof printable);
    notice.kind = (char *)(uintptr_t)event->kind;
    notice.message = printable;
    notice.step = event->step;
    emitter_put(emitter, WORKER_RECORD(NOTICE, notice, &notice));
}

void checkpoint_report(struct emitter *emitter, const struct checkpoints *c, const struct checkpoints_event *event) {
    if (event->event == CHECKPOINTS_STORED)
        report_stored(emitter, c, &event->stored);
    else if (event->event == CHECKPOINTS_NOTICE)
        report_notice(emitter, event);
}
