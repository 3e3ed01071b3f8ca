/* The exception that ended a Python program, read from what it printed on stderr.
 *
 *     Traceback (most recent call last):
 *       File "/data/train.py", line 12, in step          the last frame in the user's own code
 *         loss = model(batch)
 *       File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 1, in _call_impl
 *     ValueError: expected 4 columns                     the type and the message
 *
 * Also read are: SyntaxErrors (no header, no function), ExceptionGroups (the group itself), faulthandler's report of a
 * crash, `python -m` of a missing module, and C++'s "terminate called". Lines before "Traceback" on the header's line,
 * such as PyTorch's "[rank0]: ", must precede each line of the block; other lines are ignored, since threads and
 * processes may print at the same time. The user's own code is every file outside of Python's own folders and of
 * site-packages.
 *
 * Pure. The text is bytes of the program: any bytes give an answer, in time and memory that are linear in n. */
#ifndef EXECUTOR_PROGRAM_TRACEBACK_H
#define EXECUTOR_PROGRAM_TRACEBACK_H

#include "executor/program/redact.h"

#include <stdbool.h>
#include <stddef.h>

enum exception_kind {
    EXCEPTION_OTHER,
    EXCEPTION_MEMORY, /* memory of the host or of a GPU was not enough */
    EXCEPTION_CODE,   /* a module is missing, or a file is no Python */
    EXCEPTION_PEER,   /* the consequence of the end of another process: a closed connection, a collective's timeout */
};

/* Texts are printable UTF-8 and cut to the size of their array. */
struct exception {
    enum exception_kind kind;
    char type[96];     /* "torch.OutOfMemoryError" */
    char message[240]; /* its first line; may be empty */
    char file[240];    /* the last frame in the user's own code; empty if there is none. A long path has its end */
    char function[64]; /* empty: the module itself */
    long line;
    bool at_end; /* the text has nothing after it but a few lines of its message */
};

/* The last exception of the text. Of a chain ("During handling of the above exception ...") it is the last one that is
 * not EXCEPTION_PEER, if there is one. many: several processes wrote the text; this then holds for all exceptions of
 * the text. The report of torchrun about a failed process is skipped. False: the text has no exception. */
bool traceback_find(const char *text, size_t n, bool many, struct exception *ret);

/* The exception in the text of a file that torch.distributed.elastic has written for a process (@record), JSON:
 * {"message": {"message": "ValueError: ...", "extraInfo": {"py_callstack": "Traceback ..."}}}. Secrets are replaced in
 * its texts as JSON decodes them, before these are cut. */
bool traceback_error_file(const char *text, size_t n, const struct redactor *redactor, struct exception *ret);

/* A sentence of at most `bytes`: "ValueError: expected 4 columns, at /data/train.py:12 in step". bytes >= 64. */
void traceback_sentence(const struct exception *exception, char *ret, size_t bytes);

#endif
