/* The agent's decisions: a pure core, (state, event, now) -> (state, actions). It reads no clock, does no I/O and
 * starts no thread, so that a simulation can drive it through any history.
 *
 *     agent_core_step(c, &event, now_ms, &actions);   // changes the state, appends what is to be done
 *     for each of actions: do it, in this order       // agent.c; its results are events again
 *     sleep until agent_core_deadline_ms(c), then step AGENT_EV_TICK
 *
 * It owns the attempts whose ranks run on this host, or have ended here and wait for the controller's acknowledgement,
 * and decides about them: whether a start order fits, which GPU and how many threads a rank gets, when TERM and KILL
 * are sent, which rank hangs, why a rank ended and when that is reported, and when an agent that stops may exit.
 *
 *   start         SPAWN -> SPAWNED for each rank -> STARTED -> REPORT_STARTED; or START_FAILED, which ends the attempt
 *   running       address and JOINED are reported; a rank is killed if it sends nothing for hang_ms, or makes no
 *                 progress for HANG_WAITING_MS more
 *   a rank dies   EXITED; unless it finished, the attempt's other local ranks get TERM, and KILL two seconds later.
 *                 REPORT_ENDED follows at once. If the rank has a GPU and failed, the GPU is inspected first, within
 *                 0.9 s: the driver may report a GPU's failure after the death of the worker that it caused
 *   ended         every local rank is closed: REPORT_ATTEMPT_ENDED, now and at each attach until ACKNOWLEDGED
 *
 * Rules it keeps (tests/unit/test_agent_core_simulation.c checks them after every step): a rank's end is reported once
 * on each stream, after its start; a rank is closed once and is never used after that; no device has two ranks; a
 * fenced attempt's ranks are killed; CPU ranks never exceed twice the slots.
 *
 * Times are milliseconds on one monotonic clock, from 1. Memory: proportional to the ranks of the known attempts; the
 * process ends if an allocation fails. One thread owns a core. */
#ifndef EXECUTOR_AGENT_CORE_AGENT_CORE_H
#define EXECUTOR_AGENT_CORE_AGENT_CORE_H

#include "base/cleanup.h"
#include "base/cpu_topology.h"
#include "executor/agent/core/exit_reason.h"
#include "executor/agent/core/kill_escalation.h"

/* ---- state: read by the I/O, changed only by agent_core_step ---- */

enum { AGENT_NO_DEVICE = -1, AGENT_DEVICE_REASON_BYTES = 160, AGENT_TEXT_BYTES = 480 };

enum agent_rank_state {
    AGENT_RANK_NEW,    /* its process is not started yet */
    AGENT_RANK_RUNS,   /* its process runs */
    AGENT_RANK_DEAD,   /* its process has ended; its pipes are being emptied, or its device is being inspected */
    AGENT_RANK_CLOSED, /* it never started, or only its end is left */
};

/* How a rank ended, as it is reported. The I/O adds the last sequence number if the rank still has a spool log. */
struct agent_rank_end {
    struct exit_status status;
    exit_cause cause;
    int64_t last_sequence; /* of an attempt of an earlier agent; else 0 */
    int64_t time_us, step;
    char message[AGENT_TEXT_BYTES], weights_sha256[65];
};

struct agent_rank {
    int32_t rank, pid;
    int64_t pid_start_time;
    enum agent_rank_state state;
    int device; /* its index in the core's list; AGENT_NO_DEVICE unless a rank on CUDA runs */
    bool joined;
    bool has_end;         /* end is decided, and was reported */
    struct cpu_mask cpus; /* that it runs on; empty: not bound */
    struct agent_rank_end end;

    /* Internal to the core. */
    struct kill_escalation kill;
    struct final_report final;
    struct exit_status status; /* how its process ended */
    struct memory_end memory;
    int64_t died_us;
    bool left;                /* the agent was stopping when the process ended */
    bool drained;             /* its last records are in the spool */
    bool waits_for_spool;     /* a full spool holds its records back: exempt from hang detection */
    int64_t inspect_until_ms; /* the end is not decided before its device is inspected, or until then; 0: no wait */
    int64_t step;             /* the newest step of a metric; -1: none */
    int64_t progress, progress_ms, seen_ms;
};

struct agent_attempt {
    int64_t job;
    int32_t attempt, world_size;
    struct agent_rank *ranks;
    size_t n_ranks;
    int threads;     /* of each of its ranks; 0 before they start */
    int max_threads; /* resources.cores; 0: no limit */
    bool pinned;     /* its ranks are bound to CPUs */
    bool stopping;   /* its ranks were asked to end: the end of one does not end the others */
    bool ended;      /* every rank is closed */
    bool acknowledged;
    struct agent_attempt *next;
};

struct agent_device {
    int index;                              /* in the driver's list */
    bool in_use;                            /* a rank has it */
    char reason[AGENT_DEVICE_REASON_BYTES]; /* why it gets no rank; "" = it is healthy */
};

/* ---- events ---- */

enum agent_event_kind {
    /* From the controller. Each may come twice. */
    AGENT_EV_START,        /* job, attempt, start. Known: answered by its end if it has ended, else ignored */
    AGENT_EV_STOP,         /* job, attempt, grace_ms, text: a second one may end sooner, never later */
    AGENT_EV_ACKNOWLEDGED, /* job, attempt: the controller has stored the attempt's end, or does not want it */
    AGENT_EV_FENCED,       /* job, attempt: it has ended for the controller, which drops its records */
    AGENT_EV_ATTACHED,     /* a new stream: facts that the hello does not carry are reported again */
    /* Results of AGENT_ACT_SPAWN. */
    AGENT_EV_SPAWNED,      /* rank, pid, pid_start_time: one for each rank; then one of: */
    AGENT_EV_STARTED,      /* job, attempt: every rank has its orders */
    AGENT_EV_START_FAILED, /* job, attempt, text */
    /* From a rank's worker. */
    AGENT_EV_ADDRESS,      /* it offers an address for the rendezvous */
    AGENT_EV_JOINED,       /* it has joined the gang */
    AGENT_EV_STOP_STEP,    /* it has chosen the step after which its gang stops */
    AGENT_EV_ALIVE,        /* progress; flag: it waits for the spool */
    AGENT_EV_FINAL_REPORT, /* final */
    AGENT_EV_SPOOL_WAIT,   /* flag: a full spool holds its records back, or does so no longer */
    AGENT_EV_BROKEN,       /* text: it violated the protocol, and is killed with this reason */
    AGENT_EV_EXITED, /* status, memory, step; flag: its pipes are empty. Once with flag, before perhaps once without */
    /* From the devices. */
    AGENT_EV_DEVICE_UNHEALTHY, /* device, text */
    AGENT_EV_DEVICE_INSPECTED, /* device: the answer to AGENT_ACT_INSPECT */
    /* From the agent itself. */
    AGENT_EV_REMOVED, /* job, attempt: AGENT_ACT_REMOVE is done; the core forgets the attempt */
    AGENT_EV_LEAVE,   /* the agent was asked to stop: it takes no more ranks and ends its ranks */
    AGENT_EV_DRAIN,   /* the same, but the controller ends its ranks; AGENT_EV_LEAVE may follow */
    AGENT_EV_TICK,    /* at agent_core_deadline_ms. uploaded, stream_ended: used while the agent leaves */
};

struct agent_start {
    int32_t world_size;
    const int32_t *ranks; /* [n_ranks] */
    size_t n_ranks;
    bool cuda;
    int max_threads; /* cores that a rank wants at most; 0: as many as there are */
    bool pinned;     /* ranks are bound to the CPUs of their cores; false for programs, which may have other threads */
    const char *invalid; /* why the order can never be carried out; NULL: it can */
    const void *order;   /* the caller's; comes back in AGENT_ACT_SPAWN */
};

struct agent_event {
    enum agent_event_kind kind;
    int64_t job;
    int32_t attempt, rank;
    int64_t wall_us; /* the time of day, for reports; with every event */
    const struct agent_start *start;
    const struct final_report *final;
    const char *text;
    int grace_ms, device;
    int32_t pid;
    int64_t pid_start_time, progress, step;
    struct exit_status status;
    struct memory_end memory;
    bool flag;
    bool uploaded;     /* every record is acknowledged, or there is no stream to send it on */
    bool stream_ended; /* the control stream has ended */
};

/* ---- actions ---- */

enum agent_action_kind {
    /* To the workers: job, attempt, and rank unless the line names other fields. */
    AGENT_ACT_SPAWN,         /* all ranks of the attempt in their order; order: of the event */
    AGENT_ACT_ORDER_STOP,    /* text, grace_ms: until it is killed */
    AGENT_ACT_ORDER_THREADS, /* threads; cpus */
    AGENT_ACT_TERM,
    AGENT_ACT_KILL,
    AGENT_ACT_LOG,     /* text: a line of the agent in the rank's log */
    AGENT_ACT_DISCARD, /* its present and future records are dropped */
    AGENT_ACT_CLOSE,   /* its process and pipes are released */
    /* To the agent's directory: job, attempt. */
    AGENT_ACT_SAVE,   /* for the agent's next start */
    AGENT_ACT_REMOVE, /* nothing is left to do about it: answered by AGENT_EV_REMOVED */
    /* To the controller. Without a stream a report is dropped: the next hello and AGENT_EV_ATTACHED repeat it. */
    AGENT_ACT_REPORT_STARTED,       /* job, attempt, rank */
    AGENT_ACT_REPORT_ADDRESS,       /* the same */
    AGENT_ACT_REPORT_JOINED,        /* the same */
    AGENT_ACT_REPORT_STOP_STEP,     /* the same; a second stop order repeats it */
    AGENT_ACT_REPORT_THREADS,       /* the same */
    AGENT_ACT_REPORT_ENDED,         /* the same */
    AGENT_ACT_REPORT_ATTEMPT_ENDED, /* job, attempt; an unknown attempt has ended without ranks */
    /* To the devices. */
    AGENT_ACT_INSPECT,    /* device: answered by AGENT_EV_DEVICE_INSPECTED */
    AGENT_ACT_QUARANTINE, /* device, text: kept over restarts, reported to the controller */
    /* An agent that leaves. */
    AGENT_ACT_END_STREAM, /* everything was sent, or the time for it is over */
    AGENT_ACT_EXIT,
};

struct agent_action {
    enum agent_action_kind kind;
    int64_t job;
    int32_t attempt, rank;
    int device, threads, grace_ms;
    struct cpu_mask cpus;
    const void *order;
    char text[AGENT_TEXT_BYTES];
};

struct agent_actions {
    struct agent_action *items;
    size_t n, capacity;
};
void agent_actions_done(struct agent_actions *a);

/* ---- the core ---- */

struct agent_core_config {
    int slots;              /* CPU ranks at a time */
    int cores;              /* that the ranks share */
    const struct cpu *cpus; /* [n_cpus] whose cores these are; copied. 0: unknown, and no rank is bound to CPUs */
    int n_cpus;
    int threads_per_rank; /* the smallest share */
    int hang_ms;
    int n_devices;
    const struct agent_device *devices; /* [n_devices]; copied */
};

struct agent_core;
struct agent_core *agent_core_new(const struct agent_core_config *config, int64_t now_ms);
struct agent_core *agent_core_free(struct agent_core *c);
CLEANUP_DEFINE(struct agent_core *, agent_core_free)

/* Before the first step: an attempt of an earlier agent. Copies the fields of `known` and its ranks that are not
 * internal. A rank whose state is AGENT_RANK_RUNS was handed over and continues; the processes of the others are gone,
 * and one without an end died with that agent. */
void agent_core_load(struct agent_core *c, const struct agent_attempt *known, int64_t wall_us);

void agent_core_step(struct agent_core *c, const struct agent_event *event, int64_t now_ms, struct agent_actions *ret);

/* Nothing is under way but ranks that run: the agent does not leave, and no rank is about to end or to be closed, or
 * waits for the spool. Such a state can be handed over (agent_core_load). */
bool agent_core_is_quiet(const struct agent_core *c);

/* When the next AGENT_EV_TICK is due. An earlier tick does no harm. */
int64_t agent_core_deadline_ms(const struct agent_core *c);

/* The attempts, oldest first; the pointers are valid until the next AGENT_EV_REMOVED. */
const struct agent_attempt *agent_core_first(const struct agent_core *c);
const struct agent_attempt *agent_core_find(const struct agent_core *c, int64_t job, int32_t attempt);
/* NULL if there is no such attempt or rank. */
const struct agent_rank *agent_core_find_rank(const struct agent_core *c, int64_t job, int32_t attempt, int32_t rank);
/* The rank that has this device, and its attempt; NULL if there is none. */
const struct agent_rank *agent_core_rank_on(const struct agent_core *c, int device, const struct agent_attempt **ret);
/* The ranks that have a process, or are not closed yet. */
int agent_core_ranks_open(const struct agent_core *c);

#endif
