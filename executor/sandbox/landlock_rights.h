/* What a version (ABI) of Landlock can restrict: a pure function of the ABI's number.
 *
 * A kernel refuses a ruleset with rights that its ABI does not know, so that a ruleset has the rights of the kernel's
 * ABI only. The header of the system that built Trainyard may be older than the kernel; the values are repeated here.
 *
 *     ABI  Linux   adds
 *     1    5.13    files and folders; a rename or a hard link to another folder fails with EXDEV
 *     2    5.19    such renames and links below folders that allow them
 *     3    6.2     truncation
 *     4    6.7     TCP ports, which the sandbox leaves alone
 *     5    6.10    ioctl on devices
 *     6    6.12    signals to processes outside, abstract unix sockets of processes outside
 *     7    6.15    control of the audit log, which the sandbox leaves alone */
#ifndef EXECUTOR_SANDBOX_LANDLOCK_RIGHTS_H
#define EXECUTOR_SANDBOX_LANDLOCK_RIGHTS_H

#include <stdint.h>

enum {
    LANDLOCK_ABI_FILES = 1,
    LANDLOCK_ABI_REFER = 2,
    LANDLOCK_ABI_TRUNCATE = 3,
    LANDLOCK_ABI_IOCTL = 5,
    LANDLOCK_ABI_SCOPES = 6,
};

/* Sets of LANDLOCK_ACCESS_FS_* and LANDLOCK_SCOPE_*; all are 0 for an ABI below 1. */
struct landlock_rights {
    uint64_t handled;        /* all that the ruleset forbids where no rule grants it */
    uint64_t list;           /* the names in a folder */
    uint64_t open;           /* read files, but list no folder */
    uint64_t read;           /* read and execute files, list folders */
    uint64_t write;          /* the same, and make, change, rename and remove files and folders, but no device files */
    uint64_t device;         /* read and write an existing file, with ioctl */
    uint64_t ioctl;          /* ioctl on devices */
    uint64_t file;           /* those of the above that a rule for a single file may have */
    uint64_t scope_signals;  /* signals to processes outside */
    uint64_t scope_abstract; /* abstract unix sockets of processes outside */
};

struct landlock_rights landlock_rights_of(int abi);

/* The kernel's ABI; 0: it has no Landlock, or Landlock is turned off. */
int landlock_abi(void);

#endif
