/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flightrec.h - dumps of PyTorch's Flight Recorder (one file a rank), pickle or JSON.
 *
 * Each entry is a COLLECTIVE span of the rank's main thread: ts = time_created_ns (CLOCK_REALTIME), dur
 * to its discovered end, -1 while it is not completed, 0 where it is completed and nothing says when;
 * group = name of the process group, seq = collective_seq_id (p2p_seq_id for send and receive, which
 * have p2p=1), bytes of its inputs, stack = the Python frames, args state= in= dtype= pgdesc=. A mark
 * "flight.pending" (value = seq; text: operation, group, state, sizes) for every entry that is not completed.
 * Meta of the process: flight.version, dist.nccl, flight.entries ("0" when the ring is empty), by group
 * flight.group.<name> (description and ranks), flight.last.<name> (numbers of the last collective enqueued,
 * started, completed) and flight.pg.<id>.last_enqueued / .last_started / .last_completed.
 * The dump does not say its rank: the number behind "rank" in the file's name or at the name's end, checked against
 * the groups, or the one rank that all its groups share.
 */
#ifndef LG_IMPORT_FLIGHTREC_FLIGHTREC_H
#define LG_IMPORT_FLIGHTREC_FLIGHTREC_H
#include "import/import.h"

extern const struct lg_importer lg_import_flightrec;

#endif /* LG_IMPORT_FLIGHTREC_FLIGHTREC_H */
