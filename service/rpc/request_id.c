#include "service/rpc/request_id.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { UUID_CHARACTERS = 36 };

static bool is_uuid(const char *text) {
    if (strlen(text) != UUID_CHARACTERS)
        return false;
    for (int i = 0; i < UUID_CHARACTERS; i++) {
        const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        if (hyphen ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return false;
    }
    return true;
}

status_t request_id_read(const char *given, char ret[REQUEST_ID_BYTES], struct err *e) {
    if (*given && !is_uuid(given))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "request_id: '%.60s' is not a UUID, such as 3b241101-e2bb-4255-8caf-4136c566a962", given);
    size_t i = 0;
    for (; given[i]; i++)
        ret[i] = (char)tolower((unsigned char)given[i]);
    ret[i] = '\0';
    return ST_OK;
}

status_t request_id_make(char ret[REQUEST_ID_BYTES], struct err *e) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "random bytes for a request id");
    snprintf(ret, REQUEST_ID_BYTES, "unnamed-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return ST_OK;
}
