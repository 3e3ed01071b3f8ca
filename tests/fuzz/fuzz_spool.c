/* Bytes of an unknown disk as a spool's segment: recovery and reading agree on what is intact, and stay within it. */
#include "base/file.h"
#include "executor/agent/spool.h"
#include "executor/agent/spool_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool count_visit(void *ctx, int64_t sequence, const uint8_t *data, size_t n) {
    int64_t *next = ctx;
    if (sequence != (*next)++ || n == 0 || data[0] + data[n - 1] < 0)
        abort();
    return true;
}

static char folder[64];

static void folder_remove(void) { status_ignore(dir_remove(folder, NULL)); }

/* A folder for this process, with one log whose first segment is written anew for each input. */
static const char *log_folder(void) {
    if (!*folder) {
        atexit(folder_remove);
        snprintf(folder, sizeof folder, "/dev/shm/ty-fuzz-spool-%d", (int)getpid());
        char log[96];
        snprintf(log, sizeof log, "%s/1-1-0", folder);
        if (dir_make(log, 0700, NULL) != ST_OK)
            abort();
    }
    return folder;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    int64_t intact = 0;
    size_t at = 0, whole, n_payload;
    const uint8_t *payload;
    while ((whole = spool_record_parse(data + at, n - at, intact + 1, &payload, &n_payload))) {
        if (payload < data + at || payload + n_payload > data + n)
            abort();
        at += whole;
        intact++;
    }
    char path[128];
    snprintf(path, sizeof path, "%s/1-1-0/%020d", log_folder(), 1);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
    struct spool *s;
    if (spool_open(log_folder(), 1 << 20, &s, NULL) != ST_OK)
        abort();
    int64_t next = 1;
    if (spool_log_last(spool_at(s, 0)) != intact ||
        spool_read(spool_at(s, 0), 1, SIZE_MAX, count_visit, &next, NULL) != ST_OK || next != intact + 1)
        abort();
    spool_close(s);
    return 0;
}
