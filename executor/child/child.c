#include "executor/child/child.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The pid that was given; 0 after a usage, -1 for bad arguments. */
static long arguments_parse(const struct child *child, int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(child->usage, stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s " TRAINYARD_VERSION "\n", child->name);
        return 0;
    }
    char *end = NULL;
    const long pid = argc == 3 && strcmp(argv[1], "--agent-pid") == 0 ? strtol(argv[2], &end, 10) : -1;
    if (pid <= 0 || *end) {
        fputs(child->usage, stderr);
        return -1;
    }
    return pid;
}

bool child_begin(const struct child *child, int argc, char **argv, int *ret_status) {
    const long agent = arguments_parse(child, argc, argv);
    *ret_status = agent == 0 ? 0 : agent < 0 ? 2 : child->orphaned;
    if (agent <= 0 || getppid() != agent)
        return false;
    if (fcntl(CHILD_COMMANDS_FD, F_SETFD, FD_CLOEXEC) < 0 || fcntl(CHILD_RECORDS_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "%s: descriptors %d and %d are not open; trainyard-executor starts this program\n", child->name,
                CHILD_COMMANDS_FD, CHILD_RECORDS_FD);
        *ret_status = 2;
        return false;
    }
    return true;
}

status_t child_command_wait(struct frame_reader *reader, Trainyard__V1__WorkerCommand **ret, struct err *e) {
    ProtobufCMessage *message = NULL;
    TRY(frame_reader_wait(reader, CHILD_COMMANDS_FD, &trainyard__v1__worker_command__descriptor, &message, e));
    if (!message)
        return err_set(e, ST_UNAVAILABLE, "the agent closed the pipe before it sent a command");
    *ret = (Trainyard__V1__WorkerCommand *)message;
    return ST_OK;
}
