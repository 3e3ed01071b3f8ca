#include "cli/user_name.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

void user_name(char ret[USER_NAME_BYTES]) {
    const struct passwd *user = getpwuid(geteuid());
    if (user)
        snprintf(ret, USER_NAME_BYTES, "%s", user->pw_name);
    else
        snprintf(ret, USER_NAME_BYTES, "%u", (unsigned)geteuid());
}
