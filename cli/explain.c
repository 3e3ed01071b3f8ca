/* trainyard explain, queues. */
#include "cli/client.h"
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
    char starts[24];
    output_time(x->start_estimate, starts);
    if (x->start_estimate)
        printf("starts about %s, if those that hold its slots go on at their pace\n", starts);
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

static status_t show_holders(const Trainyard__V1__ExplainJobResponse *x, struct err *e) {
    static const char *const heads[] = { "HELD BY", "NAME", "STATE", "SLOTS", "FOR", "STEP", "ENDS ABOUT", NULL };
    if (x->n_holders == 0)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < x->n_holders; i++) {
        const Trainyard__V1__SlotHolder *h = x->holders[i];
        char held[24], ends[24];
        output_between(h->since, NULL, held);
        output_time(h->end_estimate, ends);
        table_cell(&t, "%s", output_id(h->job));
        table_cell(&t, "%s", h->display_name);
        table_cell(&t, "%s", state_name(h->state));
        table_cell(&t, "%d", h->slots);
        table_cell(&t, "%s", held);
        table_cell(&t, "%" PRId64 "/%" PRId64, h->step, h->steps);
        table_cell(&t, "%s", ends);
    }
    putchar('\n');
    status_t st = output_table(&t, e);
    table_done(&t);
    show_omitted(x->holders_omitted, "jobs hold slots");
    return st;
}

static status_t show_executors(const Trainyard__V1__ExplainJobResponse *x, struct err *e) {
    static const char *const heads[] = { "EXECUTOR", "HOST", "FREE", "VERDICT", "WHY", NULL };
    if (x->n_executors == 0)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < x->n_executors; i++) {
        const Trainyard__V1__ExecutorVerdict *v = x->executors[i];
        table_cell(&t, "%s", output_id(v->executor));
        table_cell(&t, "%s", v->hostname);
        table_cell(&t, "%d/%d", v->slots_free, v->slots);
        table_cell(&t, "%s", output_enum(&trainyard__v1__executor_verdict__verdict__descriptor, (int)v->verdict));
        table_cell(&t, "%s", v->message);
    }
    putchar('\n');
    status_t st = output_table(&t, e);
    table_done(&t);
    show_omitted(x->executors_omitted, "executors");
    return st;
}

static status_t show_explanation(const Trainyard__V1__ExplainJobResponse *x, struct err *e) {
    show_reasons(x);
    TRY(show_holders(x, e));
    return show_executors(x, e);
}

static status_t run_explain(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[80];
    bool done = false;
    (void)args;
    Trainyard__V1__ExplainJobRequest request = TRAINYARD__V1__EXPLAIN_JOB_REQUEST__INIT;
    TRY(client_job_name(words[0], name, e));
    request.name = name;
    ProtobufCMessage *reply = NULL;
    TRY(client_call(c, &trainyard__v1__job_service__descriptor, "ExplainJob", &request.base, &reply, e));
    const Trainyard__V1__ExplainJobResponse *x = (Trainyard__V1__ExplainJobResponse *)reply;
    status_t st = output_message(c, reply, &done, e);
    if (st == ST_OK && c->output == OUTPUT_NAME)
        printf("%s\n", x->name);
    else if (st == ST_OK && !done)
        st = show_explanation(x, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

const struct command command_explain = {
    .name = "explain",
    .arguments = "JOB",
    .summary = "Tells why a job waits: what holds it up, what must go first at the top, and what would free it.",
    .details =
        "Below the reasons: its place among the jobs that wait for such slots, the jobs that hold them and since "
        "when,\nand what each executor is for it, in that executor's own words where it lacks something. Of a "
        "job that does not\nwait it tells what it does instead.",
    .example = "trainyard explain 42\ntrainyard explain 42 -o json | jq -r '.reasons[0].message'",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_explain,
};

/* ---- queues ---- */

static void add_queue(struct table *t, const Trainyard__V1__Queue *q) {
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

static status_t show_queues(const struct cli *c, const Trainyard__V1__ListQueuesResponse *all, struct err *e) {
    static const char *const heads[] = { "QUEUE",      "WAITING", "RUNNING", "PAUSED", "CPU SLOTS",
                                         "CUDA SLOTS", "WANTED",  "OLDEST",  "AGE",    NULL };
    bool done = false;
    TRY(output_message(c, &all->base, &done, e));
    for (size_t i = 0; c->output == OUTPUT_NAME && i < all->n_queues; i++)
        printf("%s\n", all->queues[i]->name);
    if (done || c->output == OUTPUT_NAME)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < all->n_queues; i++)
        add_queue(&t, all->queues[i]);
    status_t st = output_table(&t, e);
    table_done(&t);
    return st;
}

static status_t run_queues(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    (void)words;
    Trainyard__V1__ListQueuesRequest request = TRAINYARD__V1__LIST_QUEUES_REQUEST__INIT;
    ProtobufCMessage *all = NULL;
    TRY(client_list(c, &trainyard__v1__queue_service__descriptor, "ListQueues", &request.base, CLIENT_ALL, &all, e));
    status_t st = show_queues(c, (Trainyard__V1__ListQueuesResponse *)all, e);
    protobuf_c_message_free_unpacked(all, NULL);
    return st;
}

const struct command command_queues = {
    .name = "queues",
    .arguments = "",
    .summary = "Lists the queues: jobs that wait and run, slots in use and wanted (cpu+cuda), the oldest that waits.",
    .details = "A queue is a name to group jobs by; it is listed while a job of it has not ended. Jobs of all queues "
               "wait in one\norder, by priority, then age: 'trainyard explain JOB' tells a job's place in it.",
    .example = "trainyard queues",
    .args_bytes = 1,
    .run = run_queues,
};
