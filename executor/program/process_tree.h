/* The user's command and every process that descends from it.
 *
 *     struct process_tree tree;
 *     TRY(process_tree_start(&tree, &command, outputs, e));
 *     process_tree_signal(&tree, SIGTERM);         // the command's process group
 *     if (process_tree_reap(&tree)) ...            // after SIGCHLD: the command has ended, tree.wait_status says how
 *     process_tree_kill();                         // what is left, also processes that left the session
 *
 * The calling process must be a subreaper (PR_SET_CHILD_SUBREAPER), and must have no other children. One thread. */
#ifndef EXECUTOR_PROGRAM_PROCESS_TREE_H
#define EXECUTOR_PROGRAM_PROCESS_TREE_H

#include "base/status.h"
#include "executor/container/container.h"
#include "executor/sandbox/sandbox.h"

#include <stdbool.h>
#include <sys/types.h>

struct process_tree {
    pid_t command;   /* 0: it has ended, or was never started */
    pid_t group;     /* its process group */
    int wait_status; /* as of waitpid, when it has ended */
};

/* argv and variables end with NULL. argv[0] is searched in the PATH of `variables`. */
struct process_tree_command {
    const struct container *container; /* which the command enters first; NULL: none */
    const char *directory;             /* the working directory */
    char *const *argv;
    char **variables;
    const struct sandbox *sandbox; /* which the command and its descendants cannot leave; NULL: none */
    bool keeps_group;              /* user_group_leave is not called */
};

/* outputs: descriptors above 2 that become stdout and stderr. The command leads a session of its own, reads nothing
 * from stdin, and is killed when the calling process ends. FAILED_PRECONDITION with the reason if the command cannot be
 * executed or the container not be entered, INTERNAL if the sandbox cannot be entered. */
MUST_CHECK status_t process_tree_start(struct process_tree *tree, const struct process_tree_command *command,
                                       const int outputs[2], struct err *e);

/* To the process group of the command. Nothing happens before the command is started. */
void process_tree_signal(const struct process_tree *tree, int signal);

/* Whether a process of the command's group is left. */
bool process_tree_group_lives(const struct process_tree *tree);

/* Reaps every child that has ended. True if the command was among them. */
bool process_tree_reap(struct process_tree *tree);

/* Kills all descendants of this process and waits for their ends, for at most 10 s. */
void process_tree_kill(struct process_tree *tree);

#endif
