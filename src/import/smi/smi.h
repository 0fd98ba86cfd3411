/* SPDX-License-Identifier: Apache-2.0 */
/*
 * smi.h - what nvidia-smi prints at intervals: `dmon` tables and `--query-gpu` CSV.
 *
 * Columns are found by their names in the header. Counter tracks below a track "GPU N" (kind
 * LG_TRACK_GPU, index N), names and units whatever the source calls them:
 *   gpu.util % (time with any kernel)  gpu.mem_util %  gpu.power W  gpu.temp C  gpu.mem_temp C
 *   gpu.clock_sm MHz  gpu.clock_mem MHz  gpu.mem_used bytes  gpu.mem_total bytes  gpu.bar1_used bytes
 *   gpu.pcie_rx gpu.pcie_tx bytes/s  gpu.power_limit W  gpu.power_violation %
 *   gpu.thermal_violation bool  gpu.throttle bits (NVML's clocks event reasons)
 *   gpu.throttle.<reason> bool  gpu.ecc_sbe gpu.ecc_dbe count  gpu.enc gpu.dec gpu.jpg gpu.ofa %
 *   gpu.fan %  gpu.pstate
 * Other columns of numbers keep their name after "gpu.".
 */
#ifndef LG_IMPORT_SMI_SMI_H
#define LG_IMPORT_SMI_SMI_H
#include "import/import.h"

extern const struct lg_importer lg_import_smi;

#endif /* LG_IMPORT_SMI_SMI_H */
