/* trainyard explain, queues.
 *
 * `explain` prints three parts of one ExplainJobResponse: the numbered reasons, each with its remedy; the jobs that use
 * the slots that this job waits for; and the result for each executor. The server limits the last two lists, and the
 * client prints how many entries were omitted. `queues` prints ListQueues, one row per queue. */
#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/output.h"

#include <inttypes.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/queue.pb-c.h>

static const char *state_name(Trainyard__V1__Job__State state) {
    return output_enum(&trainyard__v1__job__state__descriptor, (int)state);
}

/* ---- explain ---- */

static void show_reasons(const Trainyard__V1__ExplainJobResponse *x) {
    printf("job %s is %s: ", output_id(x->name), state_name(x->state));
    output_text(stdout, x->summary);
    putchar('\n');
    char starts[OUTPUT_TIME_BYTES];
    output_time(x->start_estimate, starts);
    if (x->start_estimate)
        printf("starts about %s, if the jobs that use its slots continue at their current speed\n", starts);
    for (size_t i = 0; i < x->n_reasons; i++) {
        printf("%zu. ", i + 1);
        output_text(stdout, x->reasons[i]->message);
        printf("\n   -> ");
        output_text(stdout, x->reasons[i]->remedy);
        putchar('\n');
    }
}

static void show_omitted(int n, const char *what) {
    if (n > 0)
        printf("and %d more %s\n", n, what);
}

static void add_holder(struct table *t, const void *message) {
    const Trainyard__V1__SlotHolder *h = message;
    char duration[24], ends[OUTPUT_TIME_BYTES];
    output_between(h->since, NULL, duration);
    output_time(h->end_estimate, ends);
    table_cell(t, "%s", output_id(h->job));
    table_cell(t, "%s", h->display_name);
    table_cell(t, "%s", state_name(h->state));
    table_cell(t, "%d", h->slots);
    table_cell(t, "%s", duration);
    if (h->steps)
        table_cell(t, "%" PRId64 "/%" PRId64, h->step, h->steps);
    else
        table_cell(t, "%" PRId64, h->step); /* of a program */
    table_cell(t, "%s", ends);
}

static const struct output_columns holder_columns = {
    { "USED BY", "NAME", "STATE", "SLOTS", "FOR", "STEP", "ENDS ABOUT" }, add_holder
};

static status_t show_holders(const Trainyard__V1__ExplainJobResponse *x, struct err *e) {
    if (x->n_holders == 0)
        return ST_OK;
    putchar('\n');
    status_t st = output_table(&holder_columns, x->holders, x->n_holders, e);
    show_omitted(x->holders_omitted, "jobs use slots");
    return st;
}

static void add_executor(struct table *t, const void *message) {
    const Trainyard__V1__ExecutorVerdict *v = message;
    table_cell(t, "%s", output_id(v->executor));
    table_cell(t, "%s", v->hostname);
    table_cell(t, "%d/%d", v->slots_free, v->slots);
    table_cell(t, "%s", output_enum(&trainyard__v1__executor_verdict__verdict__descriptor, (int)v->verdict));
    table_cell(t, "%s", v->message);
}

static const struct output_columns executor_columns = { { "EXECUTOR", "HOST", "FREE", "RESULT", "WHY" }, add_executor };

static status_t show_executors(const Trainyard__V1__ExplainJobResponse *x, struct err *e) {
    if (x->n_executors == 0)
        return ST_OK;
    putchar('\n');
    status_t st = output_table(&executor_columns, x->executors, x->n_executors, e);
    show_omitted(x->executors_omitted, "executors");
    return st;
}

static status_t show_explanation(const Trainyard__V1__ExplainJobResponse *x, struct err *e) {
    show_reasons(x);
    TRY(show_holders(x, e));
    return show_executors(x, e);
}

static status_t run_explain(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[JOB_NAME_BYTES];
    bool done = false;
    (void)args;
    Trainyard__V1__ExplainJobRequest request = TRAINYARD__V1__EXPLAIN_JOB_REQUEST__INIT;
    TRY(job_name_find(c, words[0], name, e));
    request.name = name;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(client_call(c, &trainyard__v1__job_service__descriptor, "ExplainJob", &request.base, &reply, e));
    const Trainyard__V1__ExplainJobResponse *x = (Trainyard__V1__ExplainJobResponse *)reply;
    TRY(output_message(c, reply, &done, e));
    if (c->output == OUTPUT_NAME)
        printf("%s\n", x->name);
    return done || c->output == OUTPUT_NAME ? ST_OK : show_explanation(x, e);
}

const struct command command_explain = {
    .name = "explain",
    .arguments = "JOB",
    .summary = "Explains why a job waits: the reasons, the first to resolve on top, and what would free it.",
    .details =
        "Below the reasons: the job's place among the jobs that wait for the same kind of slots, the jobs that use "
        "these\nslots, and the result for each executor. For a job that does not wait, it reports what the job does.",
    .example = "trainyard explain 42\ntrainyard explain 42 -o json | jq -r '.reasons[0].message'",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run_explain,
};

/* ---- queues ---- */

static void add_queue(struct table *t, const void *message) {
    const Trainyard__V1__Queue *q = message;
    char waited[24];
    output_between(q->oldest_waiting_time, NULL, waited);
    table_cell(t, "%s", q->name);
    table_cell(t, "%" PRId64, q->waiting);
    table_cell(t, "%" PRId64, q->running);
    table_cell(t, "%" PRId64, q->paused);
    table_cell(t, "%" PRId64, q->cpu_slots_used);
    table_cell(t, "%" PRId64, q->cuda_slots_used);
    table_cell(t, "%" PRId64 "+%" PRId64, q->cpu_slots_wanted, q->cuda_slots_wanted);
    table_cell(t, "%s", *q->oldest_waiting ? output_id(q->oldest_waiting) : "-");
    table_cell(t, "%s", waited);
}

static const struct output_columns columns = {
    { "QUEUE", "WAITING", "RUNNING", "PAUSED", "CPU SLOTS", "CUDA SLOTS", "WANTED", "OLDEST", "AGE" }, add_queue
};

static status_t run_queues(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    (void)words;
    Trainyard__V1__ListQueuesRequest request = TRAINYARD__V1__LIST_QUEUES_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, &trainyard__v1__queue_service__descriptor, "ListQueues", &request.base, CLIENT_ALL, &all, e));
    return output_list(c, all, &columns, e);
}

const struct command command_queues = {
    .name = "queues",
    .arguments = "",
    .summary =
        "Lists the queues: waiting and running jobs, slots in use and wanted (cpu+cuda), the oldest waiting job.",
    .details =
        "A queue is listed if it was created ('trainyard queue') or one of its jobs has not ended. Waiting jobs start\n"
        "by priority, then by the shares of their queues, then by age; 'trainyard explain JOB' shows a job's place.",
    .example = "trainyard queues",
    .args_bytes = 1,
    .run = run_queues,
};
