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
    "onnection refused", /* skopeo */
    "no such host",
    "i/o timeout",
    "TLS handshake",
    "x509:",
    "unauthorized",
    "authentication required",
    "denied",
    "toomanyrequests",
    "dns error",
    "No space left on device",
    "Disk quota exceeded",
    "Input/output error",
    "Cannot allocate memory",
    "Too many open files",
    "MemoryError",
};

/* Before a refusal of our own steps. */
#define OWN "trainyard: "

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
    OWN,
    "manifest unknown", /* skopeo */
    "name unknown",
    "repository name not known",
    "invalid reference format",
    "igest did not match",
    "File system corruption detected", /* unsquashfs */
};

static bool has_one(const char *line, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strstr(line, texts[i]))
            return true;
    return false;
}

/* skopeo: time="..." level=fatal msg="what docker://NAME: why". The user knows the name. */
static bool skopeo_error_take(struct build_failure *f, const char *line) {
    static const char LEVEL[] = " level=fatal msg=\"";
    const char *at = strncmp(line, "time=", 5) == 0 ? strstr(line, LEVEL) : NULL;
    if (!at)
        return false;
    at += sizeof LEVEL - 1;
    const char *name = strstr(at, "docker://"), *why = name ? strstr(name, ": ") : NULL;
    size_t n = 0;
    for (at = why ? why + 2 : at; *at && *at != '"' && n < sizeof f->error - 1; at++)
        if (*at != '\\')
            f->error[n++] = *at;
        else if (at[1])
            f->error[n++] = *++at;
    f->error[n] = '\0';
    return true;
}

void build_failure_feed(struct build_failure *f, const char *line) {
    static const char *const begins[] = { "ERROR: ",   "FATAL ERROR: ", "error: ",
                                          "  error: ", "  \xc3\x97 ",   "  \xe2\x95\xb0\xe2\x94\x80\xe2\x96\xb6 " };
    if (!*line)
        return;
    snprintf(f->last, sizeof f->last, "%s", line);
    f->of_host |= has_one(line, host_texts, sizeof host_texts / sizeof *host_texts);
    f->of_spec |= has_one(line, spec_texts, sizeof spec_texts / sizeof *spec_texts);
    if (skopeo_error_take(f, line))
        return;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0) {
            const char *text = line + strlen(begins[i]);
            const size_t own = sizeof OWN - 1;
            snprintf(f->error, sizeof f->error, "%s", strncmp(text, OWN, own) == 0 ? text + own : text);
        }
}

bool build_failure_refused(const struct build_failure *f) { return f->of_spec && !f->of_host; }
