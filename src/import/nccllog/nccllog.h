/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccllog.h - logs of NCCL_DEBUG=INFO, and of nccl-tests around them.
 *
 * Meta of the process: dist.nccl (version), cuda.driver, nccl.net (network), nccl.channels (as printed),
 * nccl.path (from, to, gbps, class: devices of one host, by the topology),
 * nccl.max_bw (of the topology, GB/s), nccl.via.p2p / .shm / .net / .other (connections), nccl.gdr
 * (on, off, mixed), nccl.collectives (calls logged), nccl.warnings, nccl.note (a way that NCCL cannot take),
 * env.NCCL_*; what connects its devices, and the adapters: nccl_link.c.
 * Rank and world where the process has one rank. Marks: nccl.warn (text), nccl.init (value: us it took),
 * nccl.ras (what NCCL's RAS says of processes that do not answer), nccl.comm (nccl_comm.c), nccl.link_event
 * (nccl_link.c), nccl.bandwidth (nccl_tests.c); meta nccl.busbw_avg.
 */
#ifndef LG_IMPORT_NCCLLOG_NCCLLOG_H
#define LG_IMPORT_NCCLLOG_NCCLLOG_H
#include "import/import.h"

extern const struct lg_importer lg_import_nccllog;

#endif /* LG_IMPORT_NCCLLOG_NCCLLOG_H */
