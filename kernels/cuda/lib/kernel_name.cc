#include "kernels/cuda/lib/kernel_name.h"

#include <cstdlib>
#include <cstring>
#include <cxxabi.h>

namespace {

/* A limit, because a short symbol can stand for a long name: parts of a symbol may refer to each other. */
constexpr size_t MAX_NAME = 1 << 16;

/* The index of the parameters at the end of the name; n if there are none. */
size_t parameters_of(const char *name, size_t n) {
    int depth = 0;
    if (n == 0 || name[n - 1] != ')')
        return n;
    for (size_t i = n; i-- > 0;) {
        depth += (name[i] == ')') - (name[i] == '(');
        if (depth == 0)
            return i > 0 ? i : n;
    }
    return n;
}

/* Names of templates begin with the result type, which is void for a kernel. */
size_t result_of(const char *name) { return strncmp(name, "void ", 5) == 0 ? 5 : 0; }

void cut_out(char *name, const char *what) {
    const size_t n = strlen(what);
    for (char *at = strstr(name, what); at; at = strstr(at, what))
        memmove(at, at + n, strlen(at + n) + 1);
}

void fit(const char *name, size_t n, char *ret, size_t capacity) {
    static const char DOTS[] = "...";
    const size_t limit = capacity - 1, head = (limit - 3) * 2 / 3, tail = limit - 3 - head;
    if (n <= limit) {
        memcpy(ret, name, n);
        ret[n] = 0;
        return;
    }
    memcpy(ret, name, head);
    memcpy(ret + head, DOTS, 3);
    memcpy(ret + head + 3, name + n - tail, tail);
    ret[limit] = 0;
}

} // namespace

void cuda_kernel_name(const char *symbol, char *ret, size_t n) {
    int failed = -1;
    char *name = nullptr;
    if (strncmp(symbol, "_Z", 2) == 0)
        name = abi::__cxa_demangle(symbol, nullptr, nullptr, &failed);
    if (name && failed == 0 && strlen(name) < MAX_NAME) {
        cut_out(name, "(anonymous namespace)::");
        const char *begin = name + result_of(name);
        fit(begin, parameters_of(begin, strlen(begin)), ret, n);
    } else {
        fit(symbol, strlen(symbol), ret, n);
    }
    free(name);
    for (char *c = ret; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}
