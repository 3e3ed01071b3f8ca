/* A namespace of users for the container of a process without privileges. Private to this folder.
 *
 * Who writes the numbers of a namespace must be dumpable, because its files in /proc belong to root otherwise; and the
 * memory of a dumpable process can be read by others of its user. So a helper writes them: a program that is executed
 * anew, with nothing of this process's memory. It sends the namespace, which this process's child then enters, and
 * ends. */
#ifndef EXECUTOR_CONTAINER_USERS_H
#define EXECUTOR_CONTAINER_USERS_H

#include "base/status.h"

/* helper: as in container_options. In the namespace the effective user and `group` have their own numbers, and no other
 * exists. *ret: its file, for setns. *ret_why: errno of the step that the kernel has refused in the helper; then *ret
 * is -1. */
MUST_CHECK status_t users_open(int helper, unsigned group, int *ret, int *ret_why, struct err *e);

#endif
