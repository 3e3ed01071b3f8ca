#include "service/scheduler/failure.h"

#include <stddef.h>

/* The properties of each cause. nearness: higher = more likely the cause of the attempt's end. A crash is above the
 * stop orders that follow it, and a lost host is above the crashes that its loss may have caused on other hosts. */
enum blame { OTHERS, HOST, HOST_FOR_NOW };

static const struct {
    int nearness;
    bool fatal, counts;
    enum blame blame;
    const char *text;
} causes[] = {
    [RANK_END_UNKNOWN] = { 5, false, true, OTHERS, "ended without a reason" },
    [RANK_END_FINISHED] = { 0, false, true, OTHERS, "finished" },
    [RANK_END_STOPPED] = { 1, false, true, OTHERS, "was stopped" },
    [RANK_END_BAD_SPEC] = { 11, true, true, OTHERS, "cannot train this spec" },
    [RANK_END_PEER_LOST] = { 2, false, true, OTHERS, "lost a peer" },
    [RANK_END_CHECKPOINT_BAD] = { 10, false, false, OTHERS, "could not read its checkpoint" },
    [RANK_END_CHECKPOINT_WRITE] = { 6, false, true, HOST_FOR_NOW, "could not write a checkpoint" },
    [RANK_END_NUMERIC] = { 11, true, true, OTHERS, "met a loss that is not a finite number" },
    [RANK_END_INTERNAL] = { 5, false, true, OTHERS, "failed" },
    [RANK_END_AGENT_LOST] = { 7, false, false, OTHERS, "ended with its agent" },
    [RANK_END_HOST_LOST] = { 7, false, false, OTHERS, "was lost with its host" },
    [RANK_END_DEVICE_LOST] = { 7, false, false, OTHERS, "was lost with its device" },
    [RANK_END_HOST_FAULT] = { 9, false, false, HOST, "lacked something on its host" },
    [RANK_END_CHECKPOINT_UNREADABLE] = { 8, false, false, HOST_FOR_NOW, "could not read its checkpoint's files" },
    [RANK_END_NOT_STARTED] = { 8, false, true, HOST_FOR_NOW, "could not be started on its host" },
    [RANK_END_NO_ORDER] = { 12, false, false, OTHERS, "got no order to start" },
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
bool rank_end_blames_host(enum rank_end_cause cause) { return causes[index_of(cause)].blame != OTHERS; }
bool rank_end_may_pass(enum rank_end_cause cause) { return causes[index_of(cause)].blame == HOST_FOR_NOW; }
