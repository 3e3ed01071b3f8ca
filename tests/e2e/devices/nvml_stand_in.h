/* What a test that has loaded the stand-in for NVIDIA's library may do to it. */
#ifndef TESTS_E2E_DEVICES_NVML_STAND_IN_H
#define TESTS_E2E_DEVICES_NVML_STAND_IN_H

/* From now on whoever asks for a device's memory stays in the driver, until it is let go (0). */
void nvml_stand_in_hold(int hold);
void nvml_stand_in_await_held(void); /* waits until somebody is in the driver */

/* How often a device's memory was asked for, and how many uses have ended; a wait for so many. */
int nvml_stand_in_asked(void);
void nvml_stand_in_await_asked(int number);
int nvml_stand_in_ends(void);
void nvml_stand_in_await_ends(int number);

#endif
