/* Why a worker ended: a cause, by which the controller decides about the attempt, and a sentence for people. Pure.
 *
 * A worker that ends by itself sends a final report before it exits; its exit code repeats the cause of that report as
 * 20 + cause. A worker that a signal ends, or that crashes, sends no final report. */
#ifndef EXECUTOR_AGENT_CORE_EXIT_REASON_H
#define EXECUTOR_AGENT_CORE_EXIT_REASON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/worker.pb-c.h>

typedef Trainyard__V1__WorkerEnd__Cause exit_cause;
#define EXIT_CAUSE(name) TRAINYARD__V1__WORKER_END__CAUSE__##name

struct exit_status {
    int exit_code; /* -1 if a signal ended the process */
    int signal;    /* 0 if the process exited */
};

/* The last record of a worker, as far as it decides about the rank. */
struct final_report {
    bool received; /* false: the other fields are 0 and "" */
    exit_cause cause;
    int64_t step;
    char message[480];
    char weights_sha256[65];
};

/* The cause that the exit status alone shows: FINISHED for 0, the cause in an exit code of 20 + cause, else
 * INTERNAL. */
exit_cause exit_status_cause(const struct exit_status *s);

/* Writes the predicate of a sentence whose subject is the rank: "killed by signal 11 (Segmentation fault)", "exited
 * with status 3 and without a final report", "finished". killed_because: why the agent killed the process, which then
 * is the whole predicate; NULL if the agent did not. */
void exit_status_sentence(const struct exit_status *s, const char *killed_because, char *ret, size_t n);

/* The kernel has killed a process of the rank because memory ran out. */
struct memory_end {
    char sentence[240]; /* "": it has not */
    bool fatal;         /* the rank's own limit: another attempt would reach it too */
    int64_t age_ms;     /* from the kill until the process ended */
};

struct exit_facts {
    struct exit_status status;
    const struct final_report *final; /* ignored if a signal ended the process */
    const char *killed_because;       /* as in exit_status_sentence */
    int device;                       /* index of the rank's device in the driver's list */
    const char *device_reason;        /* why that device is quarantined; NULL: it is not, or there is none */
    const struct memory_end *memory;  /* or NULL */
    bool leaving;                     /* the agent was stopping its workers when this one ended */
};

enum {
    EXIT_SENTENCE_BYTES = 240,
    EXIT_MEMORY_MAX_MS = 60000, /* a program that lives longer has survived the kill */
};
struct exit_reason {
    exit_cause cause;
    char sentence[EXIT_SENTENCE_BYTES];
    bool reported; /* the worker's own final report has this cause */
};

/* A success always counts. Otherwise a stopping agent takes precedence over a lost device, a lost device over memory
 * that ran out, and that over the worker's own failure (INTERNAL or BAD_SPEC), often only a consequence. Memory
 * does not count if the kill is older than EXIT_MEMORY_MAX_MS, if the agent killed the process, or if the worker
 * reports a cause of another kind, such as a lost peer. Memory is BAD_SPEC if the rank's own limit was reached, else
 * INTERNAL: which rank the kernel chooses when all share a limit may be another one in the next attempt. */
void exit_reason_decide(const struct exit_facts *facts, struct exit_reason *ret);

#endif
