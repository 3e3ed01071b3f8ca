/* A line of mountinfo names a mount point, the folder of the file system that is mounted there, and the type. A line of
 * /proc/self/cgroup, `N:CONTROLLERS:PATH`, names this process's group in one hierarchy; cgroup v2 has N = 0 and no
 * controllers. In a container the mounted folder is not the root of the hierarchy, and the path begins with it. */
#include "executor/agent/cgroup_places.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

static const char *const names[CGROUP_CONTROLLERS] = { "memory", "pids", "cpu" };

const char *cgroup_controller_name(enum cgroup_controller c) { return names[c]; }

/* Whether `word` is an item of a list. */
static bool list_has(const char *list, const char *separators, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; *at; at += strspn(at, separators)) {
        const size_t len = strcspn(at, separators);
        if (len == n && strncmp(at, word, n) == 0)
            return true;
        at += len;
    }
    return false;
}

/* The path of this process's group in the hierarchy with this controller; NULL: cgroup v2. */
static bool path_find(const char *membership, const char *controller, char *ret, size_t bytes) {
    CLEANUP(fclosep) FILE *f = fopen(membership, "re");
    char line[LINE_BYTES];
    while (f && fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (controller ? list_has(list + 1, ",", controller) : strncmp(line, "0:", 2) == 0 && !list[1])
            return (size_t)snprintf(ret, bytes, "%s", path) < bytes;
    }
    return false;
}

struct mount {
    char root[CGROUP_PATH_BYTES], point[CGROUP_PATH_BYTES];
};

static bool mount_parse(char *line, const char *controller, struct mount *ret) {
    char type[32], options[512];
    char *rest = strstr(line, " - ");
    if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
        sscanf(line, "%*s %*s %*s %1023s %1023s", ret->root, ret->point) != 2)
        return false;
    return controller ? strcmp(type, "cgroup") == 0 && list_has(options, ",", controller)
                      : strcmp(type, "cgroup2") == 0;
}

/* A later line may be a mount over an earlier one. */
static bool mount_find(const char *mountinfo, const char *controller, struct mount *ret) {
    CLEANUP(fclosep) FILE *f = fopen(mountinfo, "re");
    char line[LINE_BYTES];
    bool found = false;
    while (f && fgets(line, sizeof line, f)) {
        struct mount m;
        if (mount_parse(line, controller, &m)) {
            *ret = m;
            found = true;
        }
    }
    return found;
}

static bool place_find(const char *mountinfo, const char *membership, const char *controller,
                       struct cgroup_place *ret) {
    struct mount m;
    char path[CGROUP_PATH_BYTES];
    if (!mount_find(mountinfo, controller, &m) || !path_find(membership, controller, path, sizeof path))
        return false;
    const size_t n = strcmp(m.root, "/") == 0 ? 0 : strlen(m.root);
    if (strncmp(path, m.root, n) != 0 || (path[n] && path[n] != '/'))
        return false; /* the group is above the mounted folder */
    const char *below = strcmp(path + n, "/") == 0 ? "" : path + n;
    ret->unified = !controller;
    ret->n_mount = strlen(m.point);
    return (size_t)snprintf(ret->own, sizeof ret->own, "%s%s", m.point, below) < sizeof ret->own;
}

static bool group_has(const struct cgroup_place *place, const char *controller) {
    char path[CGROUP_PATH_BYTES + 32], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/cgroup.controllers", place->own);
    CLEANUP(fclosep) FILE *f = fopen(path, "re");
    return f && fgets(line, sizeof line, f) && list_has(line, " \n", controller);
}

void cgroup_places_find(const char *mountinfo, const char *membership, struct cgroup_place ret[CGROUP_CONTROLLERS]) {
    struct cgroup_place unified = { .own = "" };
    const bool found = place_find(mountinfo, membership, NULL, &unified);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        ret[i] = (struct cgroup_place){ .own = "" };
        if (found && group_has(&unified, names[i]))
            ret[i] = unified;
        else if (!place_find(mountinfo, membership, names[i], &ret[i]))
            *ret[i].own = '\0';
    }
}
