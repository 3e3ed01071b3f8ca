/* What the output of a build says about its failure. */
#ifndef EXECUTOR_ENVIRONMENT_FAILURE_H
#define EXECUTOR_ENVIRONMENT_FAILURE_H

#include <stdbool.h>

enum { BUILD_SENTENCE_BYTES = 400 };

/* Zeroed: no line was read. */
struct build_failure {
    char error[BUILD_SENTENCE_BYTES]; /* the installer's last error; empty: none */
    char last[BUILD_SENTENCE_BYTES];  /* the last line */
    bool of_host;                     /* the network, the disk or the memory failed */
    bool of_spec;                     /* the requirements cannot be satisfied */
};

/* A line of output, which is printable. */
void build_failure_feed(struct build_failure *f, const char *line);

/* No other host can do better: the requirements are wrong, and nothing else explains the failure. */
bool build_failure_refused(const struct build_failure *f);

#endif
