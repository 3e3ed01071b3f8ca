/* The commands of trainyard-train. Each reads its own options and returns an exit code: 0 done, 1 failed, 2 bad usage
 * or spec, 3 stopped. argv[0] is the command's name. --help and --version are main's. */
#ifndef EXECUTOR_WORKER_COMMANDS_H
#define EXECUTOR_WORKER_COMMANDS_H

#include <stdbool.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_STOPPED = 3 };

int train_command(int argc, char **argv);    /* SPEC [options] */
int sample_command(int argc, char **argv);   /* CHECKPOINT [options] */
int plan_command(int argc, char **argv);     /* SPEC [options] */
int tokenize_command(int argc, char **argv); /* TEXT... --tokenizer FILE --out FILE [options] */
int export_command(int argc, char **argv);   /* CHECKPOINT --huggingface DIR [--average] */

/* A whole number from min to max; false for any other text. */
bool command_number(const char *text, long long min, long long max, long long *ret);
/* Prints that the option does not take this value. Returns EXIT_USAGE. */
int command_wrong_value(const char *value);

#endif
