/* SPDX-License-Identifier: Apache-2.0 */
/* detail_advice.c - advice by a finding's detail (io.c, waits.c, loader_story.c, gpu_rules.c, ...). */
#include <string.h>

#include "advise/advise.h"

/* A copy from pinned memory and one that is not: the model is too large either way. */
#define STREAMED_WEIGHTS                                                                                    \
	{ .fix = "The model does not fit, or is kept on the host on purpose, and the link sets the pace: make " \
		   "it smaller (8 or 4 bits a weight, a smaller model, shards on more devices), use what was " \
		   "copied for longer (a larger batch, more requests at once, gradient accumulation), and copy " \
		   "the next layer from pinned memory on a stream of its own while this one computes.", \
	    .tradeoff = "Fewer bits change the numbers; larger batches take memory for activations.", \
	    .confirm = "Double the batch: the step takes hardly longer." }

/* A device that may draw less than its peers, or than it could. */
#define POWER_TRADEOFF "More heat and power for the same host; a budget that others count on."
#define POWER_CONFIRM \
	"nvidia-smi -q -d PERFORMANCE,POWER while it is slow: SW Power Cap active at a limit below the default."

#define OFFLOADED                                                                                           \
	{ .fix = "Activations (or gradients) are kept on the host until they are needed, and the link is too slow for " \
		   "it, or they are fetched too late. Fetch those of the layer before while this one's backward " \
		   "pass runs, from pinned memory on a stream of its own; put away fewer of them (those of a few " \
		   "layers, of the largest kind); or compute them again instead " \
		   "(torch.utils.checkpoint.checkpoint).", \
	    .tradeoff = "Fetching ahead and putting away less take device memory; checkpointing computes the forward " \
		   "pass of those layers twice.", \
	    .confirm = "Without offloading, with a smaller batch: the copies and the idle time are gone." }

/* FSDP's gathers, by where those were ordered that nothing hides. */
#define FSDP_ADVICE(id)                                                                                      \
	{ id, "fsdp_backward_prefetch",                                                                      \
	  { .fix = "FullyShardedDataParallel(..., backward_prefetch=BackwardPrefetch.BACKWARD_PRE); with "   \
		   "fully_shard: module.set_modules_to_backward_prefetch([...]).", FSDP_COSTS } },           \
	{ id, "fsdp_forward_prefetch",                                                                       \
	  { .fix = "FullyShardedDataParallel(..., forward_prefetch=True) where the order of layers is fixed; " \
		   "with fully_shard: module.set_modules_to_forward_prefetch([...]); or wrap larger units, "  \
		   "so that each gather has more compute to hide under.", FSDP_COSTS } },                    \
	{ id, "fsdp_gathers",                                                                                \
	  { .fix = "Gathers are prefetched and still too slow: larger units, sharding within a machine only " \
		   "(ShardingStrategy.HYBRID_SHARD), bf16 parameters (MixedPrecision), a larger batch.",     \
	    FSDP_COSTS } }
#define FSDP_COSTS                                                                                           \
	.tradeoff = "Prefetch holds two layers' parameters; larger units and hybrid sharding take more memory."

#define DETERMINISTIC_OPERATORS                                                                             \
	{ .fix = "torch.use_deterministic_algorithms(True), torch.backends.cudnn.benchmark = False, "       \
		   "CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment and the same number of threads "     \
		   "(torch.set_num_threads, OMP_NUM_THREADS) in both runs; what is named as not "           \
		   "deterministic can be replaced by another operator. An autograd.Function or a kernel of "\
		   "one's own has to add up in a fixed order.",                                             \
	    .tradeoff = "Such operators can be slower, and some raise an error: laggard determinism --flags " \
			"runs this program with them and says what a step takes.",                          \
	    .confirm = "laggard determinism --flags: two more runs with them are equal." }

static const struct {
	const char *id, *detail;
	struct lg_advice words;
} advice[] = {
	{ "regress.workload", "tool",
	  { .fix = "Record both runs with the same tool: what one kind of file cannot show is no difference between the "
		   "runs.", .confirm = "Repeat BEFORE with AFTER's tool." } },
	{ "regress.workload", "configuration",
	  { .fix = "Repeat one of the runs with the other's configuration.",
	    .confirm = "Repeat BEFORE with AFTER's configuration." } },
	{ "regress.workload", "configuration_and_tool",
	  { .fix = "Repeat one of the runs with the other's configuration, and record both with the same tool.",
	    .confirm = "Repeat BEFORE with AFTER's configuration and tool." } },
	{ "mem.leak", "host",
	  { .fix = "Look for what keeps the result of each step on the host: a list of losses or outputs (append "
		   "loss.item(), .detach()), a cache or a dictionary without a bound (functools.lru_cache(maxsize=N)), "
		   "hooks and closures made in the loop, metrics that are never reset. Memory that fragments in malloc "
		   "grows as well: MALLOC_ARENA_MAX=2, or jemalloc.",
	    .tradeoff = "A bound makes a cache miss more often; item() waits for the device: once in many steps is "
			"enough.",
	    .confirm = "tracemalloc.start(), and compare two snapshots some steps apart; of tensors: "
		       "len([o for o in gc.get_objects() if torch.is_tensor(o)]) at both." } },
	{ "mem.leak", "host_graph",
	  { .fix = "A loss or an output is kept with its graph, and with it all that the forward pass saved: keep "
		   "loss.item() or loss.detach(), leave retain_graph=True out, and evaluate under torch.no_grad().",
	    .tradeoff = "item() waits for the device: once in many steps is enough.",
	    .confirm = "Append loss.detach() for a hundred steps: the growth is gone." } },
	{ "mem.leak", "copy_on_write",
	  { .fix = "Keep what the workers read in arrays, not in lists and dictionaries of Python objects, whose reference "
		   "counts are written at each look: numpy or torch arrays (of bytes and offsets, for strings), Arrow, or "
		   "a file that is mapped; gc.freeze() before the workers start helps against the collector alone.",
	    .tradeoff = "Items are made from arrays at each access.",
	    .confirm = "Private_Dirty of a worker's smaps_rollup (read when the job may be late once): it stands with "
		       "arrays." } },
	{ "mem.leak", "workers",
	  { .fix = "Look in the dataset, its transforms and collate_fn for what each item leaves behind: caches without a "
		   "bound, open files, lists on self. persistent_workers=False hides it: workers are made anew each epoch.",
	    .tradeoff = "Workers that are made anew cost their start each epoch.",
	    .confirm = "Iterate over the loader alone for an epoch: it grows in the same way." } },
	{ "mem.oom", "cgroup",
	  { .fix = "Raise the limit of the cgroup (memory.max, a container's or a job's memory request), or need less: fewer "
		   "workers and a smaller prefetch_factor, datasets mapped instead of loaded in every rank, checkpoints "
		   "that are not gathered on one rank. Where mem.leak is told as well, that comes first: a limit only "
		   "delays it.",
	    .tradeoff = "Others on the host have less.",
	    .confirm = "memory.events (v1: memory.oom_control) of the group: oom_kill stands." } },
	{ "det.diverged", "rng",
	  { .fix = "Seed the named generator before the first number is drawn from it: torch.manual_seed(N) (all devices), "
		   "random.seed(N), numpy.random.seed(N); with ranks, N plus the rank where they shall differ. A checkpoint "
		   "that is gone on from has to keep the states (torch.get_rng_state).",
	    .tradeoff = "None in time. Results of one seed say nothing of how far they would spread over others.",
	    .confirm = "laggard determinism once more: the runs are equal, or part later." } },
	{ "det.diverged", "input",
	  { .fix = "Make the batch from seeded generators only: DataLoader(generator=torch.Generator().manual_seed(N), "
		   "worker_init_fn=...) and in the workers generators that begin from torch.initial_seed(); no "
		   "numpy.random.default_rng() without a seed, no order of os.listdir() or of a set, no time of day.",
	    .tradeoff = "None in time.",
	    .confirm = "With num_workers=0 and the same seeds: where the runs are equal then, it was the workers." } },
	{ "det.diverged", "loss", DETERMINISTIC_OPERATORS },
	{ "det.diverged", "grad", DETERMINISTIC_OPERATORS },
	{ "det.diverged", "param", DETERMINISTIC_OPERATORS },
	{ "det.diverged", "ranks",
	  { .fix = "DistributedDataParallel keeps gradients equal, and parameters only as long as each rank does the same to "
		   "them: look for what one rank does alone (a checkpoint that rank 0 loads after the model is wrapped, "
		   "clipping, averaging or noise under if rank == ..., parameters that are not the optimizer's).",
	    .tradeoff = "None.",
	    .confirm = "Broadcast the named parameter from rank 0 after that step: the loss changes." } },
	{ "det.diverged", "log",
	  { .fix = "laggard determinism -- CMD on the program of either log: fingerprints name what differs first.",
	    .tradeoff = "It runs the program twice.",
	    .confirm = "Two runs of one program print the same losses: then the logs are of two programs, or seeds." } },
	{ "host.io_wait", "own_sync",
	  { .fix = "The job waits until what it wrote itself is on the disk: write checkpoints to memory or to a "
		   "local NVMe first and copy them from a side thread or process (torch.distributed.checkpoint."
		   "async_save, a background os.fsync), sync less often and once a file instead of once a "
		   "record, save from one rank or sharded instead of all ranks to one disk, and write to a "
		   "temporary file that is renamed when it is whole.",
	    .tradeoff = "A crash in between loses the newest checkpoint; the copy in memory takes room until it is "
			"written.",
	    .confirm = "Leave the sync out for a minute, or let the file lie in /dev/shm: the waits go with it." } },
	{ "host.io_wait", "own_write",
	  { .fix = "The job waits for its own writes: move them to a side thread, write larger pieces to a local "
		   "NVMe, and keep logs and checkpoints off the disk that the data comes from. Where the wait is "
		   "in balance_dirty_pages, the disk is slower than what is written to it: write less, or raise "
		   "vm.dirty_background_bytes so that writing begins earlier.",
	    .tradeoff = "Data reaches the disk later, and lies in memory until then.",
	    .confirm = "Let the file lie in /dev/shm for a minute: the waits go with it." } },
	{ "host.io_wait", "own_read",
	  { .fix = "The job waits for what it reads itself: read ahead (more workers and prefetch_factor, "
		   "posix_fadvise WILLNEED, larger sequential shards instead of small files), keep the "
		   "training set in memory or on a local NVMe, and give the page cache room.",
	    .tradeoff = "Local copies take space and time at the start; readers ahead take memory.",
	    .confirm = "Read the files once into the page cache (vmtouch, cat > /dev/null) and watch whether the waits "
		       "go." } },
	{ "host.io_wait", "other_load",
	  { .fix = "Take the other program off this disk or limit it: io.max or io.weight of its cgroup, ionice -c3 "
		   "(bfq), smaller and rarer pieces, another disk; or keep what the job reads and writes on a disk of "
		   "its own.",
	    .tradeoff = "A limited program takes longer.",
	    .confirm = "kill -STOP the named process for a minute: the waits go with it and return after kill "
		       "-CONT." } },
	{ "host.steal", "hypervisor",
	  { .fix = "Ask for CPUs of the guest's own (a dedicated host, an instance type without CPU credits, pinned "
		   "vCPUs), or move the job; tell the provider the times: they see who else is on this host.",
	    .tradeoff = "Dedicated CPUs cost more.",
	    .confirm = "Watch %st of `top` or mpstat -P ALL 1 for a minute beside the step times." } },
	{ "host.steal", "interrupts",
	  { .fix = "Keep interrupts off the ranks' CPUs (/proc/irq/N/smp_affinity_list, the CPUs that irqbalance is "
		   "banned from, RPS and XPS masks); where it is the job's own traffic (gloo over TCP), use larger "
		   "buckets and fewer messages.",
	    .tradeoff = "CPUs kept for interrupts do no other work.",
	    .confirm = "Watch %hi and %si of mpstat -P ALL 1, and which lines of /proc/interrupts and /proc/softirqs "
		       "grow." } },
	{ "data.serial_copy", "optimizer",
	  { .fix = "The optimizer's state lies on the host, and the device waits while parameters come back. Where there "
		   "is room, keep it on the device (8-bit or fused optimizers, sharded over ranks: FSDP, ZeRO-1); else "
		   "let copies and updates overlap: piece by piece during the backward pass, on a stream of their own "
		   "(FSDP2's CPUOffloadPolicy(pin_memory=True), DeepSpeed's offload_optimizer with pin_memory and a "
		   "ratio below 1), and accumulate gradients, so that there are fewer of them.",
	    .tradeoff = "State on the device takes 8 to 12 bytes a parameter; more accumulation is a larger batch.",
	    .confirm = "One step without optimizer.step(): the copies are gone." } },
	{ "data.serial_copy", "offloaded", OFFLOADED },
	{ "data.pageable_copy", "offloaded", OFFLOADED },
	{ "data.serial_copy", "weights", STREAMED_WEIGHTS },
	{ "data.pageable_copy", "weights", STREAMED_WEIGHTS },
	{ "gpu.allocator_sync", "pinned",
	  { .fix = "Pin once and use it again: DataLoader(pin_memory=True), whose buffers are kept, or one buffer "
		   "made outside the loop (torch.empty(..., pin_memory=True)) that each batch is copied into. "
		   "tensor.pin_memory() and cudaHostRegister in a step take longer than the copy that they speed up.",
	    .tradeoff = "Pinned memory stays taken and cannot be swapped out.",
	    .confirm = "Take pin_memory() out of the loop for 50 steps: cudaHostAlloc and cudaFreeHost are gone." } },
	{ "gpu.allocator_sync", "uncached",
	  { .fix = "Switch the cache on again: unset PYTORCH_NO_CUDA_MEMORY_CACHING (PYTORCH_NO_HIP_MEMORY_CACHING), "
		   "which is for compute-sanitizer and memcheck; or look at what replaced the allocator "
		   "(torch.cuda.memory.change_current_allocator, PYTORCH_CUDA_ALLOC_CONF=backend:...). It is no "
		   "fragmentation: expandable_segments does not help.",
	    .tradeoff = "None, but that tools which look for wrong accesses see less.",
	    .confirm = "torch.cuda.memory_stats()['num_device_alloc'] grows by thousands a step, and by none with the "
		       "cache." } },
	{ "data.loader_wait", "burst",
	  { .fix = "Batches come in bursts: prefetch_factor 4 and more rides over one slow batch if the workers are "
		   "faster than the loop in the mean. No depth helps when the average rate is too low: then more "
		   "workers, or less work a batch. Find the slow batches first (a large sample, a new shard, a "
		   "remote file).",
	    .tradeoff = "Deeper prefetch holds more batches in memory.",
	    .confirm = "Iterate over the loader alone: batches a second against steps a second tells which it is." } },
	{ "gpu.host_sync", "copies_to_host",
	  { .fix = "Copy less and not so often (reduce on the device first, every N steps), into pinned memory with "
		   "non_blocking=True on a stream of its own, and wait for an event where the data is used. Of an "
		   "optimizer that works on the host: gradients piece by piece during the backward pass.",
	    .tradeoff = "Pinned memory is not swapped; data that is used before its event is garbage.",
	    .confirm = "Leave the copies out for a few steps: the time goes with them." } },
	{ "gpu.bound", "copies",
	  { .fix = "Look at the copies first: clone() and copy_() of whole tensors make them; CUDA graphs copy every "
		   "input into static buffers (write the next batch into these, torch._dynamo.mark_static_address for "
		   "what stays); a cache that grows by copies is better preallocated. Then make the kernels faster: "
		   "torch.compile (fusion), lower precision, better shapes.",
	    .tradeoff = "Preallocated buffers hold their largest size all the time.",
	    .confirm = "One step with with_stack=True names the lines that copy." } },
	{ "gpu.host_sync", "work_after_sync",
	  { .fix = "Two ways, and either is enough: let the host launch on before it reads the result (keep "
		   "loss.detach() and call .item() a step later or every N steps; a decoding loop: schedule the next "
		   "step while this one runs), or take what it does there out of the way (a worker, another thread or "
		   "process, every N steps, onto the device).",
	    .tradeoff = "Results arrive a step late; work in another thread shares the GIL and the CPUs, and needs a "
			"bound on how much of it may wait.",
	    .confirm = "Leave the named work out for a few steps (without a name: one step with with_stack=True tells "
		       "it): the idle time goes with it." } },
	{ "python.gil_wait", "native_call",
	  { .fix = "Let the call release the lock while it works or waits: Py_BEGIN_ALLOW_THREADS, `with nogil` (Cython), "
		   "py::call_guard<py::gil_scoped_release>() (pybind11), ctypes.CDLL instead of PyDLL. A builtin on a "
		   "large input (sorted, sum, json, pickle, re) cannot: call it on pieces, or do that work in a process "
		   "of its own (multiprocessing, a DataLoader worker).",
	    .tradeoff = "Native code that released the lock must not touch Python's objects; another process costs memory "
			"and the copying of what it works on.",
	    .confirm = "Leave the call out (or give it little to do) for a minute: the waits go with it." } },
	{ "data.loader_wait", "workers_zero",
	  { .fix = "DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True); raise num_workers up to "
		   "the free CPUs while the wait shrinks.",
	    .tradeoff = "Each worker costs memory (a copy of the dataset object) and a CPU.",
	    .confirm = "One epoch with num_workers=2: the wait halves or goes." } },
	{ "data.loader_wait", "respawn",
	  { .fix = "DataLoader(..., persistent_workers=True), so that workers survive the epoch; make what they copy at "
		   "their start small (open files and decode in __getitem__, not in __init__), and epochs longer "
		   "(a sampler that goes over the data several times).",
	    .tradeoff = "Workers that live on keep their memory and see no change made to the dataset object between "
			"epochs.",
	    .confirm = "One run of a few epochs with persistent_workers=True: the waits at their starts are gone." } },
	{ "data.loader_wait", "slow_worker",
	  { .fix = "Look at what the named worker does or gets that the others do not: a slow or remote shard, a larger "
		   "file, a CPU that it shares; deal the work out by its cost and not by count, and let batches come "
		   "as they are ready where the order does not matter (in_order=False, torch 2.6 and later).",
	    .tradeoff = "Batches out of turn: runs cannot be repeated exactly.",
	    .confirm = "Run with the shards dealt out differently: the slowness moves with the shard, or stays with the "
		       "worker's place." } },
	{ "data.loader_wait", "io",
	  { .fix = "Read ahead and in larger pieces: more workers and a larger prefetch_factor (waiting costs no CPU), "
		   "sequential shards (tar, WebDataset, Arrow) instead of many small files, a local NVMe or RAM copy "
		   "of the training set, room for the page cache.",
	    .tradeoff = "Local copies take space and time at the start; readers ahead take memory.",
	    .confirm = "Read the files once into the page cache (cat > /dev/null) and watch whether the waits go." } },
	{ "data.loader_wait", "transform",
	  { .fix = "Less work a batch in the named function: decode and resize ahead of time, cheaper or batched "
		   "augmentation, on the accelerator (torchvision v2, DALI, kornia); then more workers up to the CPUs "
		   "that are free, with torch.set_num_threads(1) in each.",
	    .tradeoff = "What is prepared ahead takes space and is the same in every epoch; augmentation on the "
			"accelerator takes some of its time.",
	    .confirm = "Leave the transform out for a minute: the waits go with it." } },
	{ "host.waited_for", "shared_lock",
	  { .fix = "The step and the named program share a lock, a semaphore or a condition in memory: let that program "
		   "hold it for less time (its function in the finding is what it did meanwhile) or give the job one "
		   "of its own (a copy, two buffers in turn, one lock a rank), and take it with a time limit or "
		   "only if it is free, and come back a step later.",
	    .tradeoff = "What is shared may be a step old, or takes the room of a copy.",
	    .confirm = "Let the step go on without it for a minute (a copy, a lock of its own): the slow steps go with "
		       "it." } },
	{ "host.waited_for", "pipe",
	  { .fix = "The step stands at a pipe, a message queue or an event whose other end is the named program: read "
		   "and write it in a side thread, give it more room (F_SETPIPE_SZ, a longer queue), or make that program "
		   "faster (its function is in the finding).",
	    .tradeoff = "What arrives is a step old; more room is memory.",
	    .confirm = "Put a constant, or /dev/null, in its place for a minute: the slow steps go with it." } },
	{ "compile.skipped", "failed",
	  { .fix = "Read the named error: take the unsupported call out of the compiled function, or hide it "
		   "(@torch.compiler.disable, allow_in_graph, a custom operator); check that torch, Triton and the "
		   "driver belong together; torch._dynamo.config.suppress_errors = False makes it fail loudly.",
	    .tradeoff = "What is hidden runs eagerly; loud errors end the run.",
	    .confirm = "TORCH_LOGS=+dynamo, or torch.compile(backend=\"eager\") and then \"aot_eager\": the first that "
		       "fails tells the layer." } },
	{ "gpu.no_tensor_core", "half_only",
	  { .fix = "Forward and loss under torch.autocast(\"cuda\", dtype=torch.float16), with torch.amp.GradScaler around "
		   "backward and step: this generation has neither TF32 nor bfloat16 tensor cores.",
	    .tradeoff = "float16 reaches 65504 and has 10 bits of mantissa: the scaler skips steps whose gradients "
			"overflow; check the loss curve against fp32 for a few hundred steps.",
	    .confirm = "50 steps with and without (laggard diff): kernels' names change to s884 or h1688 forms." } },
	{ "gpu.throttled", "power",
	  { .fix = "Compare the limit with the peers' and with the default: nvidia-smi -q -d POWER (current, default and "
		   "max limit); nvidia-smi -pl WATTS raises one that was lowered. Where the machine shares a power "
		   "budget (rack or chassis cap, a failed power supply), ask who manages it, and drain the host "
		   "meanwhile.",
	    .tradeoff = POWER_TRADEOFF,
	    .confirm = POWER_CONFIRM } },
	{ "gpu.throttled", "power_alone",
	  { .fix = "Compare the limit with the default: nvidia-smi -q -d POWER (current, default and max limit); nvidia-smi "
		   "-pl WATTS raises one that was lowered. Where the machine shares a power budget (rack or chassis "
		   "cap, a failed power supply), ask who manages it.",
	    .tradeoff = POWER_TRADEOFF,
	    .confirm = POWER_CONFIRM } },
	{ "gpu.util_lies", "alone",
	  { .fix = "torch.profiler for five steps tells which kernels run, and how short they are: fuse short ones "
		   "(torch.compile), enlarge the batch; a process of another job on this device shows in nvidia-smi. "
		   "Watch power or tokens per second instead of utilisation.",
	    .tradeoff = "None: utilisation was the wrong number.",
	    .confirm = "Double the batch: power rises, and utilisation stays." } },
	{ "gpu.throttled", "alone",
	  { .fix = "Look at cooling and power supply of the device (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER): "
		   "blocked air, fans, a failed supply, a hot neighbour in the same machine; drain the host if it repeats.",
	    .tradeoff = "None, but that the host is away meanwhile.",
	    .confirm = "The same job on another device: its clock stays up." } },
	{ "gpu.conv_autotune", "off",
	  { .fix = "torch.backends.cudnn.benchmark = True before the loop.",
	    .tradeoff = "The first step of each shape takes longer, and runs may differ in the last bits.",
	    .confirm = "50 steps with and without (laggard diff), the first five left out." } },
	{ "gpu.launch_bound", "pauses",
	  { .fix = "See what the host did in these moments: the evidence names the calls, and \"laggard record\" beside "
		   "the run shows who had the CPU and what the thread waited for. What prepares input belongs into "
		   "workers or another thread, a step ahead, or onto the device; what writes or prints, into the "
		   "background. Graphs or compilation do not help against pauses.",
	    .tradeoff = "Input prepared ahead takes memory and CPUs, and is a step older.",
	    .confirm = "Leave the named call out for a few steps (a constant in its place): the pauses go with it." } },
	{ "gpu.launch_bound", "graphs",
	  { .fix = "Graphs are replayed already: put what is launched between them (sampling, input "
		   "copies, metrics) into the graph or onto the device, and prepare the next "
		   "step's inputs on another thread while the graph runs." } },
	{ "gpu.launch_bound", "compiled",
	  { .fix = "torch.compile(model, mode=\"reduce-overhead\") so that compiled regions are "
		   "replayed as CUDA graphs; static shapes (pad, or mark_dynamic); move Python "
		   "work between regions off the critical thread; a larger batch." } },
	{ "gpu.launch_bound", "inference",
	  { .fix = "model = torch.compile(model, mode=\"reduce-overhead\") (or "
		   "torch.cuda.make_graphed_callables for static shapes); a larger batch; "
		   "torch.inference_mode()." } },
	{ "comms.straggler", "slower_device",
	  { .fix = "Compare that rank's device with a peer's on their hosts: nvidia-smi -q -d CLOCK,PERFORMANCE,POWER,"
		   "TEMPERATURE (reasons to slow down that are active, a lower limit), nvidia-smi --query-compute-apps="
		   "pid,used_memory --format=csv (a process that does not belong there), dmesg for Xid; then raise the "
		   "limit, end the other process, or drain the host.",
	    .tradeoff = "A host that is drained computes nothing while it is looked at.",
	    .confirm = "Let the rank and a peer change devices (CUDA_VISIBLE_DEVICES, another order of hosts): the "
		       "lateness stays with the device." } },
	{ "comms.straggler", "late_host_pauses",
	  { .fix = "See what this host does in these moments and the others do not: the evidence names the calls. "
		   "What only one rank does (a save, images, logs, evaluation) belongs into the background, or dealt "
		   "out. In a call that only queues work, or in nothing that was traced, the thread had no CPU or the "
		   "interpreter collected garbage: \"laggard record\" beside the run shows who had the CPU and what it "
		   "waited for; gc.freeze() behind the set-up, or gc.disable() and gc.collect() on all ranks in the same "
		   "step. Balanced batches do not help.",
	    .tradeoff = "Work in the background shares the GIL and the CPUs; without the collector cycles of objects "
			"stay until it is called.",
	    .confirm = "Leave the named call out for a few steps, or call gc.disable(): the pauses go with it." } },
	{ "comms.straggler", "late_host_slow",
	  { .fix = "The device is fed too slowly, batches are not uneven. Compare the CPUs of this host with a peer's: "
		   "frequency and governor (cpupower frequency-info, turbostat), which CPUs and which NUMA node the rank "
		   "may use (taskset -pc, numactl --show; near its GPU: nvidia-smi topo -m), OMP_NUM_THREADS and loader "
		   "workers on the same CPUs, a debugger or profiler that is on there only. \"laggard record\" on that "
		   "host shows who else has its CPUs.",
	    .tradeoff = "CPUs that one rank has for itself are missing elsewhere.",
	    .confirm = "Let the rank and one on another host change places: the lateness stays with the host." } },
	{ "gpu.launch_bound", "host_slower",
	  { .fix = "The same work is launched now faster, now slower, so it is the host's CPUs and not the program: who "
		   "else runs on them (\"laggard record\" beside the run names him), a CPU quota "
		   "(/sys/fs/cgroup/.../cpu.stat, nr_throttled), their clock (turbostat, cpupower frequency-info), "
		   "loader workers and OMP_NUM_THREADS beside the main thread, swapping or a collection in between. "
		   "Then pin the process to CPUs of its own, near its device.",
	    .tradeoff = "CPUs that one process has for itself are missing elsewhere.",
	    .confirm = "Run it alone on the machine, or with chrt -f 1: the slow steps are gone." } },
	{ "comms.straggler", "device_held",
	  { .fix = "Look who else is on that device: nvidia-smi --query-compute-apps=pid,used_memory --format=csv, "
		   "nvidia-smi pmon -c 5 (processes of other users or containers take turns with the rank's kernels), MPS "
		   "and MIG shares; end them, or move the rank. If nobody is: dmesg for Xid, and whether only this "
		   "rank's streams wait for each other, or its trace lacks rows.",
	    .tradeoff = "The other program has to run elsewhere.",
	    .confirm = "Let the rank and a peer change devices: the lateness stays with the device." } },
	FSDP_ADVICE("comms.exposed"),
	FSDP_ADVICE("comms.small_messages"),
	{ "comms.exposed", "send_recv",
	  { .fix = "Stages of a pipeline wait for each other: more microbatches a step (the bubble is (stages - 1) / "
		   "microbatches), a schedule that keeps stages busy (torch.distributed.pipelining.ScheduleInterleaved1F1B, "
		   "ScheduleZBVZeroBubble; Megatron: --num-layers-per-virtual-pipeline-stage), stages of equal time (the "
		   "embedding and the loss count as layers), and batch_isend_irecv on a stream of its own, waited for "
		   "where the tensor is used. Ring attention: send the next block while this one is computed.",
	    .tradeoff = "More microbatches are smaller ones with less work a kernel; interleaved stages send more and hold "
			"more activations.",
	    .confirm = "Double the microbatches for a few steps: the waits halve, or it is the link." } },
	{ "comms.exposed", "uneven_stages",
	  { .fix = "Give the named rank's stage less: a layer fewer (torch.distributed.pipelining: SplitPoint; Megatron: "
		   "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers; DeepSpeed: "
		   "partition_method=\"parameters\" or type:REGEX), the embedding and the loss counted as layers. If all "
		   "stages have the same layers, look at why this rank takes longer for them: its host, its "
		   "clock, its batches. What is left then is the bubble: more microbatches a step.",
	    .tradeoff = "Checkpoints of another split need converting; the stage that gets the layer holds its activations.",
	    .confirm = "Compare the ranks' times of a step in the evidence: move one layer, and the longest falls by a "
		       "layer's time." } },
	{ "comms.exposed", "all_to_all",
	  { .fix = "Rows travel to the rank that has their experts (or embedding tables) and back with nothing to hide it: "
		   "compute what does not need them meanwhile (the shared expert, the dense part, another half of the "
		   "batch), keep a group on one host (NVLink) where it fits, send fewer bytes (bf16 or fp8 for the way "
		   "there), and deal tokens or tables out so that no rank gets most of the rows. Experts: a dispatch made "
		   "for it (DeepEP, Megatron's flex dispatcher). Embeddings: TorchRec's TrainPipelineSparseDist, another "
		   "sharding plan.",
	    .tradeoff = "Two halves in turn hold two sets of activations; fp8 loses bits; experts of one host mean fewer or "
			"smaller ones; a pipelined input holds one batch more.",
	    .confirm = "Let rows be dealt out evenly for a few steps: what is left is transfer, the rest was "
		       "imbalance." } },
	{ "comms.exposed", "point_to_point",
	  { .fix = "The trace shows sends and receives, and not what for. Stages of a pipeline: more microbatches a step "
		   "and a schedule that keeps stages busy. An all-to-all (experts, embedding tables): compute what does "
		   "not need the rows meanwhile, send fewer bytes, deal the rows out evenly. Ring attention: send the next "
		   "block while this one is computed. Either way: a stream of its own, waited for where the tensor is used.",
	    .tradeoff = "What is under way holds its buffers; more and smaller pieces have less work a kernel.",
	    .confirm = "Record with torch.profiler and CPU activities (ranges named nccl:... tell which call it is) and give "
		       "that trace." } },
	{ "comms.exposed", "shards",
	  { .fix = "Shards are gathered or reduced with nothing to hide it: prefetch (FSDP1: backward_prefetch="
		   "BACKWARD_PRE, forward_prefetch=True; FSDP2: set_modules_to_forward_prefetch, "
		   "set_modules_to_backward_prefetch), wrap layers of equal size, keep parameters between forward and "
		   "backward where memory allows (reshard_after_forward=False, SHARD_GRAD_OP), shard inside a host and "
		   "replicate between hosts (HYBRID_SHARD, a 2-D DeviceMesh), gather in bf16. ZeRO: overlap_comm, "
		   "larger buckets. Tensor parallel: async TP (torch._inductor.config._micro_pipeline_tp).",
	    .tradeoff = "Prefetch holds two layers' parameters; without resharding or with replicas a device holds more; "
			"bf16 gathers need float32 kept in the optimizer.",
	    .confirm = "A few steps with reshard_after_forward=False (or SHARD_GRAD_OP): the gathers of the backward pass "
		       "are gone." } },
	{ "comms.exposed", "tensor_parallel",
	  { .fix = "Every layer waits for the other ranks' part: use collectives made for small messages (a custom or "
		   "one-shot all-reduce, symmetric memory, NVLS), fuse them with what follows (norm, add), overlap "
		   "halves of the batch, or serve with fewer ranks a replica and more replicas; keep a group on one "
		   "host.",
	    .tradeoff = "Fewer ranks hold a larger part of the model each and answer one request later.",
	    .confirm = "Serve the same requests with half the ranks a replica: tokens a second per device rise." } },
	{ "comms.degraded_link", "network",
	  { .fix = "On the named host find out why NCCL did not take the network that its peers take: "
		   "`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET` and the lines \"NET/IB : No device found\" or \"NET/Plugin\"; "
		   "ibv_devinfo (state PORT_ACTIVE?), ls /dev/infiniband inside the container (--device, memlock "
		   "unlimited), the plugin's library on LD_LIBRARY_PATH, NCCL_IB_DISABLE, NCCL_NET and NCCL_IB_HCA. To be "
		   "told at once the next time: NCCL_NET=IB (or the plugin's name) makes NCCL fail instead of falling "
		   "back.",
	    .tradeoff = "A job that demands its network does not start on a host that lacks it.",
	    .confirm = "Run all_reduce_perf of nccl-tests between the named host and one of its peers, and between two "
		       "peers." } },
	{ "comms.degraded_link", "transport",
	  { .fix = "On the named host: nvidia-smi topo -m and topo -p2p r (the pair should read as on its peers), dmesg for "
		   "NVLink and Xid errors, nvidia-smi nvlink -s; PCIe ACS off (lspci -vvv | grep ACSCtl; NCCL's "
		   "troubleshooting page) and the IOMMU as on the peers; in containers the same --ipc, /dev/shm and "
		   "visible devices; NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and NCCL_SHM_DISABLE as on the peers.",
	    .tradeoff = "Without ACS devices behind one PCIe switch are not isolated from each other: not for untrusted "
			"virtual machines.",
	    .confirm = "p2pBandwidthLatencyTest of the CUDA samples, or sendrecv_perf of nccl-tests, on this pair and on "
		       "the same pair of a peer." } },
	{ "comms.degraded_link", "gdr",
	  { .fix = "On the named host: lsmod | grep nvidia_peermem (modprobe nvidia_peermem; or a kernel and driver with "
		   "DMA-BUF, as on the peers), NCCL_NET_GDR_LEVEL as on the peers, nvidia-smi topo -m between the GPU and "
		   "its adapter, PCIe ACS off.",
	    .tradeoff = "The module pins device memory for the adapter; without ACS devices are less isolated.",
	    .confirm = "ib_write_bw --use_cuda=0 (perftest) on this adapter and on a peer's." } },
	{ "comms.degraded_link", "port_error",
	  { .fix = "Look at the port and its cable: ibstat, ibqueryerrors or ethtool -S (symbol errors, link downed), mlxlink "
		   "-d DEVICE --show_counters, the switch's log; reseat or replace cable or transceiver, and drain the "
		   "host until the port stays up.",
	    .tradeoff = "The host computes nothing while it is repaired.",
	    .confirm = "Watch link_downed (/sys/class/infiniband/*/ports/*/counters) for a day: it must not grow." } },
	{ "comms.missing_rank", "hang",
	  { .fix = "Look at what all of them wait for: dmesg for Xid and link errors on each host, ibstat and the counters "
		   "of the adapters, nvidia-smi for a device that is lost, one run with NCCL_DEBUG=INFO; and whether "
		   "each rank of the job has a log that ends at the timeout (one that was killed has none). "
		   "TORCH_FR_BUFFER_SIZE=2000 keeps each rank's last collectives for the next time.",
	    .tradeoff = "The flight recorder costs next to nothing.",
	    .confirm = "all_reduce_perf of nccl-tests on the same hosts hangs too, or Flight Recorder dumps of all ranks "
		       "show that each has entered that collective." } },
	{ "comms.mismatch", "dtype",
	  { .fix = "The ranks run the same code on tensors of different types: look for a cast that only some of them "
		   "make (autocast or .half() under a condition, a checkpoint loaded in another precision, a metric that "
		   "is an int on one rank and a float on another), and cast before the collective on every rank.",
	    .tradeoff = "None.",
	    .confirm = "Print the tensor's dtype before the named call on two ranks." } },
	{ "comms.mismatch", "size",
	  { .fix = "The ranks bring tensors of different sizes to a call that needs equal ones: a last batch that is shorter "
		   "on some ranks (drop_last=True, DistributedSampler), a model that is not the same on all (unused or "
		   "frozen parameters, another vocabulary or checkpoint), sequences that are not padded to one length "
		   "for all ranks. Where lengths differ on purpose: pad, or all_to_all and all_gather_object.",
	    .tradeoff = "Padding moves bytes that nobody needs; all_gather_object copies through the host.",
	    .confirm = "Print the tensor's shape before the named call on two ranks." } },
	{ "mem.oom", "fragmentation",
	  { .fix = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF from torch 2.9): pieces of "
		   "memory that nobody uses are mapped together. Where sizes change from step to step, keep them: "
		   "padding to a few lengths, drop_last=True.",
	    .tradeoff = "The first allocations are slower, and such memory cannot be shared between processes in every "
			"version (CUDA IPC).",
	    .confirm = "The same run with the setting passes this point; torch.cuda.memory_stats() shows "
		       "inactive_split_bytes fall." } },
	{ "mem.oom", "co_tenant",
	  { .fix = "Look who else is on the device (nvidia-smi, the pids of the message): end what is left from an "
		   "earlier run, give each job a device of its own (CUDA_VISIBLE_DEVICES, exclusive compute mode), and "
		   "let each rank use the device of its local rank.",
	    .tradeoff = "Devices that are not shared idle more.",
	    .confirm = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv right before the start shows the "
		       "memory in use." } },
	{ "mem.oom", "limit",
	  { .fix = "Find the limit: torch.cuda.set_per_process_memory_fraction(), a MIG slice or MPS limit, pinned or "
		   "managed memory, ulimit -v and the container's memory; or the free memory came back only after the "
		   "request had failed.",
	    .tradeoff = "None.",
	    .confirm = "torch.empty(bytes, dtype=torch.uint8, device='cuda') of that size in a new process." } },
	{ "mem.leak", "graph",
	  { .fix = "Something keeps the result of the forward pass, and with it the graph and all activations of each "
		   "step: losses that are added up or put into a list (take loss.item() or loss.detach()), outputs that "
		   "are kept for a metric, retain_graph=True. Evaluate under torch.no_grad().",
	    .confirm = "The named tensors have a grad_fn; with .detach() at the place that keeps them the growth stops." } },
	{ "mem.churn", "empty_cache",
	  { .fix = "Leave torch.cuda.empty_cache() out of the loop: it gives back what the next step asks for again, and "
		   "each cudaFree waits for the device. Where another process needs the memory, call it once.",
	    .tradeoff = "The process keeps what it once needed, also while it needs less.",
	    .confirm = "Without the call reserved memory stays level, and steps are shorter." } },
	{ "gpu.amp_misuse", "backward_under_autocast",
	  { .fix = "End the autocast block after the loss: with torch.autocast(device): loss = "
		   "criterion(model(x), y); then, outside of it, loss.backward() "
		   "(scaler.scale(loss).backward() for float16)." } },
	{ "gpu.amp_misuse", "no_loss_scaling",
	  { .fix = "torch.autocast(device, dtype=torch.bfloat16), which needs no scaling; or "
		   "torch.amp.GradScaler: scaler.scale(loss).backward(); scaler.step(optimizer); "
		   "scaler.update()." } },
	{ "gpu.amp_misuse", "manual_half",
	  { .fix = "Keep the model in float32 and let autocast choose: with torch.autocast(device, "
		   "dtype=torch.bfloat16) around forward and loss; on devices without bfloat16 use float16 "
		   "and torch.amp.GradScaler." } },
	{ "comms.ddp_flags", "bucket_cap_mb",
	  { .fix = "DistributedDataParallel(model, bucket_cap_mb=25), or 50 to 100 on fast links." } },
	{ "comms.ddp_flags", "gradient_as_bucket_view",
	  { .fix = "DistributedDataParallel(model, gradient_as_bucket_view=True).",
	    .tradeoff = "Gradients are views: detach_() on them fails, and whoever keeps a gradient over steps "
			"has to clone it." } },
	{ "comms.small_messages", "ddp_buckets",
	  { .fix = "DistributedDataParallel(model, bucket_cap_mb=25), or 50 to 100 on fast links: the "
		   "gradients of a step in a few pieces." } },
	{ "data.loader_wait", "inferred",
	  { .fix = "Let batches be made ahead of the loop: a prefetching iterator on another thread or "
		   "process (Ray Data: prefetch_batches; Hugging Face and WebDataset: wrap them in a "
		   "DataLoader with num_workers=4, persistent_workers=True, pin_memory=True).",
	    .confirm = "Mark it: with torch.profiler.record_function(\"data_loading\") around next(), or run "
		       "on one batch that is kept, and compare the step time." } },
	{ "gpu.host_sync", "fsdp_limit_all_gathers",
	  { .fix = "FullyShardedDataParallel(..., limit_all_gathers=False), if memory allows; else smaller "
		   "units.",
	    .tradeoff = "More layers' parameters are in memory at once; the allocator may then retry, which "
			"costs more." } },
	{ "warmup.dominates", "recording",
	  { .fix = "Record longer, or the job when it is past its start (laggard record -p PID --for 60s). "
		   "If the start itself matters: a compile cache (TORCHINDUCTOR_CACHE_DIR), memory that is "
		   "touched once, fewer processes that start at once." } },
};

const struct lg_advice *lg_detail_advice(const struct lg_finding *f)
{
	const char *key = f->advice ? f->advice : f->detail;

	for (size_t i = 0; key && i < sizeof advice / sizeof *advice; i++)
		if (!strcmp(advice[i].id, f->id) && !strcmp(advice[i].detail, key))
			return &advice[i].words;
	return NULL;
}
