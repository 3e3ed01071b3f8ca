"""What the driver says of the device, and counts of its memory while a program runs: NVML's figures, which nvidia-smi shows."""

import ctypes
import functools
import threading

EVERY_S = 0.05


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


@functools.lru_cache
def first_device():
    """NVML and the first device; None where there is no driver."""
    try:
        nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) else (nvml, device)


def device():
    """Its name, memory and driver; "": that cannot be asked."""
    found, memory, name, driver = first_device(), Memory(), ctypes.create_string_buffer(96), ctypes.create_string_buffer(80)
    if not found or found[0].nvmlDeviceGetName(found[1], name, 96) or found[0].nvmlSystemGetDriverVersion(driver, 80) or \
            found[0].nvmlDeviceGetMemoryInfo(found[1], ctypes.byref(memory)):
        return ""
    return f"{name.value.decode()}, {memory.total / 2**30:.1f} GiB, driver {driver.value.decode()}"


def used():
    """Bytes; 0 where that cannot be asked."""
    found, memory = first_device(), Memory()
    return memory.used if found and found[0].nvmlDeviceGetMemoryInfo(found[1], ctypes.byref(memory)) == 0 else 0


class Peak:
    """with Peak() as peak: ...; then peak.bytes: the most that was in use, beyond what was before."""

    def __enter__(self):
        self.bytes, self.before, self.over = 0, used(), threading.Event()
        self.looking = threading.Thread(target=self.look)
        self.looking.start()
        return self

    def look(self):
        while True:
            self.bytes = max(self.bytes, used() - self.before)
            if self.over.wait(EVERY_S):
                return

    def __exit__(self, *_):
        self.over.set()
        self.looking.join()
