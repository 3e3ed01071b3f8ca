/* Jobs that the options of a command select, and commands that change several jobs. */
#ifndef CLI_JOB_SELECT_H
#define CLI_JOB_SELECT_H

#include "cli/command.h"

#include <trainyard/v1/job.pb-c.h>

/* The values of JOB_SELECTOR_ROWS. A job must match all that are given. */
struct job_selector {
    const char *state, *queue, *name, *user, *since, *before;
    struct text_list labels;
};

/* The rows of a command's options; args: its argument struct, member: its struct job_selector. */
#define JOB_SELECTOR_ROWS(args, member)                                                                                \
    JOB_SELECTOR_ROW_("label", 'l', "KEY=VALUE", "only jobs with this label, or KEY for any value; may be repeated",   \
                      OPTION_LIST, offsetof(args, member.labels)),                                                     \
        JOB_SELECTOR_ROW_("state", 's', "STATE", "only jobs in this state, such as QUEUED or FAILED", OPTION_TEXT,     \
                          offsetof(args, member.state)),                                                               \
        JOB_SELECTOR_ROW_("queue", 'q', "QUEUE", "only jobs of this queue", OPTION_TEXT,                               \
                          offsetof(args, member.queue)),                                                               \
        JOB_SELECTOR_ROW_("name", 0, "NAME", "only jobs of this name", OPTION_TEXT, offsetof(args, member.name)),      \
        JOB_SELECTOR_ROW_("user", 'u', "USER", "only jobs that this user has submitted", OPTION_TEXT,                  \
                          offsetof(args, member.user)),                                                                \
        JOB_SELECTOR_ROW_("since", 0, "TIME",                                                                          \
                          "only jobs created then or later: 90m, 12h, 3d (ago), or 2026-11-21T10:00:00Z", OPTION_TEXT, \
                          offsetof(args, member.since)),                                                               \
        JOB_SELECTOR_ROW_("before", 0, "TIME", "only jobs created earlier", OPTION_TEXT,                               \
                          offsetof(args, member.before))
#define JOB_SELECTOR_ROW_(name, letter, value, about, kind, offset)                                                    \
    { (name), (letter), (value), (about), (kind), (offset), NULL }

/* A request for the selected jobs. It points into `times` and into the selector. INVALID_ARGUMENT: the
 * selector has an unknown state, or a text that is no time. */
struct job_selector_times {
    Google__Protobuf__Timestamp since, before;
};
MUST_CHECK status_t job_selector_request(const struct job_selector *s, struct job_selector_times *times,
                                         Trainyard__V1__ListJobsRequest *ret, struct err *e);

/* What a command does to jobs. */
struct job_action {
    const char *verb, *past;                      /* "cancel", "cancelled" */
    bool (*may)(Trainyard__V1__Job__State state); /* whether it is possible in this state */
    status_t (*act)(struct cli *c, const void *args, const char *name, struct err *e);
    bool asks; /* before it acts on selected jobs, unless `yes` */
};

/* Acts on each job of `words`, or on each job that is selected and that action->may accepts. One job: its error is
 * returned. Several: each error is printed on stderr, the rest is done, and the returned error counts them. Selected
 * jobs are counted on stderr. INVALID_ARGUMENT without words and selector, with both, and if the action asks and there
 * is no terminal. */
MUST_CHECK status_t job_select_each(struct cli *c, char *const words[], const struct job_selector *selector, bool yes,
                                    const struct job_action *action, const void *args, struct err *e);

#endif
