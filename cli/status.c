/* trainyard status: the answer of GetStatus on one screen. */
#include "cli/client.h"
#include "cli/colour.h"
#include "cli/output.h"

#include <inttypes.h>
#include <string.h>
#include <trainyard/v1/status.pb-c.h>
#include <unistd.h>

static const char *ending(int64_t n) { return n == 1 ? "" : "s"; }

/* "label      ", to which the caller adds the rest of the line. */
static void label(const char *text) { printf("%-11s ", text); }

static void show_controller(const struct cli *c, const Trainyard__V1__GetStatusResponse *s) {
    char since[24];
    output_between(s->elected_time, NULL, since);
    label("controller");
    output_text(stdout, client_address(c));
    printf(", version %s, %s\n", s->version, s->leads ? "leads" : "stands by");
    label("leader");
    if (*s->leader)
        output_text(stdout, s->leader);
    else
        printf("none yet");
    printf(", for %s (epoch %" PRId64 ")\n", since, s->epoch);
    label("database");
    printf("PostgreSQL ");
    output_text(stdout, s->database_version);
    printf(", schema %d, answers in %.1f ms\n", s->schema_version, s->database_seconds * 1000);
    label("caller");
    output_text(stdout, *s->caller ? s->caller : "-");
    putchar('\n');
}

static void show_slots(const Trainyard__V1__GetStatusResponse *s) {
    label("executors");
    printf("%d attached", s->executors_attached);
    if (s->executors_drained > 0)
        printf(", %d of them drained", s->executors_drained);
    if (s->executors_lost > 0)
        printf(", %d lost", s->executors_lost);
    putchar('\n');
    label("slots");
    for (size_t i = 0; i < s->n_slots; i++) {
        const Trainyard__V1__GetStatusResponse__Slots *kind = s->slots[i];
        printf("%s%s %d of %d used", i ? "; " : "", kind->kind, kind->used, kind->slots);
        if (kind->drained > 0)
            printf(", %d drained", kind->drained);
        if (kind->wanted > 0)
            printf(", %" PRId64 " wanted by waiting jobs", kind->wanted);
    }
    putchar('\n');
    label("devices");
    printf("%d GPU%s", s->devices, ending(s->devices));
    if (s->devices_quarantined > 0)
        printf(", %d of them quarantined", s->devices_quarantined);
    putchar('\n');
}

static void show_jobs(const Trainyard__V1__GetStatusResponse *s) {
    const bool coloured = colour_wanted(STDOUT_FILENO);
    label("jobs");
    for (size_t i = 0; i < s->n_jobs; i++) {
        const char *state = output_enum(&trainyard__v1__job__state__descriptor, (int)s->jobs[i]->state);
        const char *colour = coloured ? colour_of_state(state) : "";
        printf("%s%" PRId64 " %s%s%s", i ? ", " : "", s->jobs[i]->jobs, colour, state, *colour ? COLOUR_END : "");
    }
    printf("%s\n", s->n_jobs ? "" : "none");
}

static void show_attention(const Trainyard__V1__GetStatusResponse *s) {
    const char *colour = colour_wanted(STDOUT_FILENO) ? colour_of_state("PAUSED") : "";
    printf("\n%s\n", s->n_attention ? "Needs attention" : "Nothing needs attention.");
    for (size_t i = 0; i < s->n_attention; i++) {
        printf("  %s", colour);
        output_text(stdout, s->attention[i]);
        printf("%s\n", *colour ? COLOUR_END : "");
    }
}

static status_t run_status(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    (void)words;
    bool done = false;
    CLEANUP(message_freep) Trainyard__V1__GetStatusResponse *s = NULL;
    TRY(client_get_status(c, &s, e));
    TRY(output_message(c, &s->base, &done, e));
    if (done)
        return ST_OK;
    if (c->output == OUTPUT_NAME) {
        printf("%s\n", s->leader);
        return ST_OK;
    }
    show_controller(c, s);
    show_slots(s);
    show_jobs(s);
    show_attention(s);
    return ST_OK;
}

const struct command command_status = {
    .name = "status",
    .arguments = "",
    .summary = "Shows the whole service on one screen, and what needs attention.",
    .details =
        "Shows the controller and its leader, the database, executors, slots, GPUs, jobs by state, and what a person\n"
        "should look at: lost, disconnected, drained and faulty hosts, GPUs in quarantine, jobs that failed within\n"
        "the last day, jobs that wait for long. With -o name it prints the name of the leader.",
    .example = "trainyard status\ntrainyard status -o json | jq -r '.attention[]'",
    .args_bytes = 1,
    .run = run_status,
};
