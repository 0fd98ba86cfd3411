/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sysfs_gpu.h - AMD's and Intel's devices, as the kernel's drivers show them in /sys/class/drm.
 *
 *   amdgpu (Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst): gpu_busy_percent, mem_busy_percent,
 *     mem_info_vram_*, pp_dpm_sclk, unique_id; hwmon: power1_average or power1_input, power1_cap,
 *     temp1_input (edge), the one labelled mem, freq1_input (shader clock), freq2_input (memory)
 *   i915, xe (Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon; gt/intel_gt_sysfs_pm.c,
 *     xe_gt_freq.c, xe_gt_throttle.c): clocks and throttle reasons of the first GT; hwmon: energy1_input or
 *     energy2_input, power1_max. They do not say how busy a device is.
 *
 * Files are read in a process of their own (device_worker.h): a driver that talks to a card's firmware
 * can hang.
 */
#ifndef LG_RECORD_DEVICE_SYSFS_GPU_H
#define LG_RECORD_DEVICE_SYSFS_GPU_H
#include "record/device/device_worker.h"

/* arg: what stands for /sys; NULL = /sys. */
extern const struct lg_device_reader lg_device_sysfs;
/* Is there any card to read? Reads the makers' numbers only. */
bool lg_sysfs_has_gpus(const char *root);
/* NVIDIA's devices on the PCI bus: the numbers of other makers' begin behind theirs. */
int32_t lg_sysfs_count_nvidia(const char *root);

#endif /* LG_RECORD_DEVICE_SYSFS_GPU_H */
