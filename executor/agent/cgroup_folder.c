/* To kill the processes of a group, forks are forbidden first (pids.max), since a program may fork faster than its
 * processes are listed. cgroup v2 kills them in one step (cgroup.kill, Linux 5.14); elsewhere each listed process gets
 * SIGKILL. The kernel removes a group only when all of its processes have ended and no group is below it. */
#include "executor/agent/cgroup_folder.h"

#include "base/cleanup.h"
#include "executor/agent/cgroup_places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_PATH_BYTES = CGROUP_PATH_BYTES + 256, DEPTH_MAX = 16 };

static void path_of(const char *folder, const char *file, char ret[FILE_PATH_BYTES]) {
    snprintf(ret, FILE_PATH_BYTES, "%.*s/%.250s", CGROUP_PATH_BYTES, folder, file);
}

status_t cgroup_folder_write(const char *folder, const char *file, const char *text, struct err *e) {
    char path[FILE_PATH_BYTES];
    path_of(folder, file, path);
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return err_errno(e, "write '%s' to '%s'", text, path);
    return ST_OK;
}

status_t cgroup_folder_write_number(const char *folder, const char *file, int64_t number, struct err *e) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    return cgroup_folder_write(folder, file, text, e);
}

bool cgroup_folder_has(const char *folder, const char *file) {
    char path[FILE_PATH_BYTES];
    path_of(folder, file, path);
    return access(path, F_OK) == 0;
}

int64_t cgroup_folder_number(const char *folder, const char *file, const char *key) {
    char path[FILE_PATH_BYTES], line[256];
    const size_t n = key ? strlen(key) : 0;
    long long number;
    path_of(folder, file, path);
    CLEANUP(fclosep) FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (key && (strncmp(line, key, n) != 0 || line[n] != ' '))
            continue;
        return sscanf(line + n, "%lld", &number) == 1 ? number : -1;
    }
    return -1;
}

static void processes_kill(const char *folder) {
    char path[FILE_PATH_BYTES];
    path_of(folder, "cgroup.procs", path);
    CLEANUP(fclosep) FILE *f = fopen(path, "re");
    for (int pid; f && fscanf(f, "%d", &pid) == 1;)
        if (pid > 0 && pid != getpid()) /* 0: of another pid namespace */
            kill(pid, SIGKILL);
}

/* Calls `each` for the groups below a folder. */
static bool below_all(const char *folder, int depth, bool (*each)(const char *folder, int depth)) {
    DIR *d = depth < DEPTH_MAX ? opendir(folder) : NULL;
    bool all = true;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[FILE_PATH_BYTES];
        struct stat st;
        path_of(folder, entry->d_name, path);
        if (*entry->d_name != '.' && strlen(path) < CGROUP_PATH_BYTES && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            all &= each(path, depth + 1);
    }
    if (d)
        closedir(d);
    return all;
}

static bool kill_from(const char *folder, int depth) {
    below_all(folder, depth, kill_from);
    status_ignore(cgroup_folder_write(folder, "pids.max", "0", NULL));
    if (cgroup_folder_write(folder, "cgroup.kill", "1", NULL) != ST_OK)
        processes_kill(folder);
    return true;
}

/* The kernel calls a group busy if it has processes or groups. If it refuses for another reason, as on a read-only file
 * system, where it does not even say that the group is missing, no wait helps. */
static bool remove_from(const char *folder, int depth) {
    below_all(folder, depth, remove_from);
    return rmdir(folder) == 0 || (errno != EBUSY && errno != ENOTEMPTY);
}

void cgroup_folder_kill(const char *folder) { kill_from(folder, 0); }

bool cgroup_folder_remove(const char *folder) {
    if (remove_from(folder, 0))
        return true;
    kill_from(folder, 0);
    return remove_from(folder, 0);
}

status_t cgroup_folder_make(const char *folder, struct err *e) {
    if (mkdir(folder, 0755) == 0)
        return ST_OK;
    if (errno == EEXIST && cgroup_folder_remove(folder) && mkdir(folder, 0755) == 0)
        return ST_OK;
    return err_errno(e, "make the control group '%s'", folder);
}
