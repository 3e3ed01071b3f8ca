#include "executor/sandbox/landlock_rights.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(n) (UINT64_C(1) << (n))

/* As in <linux/landlock.h> of Linux 6.15. */
#define FS_EXECUTE     BIT(0)
#define FS_WRITE_FILE  BIT(1)
#define FS_READ_FILE   BIT(2)
#define FS_READ_DIR    BIT(3)
#define FS_REMOVE_DIR  BIT(4)
#define FS_REMOVE_FILE BIT(5)
#define FS_MAKE_CHAR   BIT(6)
#define FS_MAKE_DIR    BIT(7)
#define FS_MAKE_REG    BIT(8)
#define FS_MAKE_SOCK   BIT(9)
#define FS_MAKE_FIFO   BIT(10)
#define FS_MAKE_BLOCK  BIT(11)
#define FS_MAKE_SYM    BIT(12)
#define FS_REFER       BIT(13)
#define FS_TRUNCATE    BIT(14)
#define FS_IOCTL_DEV   BIT(15)

#define SCOPE_ABSTRACT BIT(0)
#define SCOPE_SIGNAL   BIT(1)

enum { CREATE_RULESET_VERSION = 1 };

static uint64_t handled_of(int abi) {
    uint64_t all = FS_MAKE_SYM | (FS_MAKE_SYM - 1); /* bits 0 to 12 */
    if (abi < LANDLOCK_ABI_FILES)
        return 0;
    if (abi >= LANDLOCK_ABI_REFER)
        all |= FS_REFER;
    if (abi >= LANDLOCK_ABI_TRUNCATE)
        all |= FS_TRUNCATE;
    if (abi >= LANDLOCK_ABI_IOCTL)
        all |= FS_IOCTL_DEV;
    return all;
}

struct landlock_rights landlock_rights_of(int abi) {
    const uint64_t handled = handled_of(abi), read = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
    return (struct landlock_rights){
        .handled = handled,
        .list = handled & FS_READ_DIR,
        .open = handled & FS_READ_FILE,
        .read = handled & read,
        .write = handled & ~(FS_MAKE_CHAR | FS_MAKE_BLOCK | FS_IOCTL_DEV),
        .device = handled & (FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV),
        .ioctl = handled & FS_IOCTL_DEV,
        .file = handled & (FS_EXECUTE | FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV),
        .scope_signals = abi >= LANDLOCK_ABI_SCOPES ? SCOPE_SIGNAL : 0,
        .scope_abstract = abi >= LANDLOCK_ABI_SCOPES ? SCOPE_ABSTRACT : 0,
    };
}

int landlock_abi(void) {
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}
