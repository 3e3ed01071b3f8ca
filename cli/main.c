/* trainyard: the client of the training service, and `up`, which runs the whole service on one machine. */
#include "base/alloc.h"
#include "base/status.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/nearest.h"
#include "cli/up/exec_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the scripts of `completion` call; help does not list it. */
#define COMPLETE_COMMAND "complete"

const struct command *const commands[] = {
    &command_up,
    &command_down,
    &command_login,
    &command_context,
    &command_status,
    &command_top,
    &command_submit,
    &command_validate,
    &command_plan,
    &command_list,
    &command_get,
    &command_events,
    &command_watch,
    &command_logs,
    &command_metrics,
    &command_checkpoints,
    &command_checkpoint,
    &command_artifacts,
    &command_sample,
    &command_export,
    &command_import,
    &command_profile,
    &command_cancel,
    &command_pause,
    &command_resume,
    &command_retry,
    &command_delete,
    &command_sweep,
    &command_explain,
    &command_queues,
    &command_queue,
    &command_executors,
    &command_drain,
    &command_undrain,
    &command_token,
    &command_join,
    &command_secret,
    &command_audit,
    &command_dashboard,
    &command_completion,
    NULL,
};

const struct command *command_find(const char *name) {
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

void help_print_all(void) {
    printf("trainyard COMMAND [ARGUMENT]...\n\nSubmits and manages training jobs.\n\nCommands\n");
    for (size_t i = 0; commands[i]; i++)
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    printf("  %-12s %s\n", "help", "Prints this page, or that of a command: trainyard help submit.");
    printf("  %-12s %s\n", "version", "Prints the version of this program.");
    printf("\nThe controller is the first of these: --controller ADDR, --context NAME, the variable "
           "TRAINYARD_CONTROLLER,\n"
           "./.trainyard/address (which 'trainyard up' writes), the current context (see 'trainyard help login'),\n"
           "127.0.0.1:7700.\n"
           "\nExit status\n"
           "  0  success; for watch: the job SUCCEEDED\n"
           "  1  failure; for watch: the job FAILED\n"
           "  2  wrong usage or a wrong spec\n"
           "  3  cancelled; for watch: the job was CANCELLED\n"
           "  4  not found\n"
           "  5  the controller cannot be reached\n"
           "  6  not allowed: no valid token, or too low a role\n"
           "\nExample\n  trainyard up --detach\n  trainyard submit job.yaml --watch\n  trainyard down\n");
}

static enum exit_code exit_code_of(status_t st) {
    switch (st) {
    case ST_OK: return EXIT_DONE;
    case ST_INVALID_ARGUMENT: return EXIT_USAGE;
    case ST_CANCELLED: return EXIT_CANCELLED;
    case ST_NOT_FOUND: return EXIT_NOT_FOUND;
    case ST_UNAVAILABLE:
    case ST_DEADLINE_EXCEEDED: return EXIT_UNREACHABLE;
    case ST_PERMISSION_DENIED:
    case ST_UNAUTHENTICATED: return EXIT_NOT_ALLOWED;
    default: return EXIT_FAILED;
    }
}

static int report_error(status_t st, const struct err *e) {
    fflush(stdout);
    fprintf(stderr, "trainyard: %s\n", e->msg);
    return (int)exit_code_of(st);
}

static int run_command(const struct command *cmd, int argc, char **argv) {
    struct cli c = { .output = OUTPUT_TABLE };
    struct err e = { "" };
    char *const *words = NULL;
    int help = 0;
    CLEANUP(freep) void *args = alloc_zeroed(1, cmd->args_bytes);
    status_t st = arguments_parse(cmd, argc, argv, &c, args, &words, &help, &e);
    if (st == ST_OK && help)
        help_print(cmd);
    else if (st == ST_OK)
        st = cmd->run(&c, args, words, &e);
    c.client = client_close(c.client);
    if (st == ST_OK && fflush(stdout) != 0)
        st = err_set(&e, ST_INTERNAL, "standard output cannot be written");
    return st == ST_OK ? (int)c.exit_code : report_error(st, &e);
}

static int no_command(const char *name) {
    const char *names[sizeof commands / sizeof *commands + 2] = { "help", "version" };
    size_t n = 2;
    for (size_t i = 0; commands[i]; i++)
        names[n++] = commands[i]->name;
    const char *meant = nearest_command(name, names, n);
    fprintf(stderr, "trainyard: there is no command '%s'%s%s%s; see 'trainyard help'\n", name, meant ? ": '" : "",
            meant ? meant : "", meant ? "' may be meant" : "");
    return EXIT_USAGE;
}

static bool asks_for_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

static int help_command(const char *name) {
    const struct command *cmd = name ? command_find(name) : NULL;
    const bool none = !name || asks_for_help(name) || strcmp(name, "help") == 0 ||
                      strcmp(name, "version") == 0; /* these have no page */
    if (!cmd && !none)
        return no_command(name);
    if (cmd)
        help_print(cmd);
    else
        help_print_all();
    return EXIT_DONE;
}

static int complete_main(int n, char *const words[]) {
    struct cli c = { .output = OUTPUT_TABLE };
    complete(&c, commands, n, words);
    c.client = client_close(c.client);
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, EXEC_CHILD_COMMAND) == 0)
        return exec_child_main(argc - 2, argv + 2);
    if (strcmp(name, COMPLETE_COMMAND) == 0)
        return complete_main(argc - 2, argv + 2);
    if (strcmp(name, "help") == 0 || asks_for_help(name))
        return help_command(argc > 2 ? argv[2] : NULL);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0)
        return printf("trainyard %s\n", TRAINYARD_VERSION) < 0;
    const struct command *cmd = command_find(name);
    if (!cmd)
        return no_command(name);
    return run_command(cmd, argc - 1, argv + 1);
}
