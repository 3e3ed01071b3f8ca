"""Prints the versions of NVIDIA's libraries in a line; then how cuDNN describes this device, as JSON: with it, engines are looked
for on machines that have no device (kernels/cuda/lib/cudnn.c).
"""

import ctypes
import sys

DEVICE_PROPERTIES, HANDLE, JSON = 38, 2701, 2702  # of cudnn_graph_v9.h: the descriptor and two of its attributes
TYPE_HANDLE, TYPE_CHAR, ROOM = 0, 24, 1 << 16


def must(code, what):
    if code:
        sys.exit(f"{what}: cuDNN says {code}")


def version(library, function):
    """As the library has it; or why not."""
    try:
        ask = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError) as x:
        return str(x)
    ask.restype = ctypes.c_size_t
    return ask()


def nccl():
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as x:
        return str(x)
    return number.value


cudnn = ctypes.CDLL("libcudnn.so.9")
print(f"cuDNN {version('libcudnn.so.9', 'cudnnGetVersion')}, cuBLASLt {version('libcublasLt.so.13', 'cublasLtGetVersion')}, "
      f"NCCL {nccl()}", flush=True)
handle, description, length = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int64()
text = ctypes.create_string_buffer(ROOM)
must(cudnn.cudnnCreate(ctypes.byref(handle)), "cudnnCreate")
must(cudnn.cudnnBackendCreateDescriptor(DEVICE_PROPERTIES, ctypes.byref(description)), "a description")
must(cudnn.cudnnBackendSetAttribute(description, HANDLE, TYPE_HANDLE, ctypes.c_int64(1), ctypes.byref(handle)), "its device")
must(cudnn.cudnnBackendFinalize(description), "finish it")
must(cudnn.cudnnBackendGetAttribute(description, JSON, TYPE_CHAR, ctypes.c_int64(ROOM), ctypes.byref(length), text), "read it")
print(text.value.decode())
