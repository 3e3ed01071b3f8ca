/* pip and uv have no exit status for this, so their sentences decide. pip ends with "No matching distribution found"
 * also when it cannot reach the index; then it has warned about the network before. An index that answers 403 or 503 is
 * not mentioned at all: pip has found no version, as if the name did not exist. */
#include "executor/environment/failure.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const host_texts[] = {
    "(from versions: none)",
    "Failed to establish a new connection",
    "NewConnectionError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Connection refused",
    "Connection reset",
    "Connection aborted",
    "Connection broken",
    "connection broken by",
    "Network is unreachable",
    "No route to host",
    "ReadTimeoutError",
    "ConnectTimeoutError",
    "Max retries exceeded",
    "timed out",
    "ProxyError",
    "SSLError",
    "certificate verify failed",
    "IncompleteRead",
    "503 Server Error",
    "502 Server Error",
    "500 Server Error",
    "504 Server Error",
    "429 Client Error",
    "error sending request for url",
    "dns error",
    "No space left on device",
    "Disk quota exceeded",
    "Input/output error",
    "Cannot allocate memory",
    "Too many open files",
    "MemoryError",
};

static const char *const spec_texts[] = {
    "No matching distribution found",
    "ResolutionImpossible",
    "conflicting dependencies",
    "DO NOT MATCH THE HASHES",
    "In --require-hashes mode",
    "Hashes are required",
    "Invalid requirement",
    "Invalid constraint",
    "no such option",
    "Could not open requirements file",
    "is not a valid editable requirement",
    "is not a supported wheel on this platform",
    "requires a different Python",
    "is not installable",
    "Invalid URL",
    "No solution found when resolving",
    "Hash mismatch",
    "needs to be updated", /* uv.lock */
    "Failed to parse",
    "TOMLDecodeError",
    "trainyard: ",
};

static bool has_one(const char *line, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strstr(line, texts[i]))
            return true;
    return false;
}

void build_failure_feed(struct build_failure *f, const char *line) {
    static const char *const begins[] = { "ERROR: ", "error: ", "  error: ", "  \xc3\x97 ", "  ╰─▶ " };
    if (!*line)
        return;
    snprintf(f->last, sizeof f->last, "%s", line);
    f->of_host |= has_one(line, host_texts, sizeof host_texts / sizeof *host_texts);
    f->of_spec |= has_one(line, spec_texts, sizeof spec_texts / sizeof *spec_texts);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0)
            snprintf(f->error, sizeof f->error, "%s", line + strlen(begins[i]));
}

bool build_failure_refused(const struct build_failure *f) { return f->of_spec && !f->of_host; }
