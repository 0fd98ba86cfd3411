/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kineto.h - torch.profiler (Kineto) Chrome JSON -> rows. What analyses may rely on:
 *
 * Times     baseTimeNanoseconds + ts, exact to the nanosecond. If that is an epoch time, two clock
 *           rows say so (CLOCK_REALTIME, value = ts), and lg_merge_offset() aligns on them.
 * Processes Real pids; -1 where the trace has a word ("CPU functions"). process.rank/world from
 *           distributedInfo, role LG_ROLE_RANK; the thread with the ProfilerStep spans (else
 *           tid == pid, else most operators) is LG_THREAD_MAIN.
 *           GPU work is not on threads: track LG_TRACK_GPU (index = device, "GPU 0"), below it
 *           LG_TRACK_STREAM (index = stream, "stream 7"), both with the owning process in prc.
 *
 * Spans on threads (track == 0), told by the event's category, never by its pid:
 *   STEP       ProfilerStep#N: seq = N.
 *   STAGE      BATCH_WAIT enumerate(DataLoader)#.. / enumerate(DataPipe)#..  (a _SingleProcess.. or
 *              _MultiProcessing.. iterator: see name); OPTIMIZER Optimizer.step#X, Optimizer.zero_grad#X,
 *              "## optimizer ##"; FORWARD DistributedDataParallel.forward, DataParallel.forward,
 *              "## forward ##"; BACKWARD "## backward ##"; as the program's author or torch named them.
 *   OP         cpu_op. stage BACKWARD for autograd::engine::evaluate_function: *. seq = autograd
 *              sequence number (forward and backward operator share it), -1 = none.
 *   NOTE       any other user_annotation (record_function, FSDP::*, CompiledFxGraph calls ...).
 *   COLLECTIVE nccl:* gloo:* xccl:* mpi:* ucc:* annotations. group, seq (-1 = none), bytes are those of
 *              the record_param_comms around it. LG_SPAN_ASYNC unless gloo/mpi: the call only enqueues.
 *              record_param_comms itself is an OP with the same group, seq, bytes.
 *   RUNTIME    cuda*, cu*, hip* calls (cuda_runtime, cuda_driver, Runtime ...): seq = correlation.
 *   WAIT       those of them that wait by name: *Synchronize. seq = correlation.
 *   PYTHON     python_function; stack = one frame of kind LG_FRAME_PYTHON (file, line, function), for
 *              "nn.Module: X_0" and built-ins without a file. Callers are the enclosing PYTHON spans.
 *   COMPILE    "* (dynamo_timed)" and other compile-time annotations.
 *   OVERHEAD   the profiler's own cost: overhead category (thr 0, track "profiler overhead").
 *   An OP with a "Call stack" (2021) has it in stack, outermost frame first.
 *
 * Spans on stream tracks (thr == 0):
 *   KERNEL     kernels. seq = correlation, peer = launching thread, bytes 0.
 *   COLLECTIVE NCCL/RCCL kernels: these are GPU work too. group and bytes where known; seq =
 *              correlation as for every GPU row; the number in the group is the argument "seq".
 *   COPY       memcpy and memset: bytes; direction and memory kind are in the name, as Kineto has it:
 *              "Memcpy HtoD (Pageable -> Device)".
 *   WAIT       cuda_sync rows, LG_SPAN_ASYNC for stream-wait-event: not GPU work.
 *   NOTE       gpu_user_annotation: overlaps kernels, never GPU work.
 *   GPU busy = union of KERNEL, COPY and COLLECTIVE rows with track != 0.
 *
 * Flows: LG_FLOW_LAUNCH ts = start of the call, ts_to = start of the GPU row, thr = calling thread,
 *   id = correlation; one for each GPU row (many for a graph launch). peer == 0 on a GPU row: its
 *   launch is not in the trace. fwdbwd arrows are dropped: seq of OP rows says the same.
 *
 * span.args: "key=value" pairs separated by tabs; lg_span_arg() in store/args.h reads them.
 *   KERNEL     grid=4,1,1 block=128,1,1 regs=32 smem=0 occ=47 graph=3 (graph id) prio=0 and, NCCL:
 *              coll=allreduce dtype=Float in=2049000 out=2049000 (elements) size=2 (ranks) pg=name
 *              pgdesc=default_pg ranks=[0, 1] seq=17
 *   WAIT       (cuda_sync) wait_stream= wait_corr= (the event's record call)
 *   OP         dims=[[8,3],[]] types=["float",""] fwd=1 (Fwd thread id) module=... (Module Hierarchy)
 *              and for record_param_comms the NCCL keys; inputs= (Concrete Inputs, only of
 *              aten::conv*, aten::item, aten::_local_scalar_dense, aten::to/_to_copy/copy_)
 *   STAGE NOTE dims= types=
 *   Values are as in the file, strings without their quotes.
 *
 * Counters: ph C by name; "[memory]" instants give tracks "memory allocated" and "memory reserved"
 *   (unit "bytes", parent = the GPU's track, none for host memory), before 2022 "memory change".
 * Marks: "Iteration Start", "Record Window End", INFO/WARNING/ERROR lines (name "kineto.INFO" ...).
 * Meta (prc of the process): torch.profiler.{record_shapes,with_stack,profile_memory,with_flops,
 *   with_modules}, trace.id, gpu.N.name, gpu.N.compute ("9.0"), gpu.N.memory, gpu.N.sms,
 *   cuda.runtime, cuda.driver, cupti.version, hip.runtime, dist.backend, dist.nccl, dist.groups (JSON),
 *   dist.world, host.name, kineto.schema, trace.format = "kineto".
 */
#ifndef LG_IMPORT_KINETO_KINETO_H
#define LG_IMPORT_KINETO_KINETO_H
#include "import/import.h"
#include "import/json/json_events.h"

/* 0 = not torch.profiler's JSON as far as these bytes tell. */
int lg_kineto_sniff_text(const char *p, size_t n);
/* Read all events of r, which is at its start. */
int lg_kineto_read(struct lg_events *r, struct lg_builder *b, struct lg_error *err) LG_MUST_CHECK;

extern const struct lg_importer lg_import_kineto;

#endif /* LG_IMPORT_KINETO_KINETO_H */
