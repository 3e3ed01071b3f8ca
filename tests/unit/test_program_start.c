/* Starts that trainyard-program refuses, as its agent sees them: through its two pipes. */
#include "api/codec/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <trainyard/v1/worker.pb-c.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMMANDS_FD = 3, RECORDS_FD = 4, FREE_FD = 20 };

/* In the child: the read end of commands and the write end of records. */
static void program_exec(int commands, int records) {
    char agent[16];
    snprintf(agent, sizeof agent, "%d", (int)getppid());
    commands = dup2(commands, FREE_FD);
    records = dup2(records, FREE_FD + 1);
    if (dup2(commands, COMMANDS_FD) == COMMANDS_FD && dup2(records, RECORDS_FD) == RECORDS_FD) {
        for (int fd = RECORDS_FD + 1; fd < FREE_FD + 2; fd++)
            close(fd);
        execl(PROGRAM, PROGRAM, "--agent-pid", agent, NULL);
    }
    _exit(99);
}

/* Sends the start, and returns the final report. */
static Trainyard__V1__WorkerRecord *end_after(const Trainyard__V1__WorkerStart *start) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    ProtobufCMessage *record = NULL, *next = NULL;
    struct frame_reader reader;
    int commands[2], records[2], status;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_START;
    command.start = (Trainyard__V1__WorkerStart *)(uintptr_t)start;
    assert_int_equal(pipe(commands), 0);
    assert_int_equal(pipe(records), 0);
    const pid_t pid = fork();
    assert_int_not_equal(pid, -1);
    if (pid == 0)
        program_exec(commands[0], records[1]);
    close(commands[0]);
    close(records[1]);
    assert_int_equal(frame_write(commands[1], &command.base, NULL), ST_OK);
    frame_reader_init(&reader, 1 << 20);
    while (frame_reader_wait(&reader, records[0], &trainyard__v1__worker_record__descriptor, &next, NULL) == ST_OK &&
           next) {
        const bool ends = ((Trainyard__V1__WorkerRecord *)next)->record_case ==
                          TRAINYARD__V1__WORKER_RECORD__RECORD_END;
        if (ends && !record)
            record = next;
        else
            protobuf_c_message_free_unpacked(next, NULL);
    }
    frame_reader_done(&reader);
    close(commands[1]);
    close(records[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_non_null(record);
    return (Trainyard__V1__WorkerRecord *)record;
}

static void a_start_of_an_older_controller_without_the_values_of_its_secrets_is_refused(void **state) {
    (void)state;
    static char *words[] = { (char *)"/bin/true" };
    Trainyard__V1__WorkerStart start = TRAINYARD__V1__WORKER_START__INIT;
    Trainyard__V1__AttemptStart attempt = TRAINYARD__V1__ATTEMPT_START__INIT;
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    Trainyard__V1__ProgramSpec program = TRAINYARD__V1__PROGRAM_SPEC__INIT;
    Trainyard__V1__ProgramSpec__SecretsEntry first = TRAINYARD__V1__PROGRAM_SPEC__SECRETS_ENTRY__INIT, second = first;
    Trainyard__V1__ProgramSpec__SecretsEntry *entries[] = { &first, &second };
    Trainyard__V1__AttemptSecret secret = TRAINYARD__V1__ATTEMPT_SECRET__INIT, *secrets[] = { &secret };
    first.key = (char *)"HAS";
    second.key = (char *)"LACKS";
    first.value = second.value = (char *)"NAME";
    program.command = words;
    program.n_command = 1;
    program.secrets = entries;
    program.n_secrets = 2;
    spec.name = (char *)"secretive";
    spec.program = &program;
    secret.variable = (char *)"HAS";
    secret.value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t) "hunter22", .len = 8 };
    attempt.spec = &spec;
    attempt.world_size = 1;
    attempt.secrets = secrets;
    attempt.n_secrets = 1;
    start.attempt = &attempt;
    Trainyard__V1__WorkerRecord *record = end_after(&start);
    assert_int_equal(record->record_case, TRAINYARD__V1__WORKER_RECORD__RECORD_END);
    assert_int_equal(record->end->cause, TRAINYARD__V1__WORKER_END__CAUSE__NOT_STARTED);
    assert_string_equal(record->end->message,
                        "program.secrets.LACKS: no value came, because the controller is of an older release than this "
                        "program: upgrade all controllers");
    trainyard__v1__worker_record__free_unpacked(record, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_of_an_older_controller_without_the_values_of_its_secrets_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
