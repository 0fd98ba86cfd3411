/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memsnap.h - snapshots of a device's memory: what torch.cuda.memory._dump_snapshot() and pickles of
 * torch.cuda.memory._snapshot() hold, of all eras; those of ROCm and XPU are the same.
 *
 * torch/csrc/cuda/memory_snapshot.cpp and torch/csrc/cuda/Module.cpp (THCPModule_memorySnapshot) write them.
 * No table of its own: an allocation is an interval of bytes with a stack, and that is what a span is.
 *
 *   span, kind MEMORY, on the track "allocator" of the device:
 *     "alloc"            from the request to free() (free_requested); dur -1 = alive at the snapshot. bytes: as
 *                        requested; object: address; seq: stream; stack, peer_stack: who asked and who freed;
 *                        args "before": asked for before the history begins, and from there on
 *     "segment"          at the snapshot: bytes; object: address; seq: stream; group: pool "0, 0"; args: large,
 *                        small, expandable
 *     "block.inactive"   at the snapshot, "block.active_allocated", "block.active_pending_free": bytes; object;
 *                        seq: of that requested; stack
 *     "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom": events, dur 0; an
 *                        oom's object is what the device had free
 *   counter "memory allocated" (as requested) and "memory reserved" of the device; events of one
 *     microsecond are put 1 ns apart, in the order of the file
 *   span STEP, STAGE, NOTE of the main thread: annotations
 */
#ifndef LG_IMPORT_MEMSNAP_MEMSNAP_H
#define LG_IMPORT_MEMSNAP_MEMSNAP_H
#include "import/import.h"

extern const struct lg_importer lg_import_memsnap;

#endif /* LG_IMPORT_MEMSNAP_MEMSNAP_H */
