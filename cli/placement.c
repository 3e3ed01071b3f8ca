#include "cli/placement.h"

#include "cli/output.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

/* A rank starts about 10 ms after its job was created; its row follows within a tick of the controller. */
static const int WAITS_MS[] = { 10, 20, 20, 80, 170, 200 };

/* A job that is still QUEUED after this many waits is waiting for slots, perhaps for hours. */
enum { WAITS_QUEUED = 3 };

/* The number of different hosts. */
static size_t hosts_of(const Trainyard__V1__Attempt *a) {
    size_t n = 0;
    for (size_t i = 0; i < a->n_placements; i++) {
        size_t before = 0;
        while (before < i && strcmp(a->placements[before]->hostname, a->placements[i]->hostname) != 0)
            before++;
        n += before == i;
    }
    return n;
}

/* Returns false while a rank of the newest attempt has not started. */
static bool placement_sentence(const Trainyard__V1__Job *job, char *ret, size_t n) {
    const Trainyard__V1__Attempt *a = job->n_attempts ? job->attempts[job->n_attempts - 1] : NULL;
    if (!a || a->n_placements == 0)
        return false;
    int min = a->placements[0]->threads, max = min;
    for (size_t i = 1; i < a->n_placements; i++) {
        const int threads = a->placements[i]->threads;
        min = threads < min ? threads : min;
        max = threads > max ? threads : max;
    }
    if (min < 1)
        return false;
    char where[300], cores[40];
    const size_t hosts = hosts_of(a);
    if (hosts == 1)
        snprintf(where, sizeof where, "host %s", a->placements[0]->hostname);
    else
        snprintf(where, sizeof where, "%zu hosts", hosts);
    if (min == max)
        snprintf(cores, sizeof cores, "%d core%s", min, min == 1 ? "" : "s");
    else
        snprintf(cores, sizeof cores, "%d to %d cores", min, max);
    snprintf(ret, n, "%zu rank%s on %s, %s%s", a->n_placements, a->n_placements == 1 ? "" : "s", where, cores,
             a->n_placements == 1 ? "" : " each");
    return true;
}

static bool is_waiting(const Trainyard__V1__Job *job, size_t waits) {
    return job->state == TRAINYARD__V1__JOB__STATE__QUEUED && (*job->reason || waits >= WAITS_QUEUED);
}

void placement_print(struct cli *c, const char *job) {
    if (c->output != OUTPUT_TABLE)
        return;
    for (size_t i = 0; i < sizeof WAITS_MS / sizeof *WAITS_MS; i++) {
        Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
        CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
        char sentence[400];
        poll(NULL, 0, WAITS_MS[i]);
        request.name = (char *)job;
        if (client_call_once(c, jobs, "GetJob", &request.base, &reply, NULL) != ST_OK)
            return;
        const bool placed = placement_sentence((Trainyard__V1__Job *)reply, sentence, sizeof sentence);
        const bool waiting = is_waiting((Trainyard__V1__Job *)reply, i + 1);
        if (placed) {
            output_text(stderr, sentence);
            fputc('\n', stderr);
        }
        if (placed || waiting)
            return;
    }
}
