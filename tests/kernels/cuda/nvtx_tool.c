/* A tool that receives NVTX ranges, as Nsight Systems does, and records them as text. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <string.h>

static char heard[400];
static int tool_domain;

static void hear(const char *what, const char *name) {
    const size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s%s", what, name);
}

static nvtxDomainHandle_t domain_create(const char *name) {
    hear("domain ", name);
    return (nvtxDomainHandle_t)&tool_domain;
}

static int range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
    hear(domain == (nvtxDomainHandle_t)&tool_domain && range->messageType == NVTX_MESSAGE_TYPE_ASCII ? " push " : " ? ",
         range->message.ascii);
    return 0;
}

static int range_pop(nvtxDomainHandle_t domain) {
    hear(domain == (nvtxDomainHandle_t)&tool_domain ? " pop" : " ?", "");
    return 0;
}

/* The function that NVTX's header looks up in the library that NVTX_INJECTION64_PATH names. */
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
    const NvtxExportTableCallbacks *callbacks = table_of(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned n = 0;
    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n) || n <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)range_push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)range_pop;
    return 1;
}

const char *nvtx_tool_heard(void);
const char *nvtx_tool_heard(void) { return heard; }
