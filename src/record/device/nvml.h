/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.h - NVIDIA's devices, asked through the library that their driver brings. */
#ifndef LG_RECORD_DEVICE_NVML_H
#define LG_RECORD_DEVICE_NVML_H
#include "record/device/device_worker.h"

/* arg: the library, "libnvidia-ml.so.1" wherever the dynamic loader finds it. */
extern const struct lg_device_reader lg_device_nvml;

#endif /* LG_RECORD_DEVICE_NVML_H */
