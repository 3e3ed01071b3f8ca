#include "executor/image/archive_failure.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool is_of_host(int number) {
    return number == EIO || number == ENOMEM || number == ENOSPC || number == EDQUOT || number == EACCES;
}

status_t archive_failure(struct archive *a, const char *what, struct err *e) {
    const char *why = archive_error_string(a);
    const int number = archive_errno(a);
    if (is_of_host(number))
        return err_set(e, status_of_errno(number), "%s cannot be unpacked: %s", what, strerror(number));
    return err_set(e, ST_INVALID_ARGUMENT, "%s cannot be read: %s", what, why ? why : "it is damaged");
}
