/* Records without the values of secrets. */
#ifndef EXECUTOR_PROGRAM_REDACT_RECORD_H
#define EXECUTOR_PROGRAM_REDACT_RECORD_H

#include "executor/program/redact.h"

#include <trainyard/v1/worker.pb-c.h>

/* An emitter_filter (executor/worker/emit.h); redactor: a struct redactor. Replaces values in what a program can have
 * written: names of metrics, notices, log lines, and the sentence of the final report. */
ProtobufCMessage *redact_record(void *redactor, const Trainyard__V1__WorkerRecord *record);

/* A redactor for the secrets of an attempt. */
struct redactor *redactor_of_attempt(const Trainyard__V1__AttemptStart *start);
/* A variable of program.secrets without a value, which a controller of an older release does not send. NULL: none. */
const char *secrets_lacking(const Trainyard__V1__AttemptStart *start);
/* Overwrites the values. */
void secrets_wipe(const Trainyard__V1__AttemptStart *start);

#endif
