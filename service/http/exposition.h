/* Prometheus' text format 0.0.4, written into one bounded buffer.
 *
 *     struct exposition x = { .text = &text, .e = e };
 *     exposition_family(&x, "trainyard_jobs", "gauge", "Jobs by state.");
 *     exposition_value(&x, "trainyard_jobs", "state=\"queued\"", 7);
 *     return x.st;
 *
 * All samples of a family follow its head. After an error nothing more is written, and `st` and `e` keep the error. */
#ifndef SERVICE_HTTP_EXPOSITION_H
#define SERVICE_HTTP_EXPOSITION_H

#include "base/bytes.h"
#include "base/histogram.h"
#include "base/status.h"

struct exposition {
    struct bytes *text;
    struct err *e;
    status_t st;
    size_t object_bytes; /* samples of single objects are left out once the text has this size */
    int64_t left_out;    /* their number */
};

void exposition_family(struct exposition *x, const char *name, const char *type, const char *help);
/* labels: as between the braces; "": none. */
void exposition_value(struct exposition *x, const char *name, const char *labels, double value);
/* The same for a sample of a single object, such as a job. Left out if value is NAN, or if the text is too long. */
void exposition_object(struct exposition *x, const char *name, const char *labels, double value);
/* The samples of a histogram whose family is `name`. */
void exposition_histogram(struct exposition *x, const char *name, const char *labels, const struct histogram *h);
/* A family with one sample. */
void exposition_single(struct exposition *x, const char *name, const char *type, const char *help, double value);
void exposition_single_histogram(struct exposition *x, const char *name, const char *help, const struct histogram *h);

/* Copies a label's value with its escapes, cut to what fits. */
void exposition_escape(const char *value, char *ret, size_t bytes);

#endif
