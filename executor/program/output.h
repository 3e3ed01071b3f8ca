/* stdout and stderr of a rank's command. Two pipes of this process take them, and a thread passes the bytes on,
 * unchanged but for the values of secrets, to stdout and stderr of this process: the agent's pipes. The last bytes of
 * stderr are kept, since they say why the command failed, and the time of the last byte, since a program that writes is
 * alive.
 *
 *     TRY(output_open(redactor, &output, e));
 *     ... fork; in the child: dup2(output_command_end(output, i), i) for i of 1, 2 ...
 *     output_started(output);                 // closes the command's ends here
 *     output_end(output, 500);                // the command has ended: passes on what is left
 *     n = output_tail(output, tail);          // at any time
 *     output_close(output);
 *
 * The command waits if the agent does not read, as it would without this thread. One thread calls these functions. */
#ifndef EXECUTOR_PROGRAM_OUTPUT_H
#define EXECUTOR_PROGRAM_OUTPUT_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/program/redact.h"

#include <stddef.h>
#include <stdint.h>

enum { OUTPUT_TAIL_BYTES = 64 << 10, OUTPUT_LINE_BYTES = 512 };

struct output;

/* redactor: replaces values in all that is passed on or kept; outlives the result. An empty one replaces nothing. */
MUST_CHECK status_t output_open(const struct redactor *redactor, struct output **ret, struct err *e);

/* stream: 1 or 2. -1 after output_started. */
int output_command_end(const struct output *o, int stream);
void output_started(struct output *o);

/* The monotonic time of the last bytes of a stream, 1 or 2, in ms; 0: there were none. */
int64_t output_last_ms(const struct output *o, int stream);

/* From now on the lines of stderr go to line(), as texts of printable UTF-8 of less than OUTPUT_LINE_BYTES, and not to
 * stderr of this process. line() is called by the thread of `o`. */
void output_divert(struct output *o, void (*line)(void *ctx, const char *text), void *ctx);

/* Waits until the thread has handled all bytes of stderr that are in its pipe, for timeout_ms at most. */
void output_flush(struct output *o, int timeout_ms);

/* Returns when everything that the command has written was passed on, after timeout_ms at the latest. */
void output_end(struct output *o, int timeout_ms);

/* Copies the last bytes of stderr to ret, which has OUTPUT_TAIL_BYTES. Returns their number. */
size_t output_tail(struct output *o, char *ret);

/* Stops the thread if it still runs. */
struct output *output_close(struct output *o);
CLEANUP_DEFINE(struct output *, output_close)

#endif
