#include "service/scheduler/failure.h"

#include <stddef.h>

/* The properties of each cause. nearness: higher = more likely the cause of the attempt's end. A crash is above the
 * stop orders that follow it, and a lost host is above the crashes that its loss may have caused on other hosts. */
enum blame { OTHERS, HOST, HOST_FOR_NOW };

static const struct {
    const char *name;
    int nearness;
    bool fatal, counts;
    enum blame blame;
    const char *text;
} causes[] = {
    [RANK_END_UNKNOWN] = { "unknown", 5, false, true, OTHERS, "ended without a reason" },
    [RANK_END_FINISHED] = { "finished", 0, false, true, OTHERS, "finished" },
    [RANK_END_STOPPED] = { "stopped", 1, false, true, OTHERS, "was stopped" },
    [RANK_END_BAD_SPEC] = { "bad_spec", 11, true, true, OTHERS, "cannot train this spec" },
    [RANK_END_PEER_LOST] = { "peer_lost", 2, false, true, OTHERS, "lost a peer" },
    [RANK_END_CHECKPOINT_BAD] = { "checkpoint_bad", 10, false, false, OTHERS, "could not read its checkpoint" },
    [RANK_END_CHECKPOINT_WRITE] = { "checkpoint_write", 6, false, true, HOST_FOR_NOW, "could not write a checkpoint" },
    [RANK_END_NUMERIC] = { "numeric", 11, true, true, OTHERS, "met a loss that is not a finite number" },
    [RANK_END_INTERNAL] = { "internal", 5, false, true, OTHERS, "failed" },
    [RANK_END_AGENT_LOST] = { "agent_lost", 7, false, false, OTHERS, "ended with its agent" },
    [RANK_END_HOST_LOST] = { "host_lost", 7, false, false, OTHERS, "was lost with its host" },
    [RANK_END_DEVICE_LOST] = { "device_lost", 7, false, false, OTHERS, "was lost with its device" },
    [RANK_END_HOST_FAULT] = { "host_fault", 9, false, false, HOST, "lacked something on its host" },
    [RANK_END_CHECKPOINT_UNREADABLE] = { "checkpoint_unreadable", 8, false, false, HOST_FOR_NOW,
                                         "could not read its checkpoint's files" },
    [RANK_END_NOT_STARTED] = { "not_started", 8, false, true, HOST_FOR_NOW, "could not be started on its host" },
    [RANK_END_NO_ORDER] = { "no_order", 12, false, false, OTHERS, "got no order to start" },
};

_Static_assert(sizeof causes / sizeof *causes == RANK_END_CAUSES, "each cause has a row");

static int index_of(enum rank_end_cause cause) {
    return (size_t)cause < sizeof causes / sizeof *causes ? (int)cause : RANK_END_UNKNOWN;
}

bool rank_end_prefer(const struct rank_end *a, const struct rank_end *b) {
    return causes[index_of(a->cause)].nearness > causes[index_of(b->cause)].nearness;
}

bool rank_end_fatal(enum rank_end_cause cause) { return causes[index_of(cause)].fatal; }
bool rank_end_counts(enum rank_end_cause cause) { return causes[index_of(cause)].counts; }
const char *rank_end_name(enum rank_end_cause cause) { return causes[index_of(cause)].name; }
const char *rank_end_text(enum rank_end_cause cause) { return causes[index_of(cause)].text; }
bool rank_end_blames_host(enum rank_end_cause cause) { return causes[index_of(cause)].blame != OTHERS; }
bool rank_end_may_pass(enum rank_end_cause cause) { return causes[index_of(cause)].blame == HOST_FOR_NOW; }
