#include "executor/sandbox/mode.h"

#include <stddef.h>
#include <string.h>

int sandbox_mode_parse(const char *text) {
    static const char *const names[] = { "off", "available", "require" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}
