/* Whether a file is a whole zip archive, as torch.save and Lightning write them. A zip's directory and end record are
 * its last bytes, so that a writer that was killed leaves a file without them. */
#ifndef EXECUTOR_PROGRAM_ZIP_END_H
#define EXECUTOR_PROGRAM_ZIP_END_H

#include <stdbool.h>
#include <stdint.h>

/* Reads at most 130 bytes. False also if the file cannot be read. */
bool zip_is_whole(int fd, int64_t bytes);

#endif
