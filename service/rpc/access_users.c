#include "service/rpc/access_users.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/access.pb-c.h>
#include <unistd.h>

enum { PASSWD_BYTES = 16 << 10, NAME_BYTES = 64 };

const struct access_user *access_users_find(const struct access_users *a, uid_t uid) {
    for (size_t i = 0; i < a->n; i++)
        if (a->users[i].uid == uid)
            return &a->users[i];
    return NULL;
}

static void add(struct access_users *a, uid_t uid, int role) {
    struct passwd entry, *found = NULL;
    char buffer[PASSWD_BYTES];
    struct access_user *u = &a->users[a->n++];
    *u = (struct access_user){ .uid = uid, .role = role };
    if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
        snprintf(u->name, sizeof u->name, "%s", found->pw_name);
    else
        snprintf(u->name, sizeof u->name, "uid:%u", (unsigned)uid);
}

void access_users_init(struct access_users *ret) {
    ret->n = 0;
    add(ret, geteuid(), ACCESS_EVERY_ROLE);
    if (geteuid() != 0)
        add(ret, 0, ACCESS_EVERY_ROLE);
}

/* A name of the system, or a number. */
static bool find_uid(const char *name, uid_t *ret) {
    struct passwd entry, *found = NULL;
    char buffer[PASSWD_BYTES], *end;
    if (getpwnam_r(name, &entry, buffer, sizeof buffer, &found) == 0 && found) {
        *ret = found->pw_uid;
        return true;
    }
    errno = 0;
    const unsigned long long number = strtoull(name, &end, 10);
    *ret = (uid_t)number;
    return isdigit((unsigned char)name[0]) && !*end && !errno && number < (uid_t)-1;
}

status_t access_users_add(struct access_users *a, const char *text, struct err *e) {
    const char *equals = strchr(text, '=');
    char name[NAME_BYTES];
    uid_t uid;
    const ProtobufCEnumValue *role = equals ? protobuf_c_enum_descriptor_get_value_by_name(
                                                  &trainyard__v1__role__descriptor, equals + 1)
                                            : NULL;
    if (!role || role->value == TRAINYARD__V1__ROLE__ROLE_UNSPECIFIED || role->value == TRAINYARD__V1__ROLE__JOIN)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.100s' is not USER=ROLE with the role VIEWER, USER, ADMIN or EXECUTOR", text);
    const int n = snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    if (n >= (int)sizeof name || !find_uid(name, &uid))
        return err_set(e, ST_INVALID_ARGUMENT, "this machine has no user '%.*s'", n < 100 ? n : 100, text);
    const struct access_user *known = access_users_find(a, uid);
    if (known)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.100s': the user %s has %s already", text, known->name,
                       known->role == ACCESS_EVERY_ROLE ? "every role" : "a role");
    if (a->n == ACCESS_USERS_MAX)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "more than %d users", ACCESS_USERS_MAX - 2);
    add(a, uid, role->value);
    return ST_OK;
}
