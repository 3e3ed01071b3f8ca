#include "executor/worker/host_peak.h"

#include "engine/run/engine_config.h"
#include "engine/run/job_model.h"

#include <stdio.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

/* "Intel(R) Xeon(R) Processor": the brand string of three CPUID leaves. */
static void processor_name(char ret[49]) {
    snprintf(ret, 49, "unknown processor");
#ifdef __x86_64__
    unsigned words[12];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]))
            return;
    memcpy(ret, words, sizeof words);
    ret[48] = '\0';
#endif
}

status_t host_peak_key(const struct engine_config *c, char ret[HOST_PEAK_KEY_BYTES], struct err *e) {
    CLEANUP(kernels_closep) struct kernels *k = NULL;
    char processor[49], library[KERNELS_NUMERICS_ID_BYTES];
    TRY(job_model_kernels(c, NULL, &k, e));
    processor_name(processor);
    kernels_numerics_id(k, library, sizeof library);
    char *end = strstr(library, ", gcc");
    end = end ? end : strstr(library, ", clang");
    if (end)
        *end = '\0'; /* the compiler and this build make no other products */
    snprintf(ret, HOST_PEAK_KEY_BYTES, "%s, %s, %d thread%s", processor, library, c->threads,
             c->threads == 1 ? "" : "s");
    return ST_OK;
}

double host_peak_find(Trainyard__V1__HostPeak *const *peaks, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(peaks[i]->key, key) == 0)
            return peaks[i]->flops;
    return 0;
}
