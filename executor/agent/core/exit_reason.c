#include "executor/agent/core/exit_reason.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_CODE_BASE = 20 };

exit_cause exit_status_cause(const struct exit_status *s) {
    const int cause = s->exit_code - EXIT_CODE_BASE;
    if (s->signal == 0 && s->exit_code == 0)
        return EXIT_CAUSE(FINISHED);
    /* The other causes are the agent's own: an exit code of 20 + such a cause does not come from a final report. */
    const bool of_worker = (cause >= EXIT_CAUSE(STOPPED) && cause <= EXIT_CAUSE(AGENT_LOST)) ||
                           cause == EXIT_CAUSE(HOST_FAULT) || cause == EXIT_CAUSE(CHECKPOINT_UNREADABLE);
    return s->signal == 0 && of_worker ? (exit_cause)cause : EXIT_CAUSE(INTERNAL);
}

void exit_status_sentence(const struct exit_status *s, const char *killed_because, char *ret, size_t n) {
    if (killed_because)
        snprintf(ret, n, "%s", killed_because);
    else if (s->signal == SIGKILL)
        snprintf(ret, n, "killed by signal 9 (Killed): by a person, or by the kernel because memory ran out");
    else if (s->signal)
        snprintf(ret, n, "killed by signal %d (%s)", s->signal, strsignal(s->signal));
    else if (s->exit_code == 0)
        snprintf(ret, n, "finished");
    else if (s->exit_code == EXIT_CODE_BASE + EXIT_CAUSE(STOPPED)) /* executor/worker/control.c (TERM_MS) */
        snprintf(
            ret, n,
            "was asked to stop, and ended without a report: it was busy for too long, such as with opening data or "
            "a checkpoint");
    else
        snprintf(ret, n, "exited with status %d and without a final report", s->exit_code);
}

/* A program can survive the kill of a child, and end for another reason hours later. */
static bool memory_is_reason(const struct exit_facts *facts, exit_cause cause) {
    return facts->memory && *facts->memory->sentence && facts->memory->age_ms <= EXIT_MEMORY_MAX_MS &&
           !facts->killed_because && (cause == EXIT_CAUSE(INTERNAL) || cause == EXIT_CAUSE(BAD_SPEC));
}

void exit_reason_decide(const struct exit_facts *facts, struct exit_reason *ret) {
    const struct final_report *final = facts->final;
    char *const sentence = ret->sentence;
    ret->reported = final->received && facts->status.signal == 0;
    ret->cause = ret->reported ? final->cause : exit_status_cause(&facts->status);
    exit_status_sentence(&facts->status, facts->killed_because, sentence, EXIT_SENTENCE_BYTES);
    if (ret->reported && *final->message)
        snprintf(sentence, EXIT_SENTENCE_BYTES, "%.*s", EXIT_SENTENCE_BYTES - 1, final->message);
    if (ret->cause == EXIT_CAUSE(FINISHED))
        return;
    if (memory_is_reason(facts, ret->cause)) {
        ret->reported = false;
        ret->cause = facts->memory->fatal ? EXIT_CAUSE(BAD_SPEC) : EXIT_CAUSE(INTERNAL);
        snprintf(sentence, EXIT_SENTENCE_BYTES, "%s", facts->memory->sentence);
    }
    if (facts->device_reason) {
        ret->cause = EXIT_CAUSE(DEVICE_LOST);
        snprintf(sentence, EXIT_SENTENCE_BYTES, "lost its GPU %d, which is quarantined: %s", facts->device,
                 facts->device_reason);
    }
    if (facts->leaving) {
        ret->cause = EXIT_CAUSE(AGENT_LOST);
        snprintf(sentence, EXIT_SENTENCE_BYTES, "stopped because its executor is stopping");
    }
}
