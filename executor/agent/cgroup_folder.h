/* One control group: a folder of cgroup v1 or v2, its files and its processes. Nothing here waits. */
#ifndef EXECUTOR_AGENT_CGROUP_FOLDER_H
#define EXECUTOR_AGENT_CGROUP_FOLDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Writes a text to a file of the group in one call, as the kernel wants it. NOT_FOUND: there is no such file. */
MUST_CHECK status_t cgroup_folder_write(const char *folder, const char *file, const char *text, struct err *e);
MUST_CHECK status_t cgroup_folder_write_number(const char *folder, const char *file, int64_t number, struct err *e);
bool cgroup_folder_has(const char *folder, const char *file);

/* The number after `key` in a file with lines "key number", or the first number of the file if key is NULL. -1: there
 * is no such file, line or number ("max"). */
int64_t cgroup_folder_number(const char *folder, const char *file, const char *key);

/* A missing folder is made; an existing one is emptied and made again. */
MUST_CHECK status_t cgroup_folder_make(const char *folder, struct err *e);

/* SIGKILL to every process in the group and in the groups below it. They end a moment later. */
void cgroup_folder_kill(const char *folder);

/* Kills, and removes the group with all groups below it. False: a process has not ended yet; call it again. True: it is
 * gone, or may not be removed. */
bool cgroup_folder_remove(const char *folder);

#endif
