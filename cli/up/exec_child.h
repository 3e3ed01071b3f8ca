/* `trainyard exec-child`: the last step before a child of `up` runs. posix_spawn cannot set a parent-death signal, and
 * the child's program does not know `up`. So this step changes the user, sets the signal, checks that the parent has
 * not died before that, and executes the program.
 *
 *     trainyard exec-child PARENT-PID SIGNAL UID GID PROGRAM [ARGUMENT]...
 *
 * UID and GID of -1 change nothing. On failure it prints one sentence and exits with 127. */
#ifndef CLI_UP_EXEC_CHILD_H
#define CLI_UP_EXEC_CHILD_H

#define EXEC_CHILD_COMMAND "exec-child"

/* argv without "trainyard exec-child". Returns only on failure. */
int exec_child_main(int argc, char **argv);

#endif
