#include "service/store/metric_repeatable.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

static const char *const words[] = {
    /* times */
    "time", "times", "timestamp", "walltime", "clock", "runtime", "duration", "elapsed", "latency", "eta", "stall",
    "hours", "minutes", "seconds", "second", "secs", "sec", "s", "ms", "us", "ns",
    /* speeds */
    "speed", "throughput", "fps", "tps", "qps", "flops", "gflops", "tflops", "mfu", "hfu", "bandwidth",
    /* the machine */
    "system", "device", "gpu", "cuda", "cpu", "tpu", "memory", "mem", "gib", "mib", "utilization", "util", "power",
    "watts", "disk", "network", "pid", "host"
};

static bool is_listed(const char *word, size_t n) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && strncasecmp(words[i], word, n) == 0)
            return true;
    return false;
}

bool metric_repeatable(const char *name) {
    for (const char *at = name; *at;) {
        size_t n = 0;
        while (isalnum((unsigned char)at[n]))
            n++;
        if (n > 0 && is_listed(at, n))
            return false;
        at += n > 0 ? n : 1;
    }
    return true;
}
