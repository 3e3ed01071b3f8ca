#include "cli/colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GREEN  "\033[32m"
#define RED    "\033[31m"
#define YELLOW "\033[33m"
#define BLUE   "\033[34m"

bool colour_wanted(int fd) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

const char *colour_of_state(const char *state) {
    static const struct {
        const char *state, *colour;
    } colours[] = {
        { "SUCCEEDED", GREEN }, { "COMMITTED", GREEN }, { "ATTACHED", GREEN },    { "FAILED", RED },
        { "LOST", RED },        { "CORRUPT", RED },     { "MISSING", RED },       { "RUNNING", BLUE },
        { "STARTING", BLUE },   { "WRITING", BLUE },    { "RESTARTING", YELLOW }, { "PREEMPTING", YELLOW },
        { "PAUSING", YELLOW },  { "PAUSED", YELLOW },   { "CANCELLING", YELLOW }, { "DRAINING", YELLOW },
        { "DRAINED", YELLOW },  { "LEAVING", YELLOW },  { "DISCONNECTED", RED },
    };
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (strcmp(colours[i].state, state) == 0)
            return colours[i].colour;
    return "";
}
