/* For the peer of bench/train.py. On a processor of another maker, MKL computes with AVX2 although the processor has
 * AVX-512, because this check of MKL asks for the maker. Preloaded, this library answers it for PyTorch's MKL. */
int mkl_serv_intel_cpu_true(void);
int bench_mkl_intel_calls(void);

static int calls;

int mkl_serv_intel_cpu_true(void) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return 1;
}

/* How often MKL has asked: shows that the override is in effect. */
int bench_mkl_intel_calls(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }
