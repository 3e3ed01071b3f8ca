/* What a failed call of libarchive means for an image. */
#ifndef EXECUTOR_IMAGE_ARCHIVE_FAILURE_H
#define EXECUTOR_IMAGE_ARCHIVE_FAILURE_H

#include "base/status.h"

#include <archive.h>

/* what: "the archive of the image". INVALID_ARGUMENT: it is damaged, on any host. Else the status of the errno, with
 * which this host could not read it or write its files. */
MUST_CHECK status_t archive_failure(struct archive *a, const char *what, struct err *e);

#endif
