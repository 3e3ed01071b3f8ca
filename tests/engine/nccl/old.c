/* Stands for an NCCL of 2.14, which has what is called and does not do all of it. */
int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    *version = 21400;
    return 0;
}

#define FUNCTION(f)                                                                                                    \
    int f(void);                                                                                                       \
    int f(void) { return 0; }
FUNCTION(ncclGetUniqueId)
FUNCTION(ncclGetErrorString)
FUNCTION(ncclGetLastError)
FUNCTION(ncclCommInitRankConfig)
FUNCTION(ncclCommSplit)
FUNCTION(ncclCommGetAsyncError)
FUNCTION(ncclCommFinalize)
FUNCTION(ncclCommDestroy)
FUNCTION(ncclCommAbort)
FUNCTION(ncclGroupStart)
FUNCTION(ncclGroupEnd)
FUNCTION(ncclSend)
FUNCTION(ncclRecv)
FUNCTION(ncclReduce)
FUNCTION(ncclAllReduce)
FUNCTION(ncclBroadcast)
