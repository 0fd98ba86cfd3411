/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_api.h - the part of NVIDIA's management library that is called, as its API reference tells it
 * (docs.nvidia.com/deploy/nvml-api): functions of libnvidia-ml.so.1, which the driver brings.
 *
 * A function that changed has its number behind its name (_v2); an old driver has only the name
 * without one. What is asked for is the newest first, and then what takes the same arguments.
 */
#ifndef LG_RECORD_DEVICE_NVML_API_H
#define LG_RECORD_DEVICE_NVML_API_H
#include <stdint.h>

enum {
	LG_NVML_OK = 0, LG_NVML_NOT_SUPPORTED = 3, LG_NVML_NO_PERMISSION = 4, LG_NVML_INSUFFICIENT_SIZE = 7,
	LG_NVML_DRIVER_NOT_LOADED = 9, LG_NVML_TIMEOUT = 10, LG_NVML_FUNCTION_NOT_FOUND = 13,
	LG_NVML_GPU_IS_LOST = 15, LG_NVML_VERSIONS_DIFFER = 18 /* of library and driver */
};
enum { LG_NVML_CLOCK_SM = 1, LG_NVML_CLOCK_MEM = 2 };                /* nvmlClockType_t */
enum { LG_NVML_TEMPERATURE_GPU = 0 };                                /* nvmlTemperatureSensors_t */
enum { LG_NVML_PCIE_TX = 0, LG_NVML_PCIE_RX = 1 };                   /* nvmlPcieUtilCounter_t; KB/s */
enum { LG_NVML_ECC_CORRECTED = 0, LG_NVML_ECC_UNCORRECTED = 1 };     /* nvmlMemoryErrorType_t */
enum { LG_NVML_ECC_VOLATILE = 0 }; /* nvmlEccCounterType_t: since the driver's start */
enum { LG_NVML_EVENT_XID = 0x8 };                                    /* nvmlEventTypeXidCriticalError */

struct lg_nvml_utilization { /* nvmlUtilization_t */
	unsigned gpu, memory;
};
struct lg_nvml_memory { /* nvmlMemory_t: used has what the driver keeps for itself */
	unsigned long long total, free, used;
};
struct lg_nvml_memory_v2 { /* nvmlMemory_v2_t: used has not, as nvidia-smi prints it */
	unsigned version;
	unsigned long long total, reserved, free, used;
};
#define LG_NVML_MEMORY_V2 (unsigned)(sizeof(struct lg_nvml_memory_v2) | 2u << 24)
struct lg_nvml_process_v1 { /* nvmlProcessInfo_v1_t */
	unsigned pid;
	unsigned long long bytes;
};
struct lg_nvml_process { /* nvmlProcessInfo_t, of _v2 and _v3 */
	unsigned pid;
	unsigned long long bytes; /* all ones: not known */
	unsigned gpu_instance, compute_instance;
};
struct lg_nvml_event { /* nvmlEventData_t; the first version ends behind data */
	void *device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
};

/* C(id, arguments, name, older name that takes the same): each returns an nvmlReturn_t. */
#define LG_NVML_CALLS(C) \
	C(INIT, (void), "nvmlInit_v2", "nvmlInit") \
	C(DRIVER, (char *, unsigned), "nvmlSystemGetDriverVersion", "") \
	C(COUNT, (unsigned *), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") \
	C(HANDLE, (unsigned, void **), "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex") \
	C(NAME, (void *, char *, unsigned), "nvmlDeviceGetName", "") \
	C(UUID, (void *, char *, unsigned), "nvmlDeviceGetUUID", "") \
	C(MIG, (void *, unsigned *, unsigned *), "nvmlDeviceGetMigMode", "") \
	C(UTILIZATION, (void *, struct lg_nvml_utilization *), "nvmlDeviceGetUtilizationRates", "") \
	C(POWER, (void *, unsigned *), "nvmlDeviceGetPowerUsage", "") \
	C(LIMIT, (void *, unsigned *), "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit") \
	C(TEMPERATURE, (void *, unsigned, unsigned *), "nvmlDeviceGetTemperature", "") \
	C(CLOCK, (void *, unsigned, unsigned *), "nvmlDeviceGetClockInfo", "") \
	C(CLOCK_MOST, (void *, unsigned, unsigned *), "nvmlDeviceGetMaxClockInfo", "") \
	C(REASONS, (void *, unsigned long long *), "nvmlDeviceGetCurrentClocksEventReasons", \
	  "nvmlDeviceGetCurrentClocksThrottleReasons") \
	C(PSTATE, (void *, unsigned *), "nvmlDeviceGetPerformanceState", "") \
	C(MEMORY_V2, (void *, struct lg_nvml_memory_v2 *), "nvmlDeviceGetMemoryInfo_v2", "") \
	C(MEMORY, (void *, struct lg_nvml_memory *), "nvmlDeviceGetMemoryInfo", "") \
	C(ECC, (void *, unsigned, unsigned, unsigned long long *), "nvmlDeviceGetTotalEccErrors", "") \
	C(ROWS, (void *, unsigned *, unsigned *, unsigned *, unsigned *), "nvmlDeviceGetRemappedRows", "") \
	C(REPLAY, (void *, unsigned *), "nvmlDeviceGetPcieReplayCounter", "") \
	C(PCIE, (void *, unsigned, unsigned *), "nvmlDeviceGetPcieThroughput", "") \
	C(PROCESSES, (void *, unsigned *, struct lg_nvml_process *), "nvmlDeviceGetComputeRunningProcesses_v3", \
	  "nvmlDeviceGetComputeRunningProcesses_v2") \
	C(PROCESSES_V1, (void *, unsigned *, struct lg_nvml_process_v1 *), "nvmlDeviceGetComputeRunningProcesses", "") \
	C(EVENTS, (void **), "nvmlEventSetCreate", "") \
	C(REGISTER, (void *, unsigned long long, void *), "nvmlDeviceRegisterEvents", "") \
	C(WAIT, (void *, struct lg_nvml_event *, unsigned), "nvmlEventSetWait_v2", "nvmlEventSetWait")

#endif /* LG_RECORD_DEVICE_NVML_API_H */
