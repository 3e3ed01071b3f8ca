#include "service/scheduler/failure.h"

#include <stddef.h>

/* Higher = nearer to the cause. A crash is above the stop orders that follow it, and a lost host above the crash that
 * its absence may have caused elsewhere. */
static const struct {
    int nearness;
    bool fatal, counts;
    const char *text;
} causes[] = {
    [RANK_END_UNKNOWN] = { 5, false, true, "ended without a reason" },
    [RANK_END_FINISHED] = { 0, false, true, "finished" },
    [RANK_END_STOPPED] = { 1, false, true, "was stopped" },
    [RANK_END_BAD_SPEC] = { 9, true, true, "cannot train this spec" },
    [RANK_END_PEER_LOST] = { 2, false, true, "lost a peer" },
    [RANK_END_CHECKPOINT_BAD] = { 8, false, false, "could not read its checkpoint" },
    [RANK_END_CHECKPOINT_WRITE] = { 6, false, true, "could not write a checkpoint" },
    [RANK_END_NUMERIC] = { 9, true, true, "met a loss that is not a finite number" },
    [RANK_END_INTERNAL] = { 5, false, true, "failed" },
    [RANK_END_AGENT_LOST] = { 7, false, false, "ended with its agent" },
    [RANK_END_HOST_LOST] = { 7, false, false, "was lost with its host" },
    [RANK_END_DEVICE_LOST] = { 7, false, false, "was lost with its device" },
};

static int index_of(enum rank_end_cause cause) {
    return (size_t)cause < sizeof causes / sizeof *causes ? (int)cause : RANK_END_UNKNOWN;
}

bool rank_end_prefer(const struct rank_end *a, const struct rank_end *b) {
    return causes[index_of(a->cause)].nearness > causes[index_of(b->cause)].nearness;
}

bool rank_end_fatal(enum rank_end_cause cause) { return causes[index_of(cause)].fatal; }
bool rank_end_counts(enum rank_end_cause cause) { return causes[index_of(cause)].counts; }
const char *rank_end_text(enum rank_end_cause cause) { return causes[index_of(cause)].text; }
