/* Colours of states on a terminal. */
#ifndef CLI_COLOUR_H
#define CLI_COLOUR_H

#include <stdbool.h>

/* Whether fd is a terminal that shows colours: not with NO_COLOR set to any text, and not with TERM=dumb. */
bool colour_wanted(int fd);

/* The escape sequence that begins the colour of a state such as "RUNNING"; "" for other words. */
const char *colour_of_state(const char *state);
#define COLOUR_END "\033[0m"

#endif
