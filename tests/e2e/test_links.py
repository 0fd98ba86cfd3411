# SPDX-License-Identifier: Apache-2.0
"""comms.degraded_link through the command line: logs of NCCL of several hosts, in one file, in one file a host,
and inside a job's log; each beside a healthy twin."""
import json

import pytest

HOSTS, GPUS = 4, 2


def lines_of(host, fault=None):
    """What the ranks of one host print while the job's communicator is set up."""
    out = []
    for gpu in range(GPUS):
        rank, pid = host * GPUS + gpu, 100 + gpu  # containers: the same pids on every host
        me = f"worker-{host}:{pid}:{pid + 20} [{gpu}] NCCL INFO"
        comm = f"comm 0x7f{rank:02x} rank {rank} n{{}}anks {HOSTS * GPUS}"
        init = f"{comm.format('r')} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}b000 commId 0xabc - Init"
        net = "Socket" if fault == "network" else "IB"
        way = "SHM/direct/direct" if fault == "P2P off" else "P2P/CUMEM"
        out += [f"{me} cudaDriverVersion 12040"]
        out += [f"{me} NCCL_P2P_DISABLE set by environment to 1."] if fault == "P2P off" else []
        out += [f"{me} NET/IB : No device found."] if fault == "network" else []
        out += [f"{me} Using network {net}", f"{me} {init} START",
                f"{me} {comm.format('R')} nNodes {HOSTS} localRanks {GPUS} localRank {gpu} MNNVL 0",
                f"{me} 8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer",
                f"{me} {init} COMPLETE"]
        out += [f"{me} Channel 00/0 : {rank}[{gpu}] -> {rank + 1}[{gpu + 1}] via {way}" if gpu + 1 < GPUS else
                f"{me} Channel 00/0 : {rank}[{gpu}] -> {(rank + 1) % (HOSTS * GPUS)}[0] [send] via NET/{net}/0"]
    return out


def job(fault=None, bad=2):
    return [lines_of(h, fault if h == bad else None) for h in range(HOSTS)]


@pytest.fixture
def links(laggard, tmp_path):
    """links(files) -> (verdict, its findings of the rule); files: lists of lines."""
    def run(files):
        paths = []
        for i, lines in enumerate(files):
            paths.append(tmp_path / f"{i}.log")
            paths[-1].write_text("\n".join(lines) + "\n")
        done = laggard("explain", *paths, "--json")
        assert done.returncode == 0, done.stderr
        verdict = json.loads(done.stdout)
        return verdict, [f for f in verdict["findings"] if f["id"] == "comms.degraded_link"]
    return run


def interleaved(hosts):
    return [line for together in zip(*hosts) for line in together] if len({len(h) for h in hosts}) == 1 else \
        [line for i in range(max(map(len, hosts))) for h in hosts for line in h[i:i + 1]]


def in_a_job_log(lines):
    return ["loading the model", "[rank0]: UserWarning: something of torch's"] + \
        [text for i, line in enumerate(lines) for text in (f"[rank{i % 4}]: {line}", "loss goes down", "and so on")]


LAYOUTS = {"one file": lambda hosts: [interleaved(hosts)], "a file a host": lambda hosts: hosts,
           "job log": lambda hosts: [in_a_job_log(interleaved(hosts))],
           # one file for the first ranks of all hosts, one for the others
           "a file a device": lambda hosts: [[x for x in interleaved(hosts) if f"[{g}] NCCL" in x]
                                             for g in range(GPUS)],
           "job logs": lambda hosts: [in_a_job_log(h) for h in hosts]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fault,detail,reason", [("network", "network", None),
                                                 ("P2P off", "transport", "NCCL_P2P_DISABLE=1")])
def test_the_host_is_named(links, layout, fault, detail, reason):
    verdict, found = links(LAYOUTS[layout](job(fault)))
    assert [f["detail"] for f in found] == [detail], verdict["findings"]
    finding = found[0]
    assert "worker-2 (ranks 4-5)" in finding["title"] and "worker-1" not in finding["title"]
    assert finding["severity"] == "medium" and finding["lost_ms"] is None
    assert finding["culprit"]["relation"] == ("self" if reason else "hardware")
    assert not reason or (reason in finding["title"] and "unset NCCL_P2P_DISABLE" in finding["fix"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_job_is_left_alone_and_told_so(links, layout):
    verdict, found = links(LAYOUTS[layout](job()))
    assert not found
    said = [x for x in verdict["limits"] if x.startswith("NCCL's logs: ")]
    assert len(said) == 1 and f"{HOSTS} hosts, {HOSTS * GPUS} ranks" in said[0] and "nothing stands out" in said[0]


def test_one_host_has_nothing_to_be_compared_with(links):
    verdict, found = links([lines_of(0, "network")])
    assert not found and any("nothing to compare it with" in x for x in verdict["limits"])


def test_the_rule_is_in_the_catalogue(laggard):
    done = laggard("rules", "comms.degraded_link")
    assert done.returncode == 0 and "nccl-tests" in done.stdout


def set_up(pid, gpu, rank, nranks, channels, ident, destroy=False):
    """A communicator of devices of one host, as one of its ranks tells of it."""
    me = f"n1:{pid}:{pid + 20} [{gpu}] NCCL INFO"
    name = f"comm 0x7f{rank:02x} rank {rank} nranks {nranks} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}b000"
    return [f"{me} {name} commId {ident} - Init START",
            f"{me} comm 0x7f{rank:02x} rank {rank} nRanks {nranks} nNodes 1 localRanks {nranks} localRank {rank} MNNVL 0",
            f"{me} {channels} coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer",
            f"{me} {name} commId {ident} - Init COMPLETE"] + ([f"{me} {name} - Destroy COMPLETE"] if destroy else [])


def test_another_pair_of_devices_is_no_past_of_the_first(links):
    """A process makes a pair with its neighbour, and when that is gone one with a device further away."""
    world = [line for g in range(4) for line in set_up(100 + g, g, g, 4, 8, "0xabc")]
    first = set_up(100, 0, 0, 2, 24, "0x1", True) + set_up(101, 1, 1, 2, 24, "0x1", True)
    other = set_up(100, 0, 0, 2, 4, "0x2", True) + set_up(103, 3, 1, 2, 4, "0x2", True)
    assert not links([world + first + other])[1]
    # The whole job's communicator has the same members each time.
    ended = [line for g in range(4) for line in set_up(100 + g, g, g, 4, 24, "0xabc", True)]
    (found,) = links([ended + world])[1]
    assert found["detail"] == "channels" and "set up again with 8 channels, it had 24" in found["title"]


def measured(pid, results, size=1 << 26):
    """What nccl-tests prints of one run on two devices."""
    return ["# nThread 1 nGpus 1", f"#  Rank  0 Group  0 Pid  {pid} on n1 device  0 [0x1b] NVIDIA H100",
            f"#  Rank  1 Group  0 Pid  {pid + 1} on n1 device  1 [0x1c] NVIDIA H100"] + \
        [f"  {size}  {size // 4}  float  sum  -1  100.0  {x:.2f}  {x:.2f}  0  100.0  {x:.2f}  {x:.2f}  0" for x in results]


@pytest.mark.parametrize("n", [5, 300])
def test_the_slow_one_of_many_runs(links, n):
    def runs(bad):
        return [[line for i in range(n) for line in measured(1000 + 2 * i, [bad if i == 3 else 100.0])]]
    (found,) = links(runs(50.0))[1]
    assert found["detail"] == "run_bandwidth" and "(pid 1006) measures 50 % less" in found["title"]
    assert not links(runs(100.0))[1]


def test_what_cannot_be_chance_is_said_so(links):
    """Of 1400 results in a row the order alone has a probability that no number holds."""
    (found,) = links([measured(500, [100.0 + i % 3 for i in range(700)] + [80.0 + i % 3 for i in range(700)])])[1]
    assert found["detail"] == "own_bandwidth" and "by chance less than once in a million" in found["evidence"][0]["text"]
    (found,) = links([measured(500, [100.0 + i % 3 for i in range(5)] + [80.0 + i % 3 for i in range(5)])])[1]
    assert "by chance once in 252" in found["evidence"][0]["text"]


@pytest.mark.parametrize("events,end", [
    (["port error", "port active"], "lost its link 1 time and came back"),
    (["port error", "port active", "port error"], "lost its link 2 times, and after the last time no line says that"),
    (["port error"], "lost its link 1 time, and no line says that it came back")])
def test_whether_a_port_came_back(links, events, end):
    lines = [f"n1:500:520 [0] NCCL WARN NET/IB : mlx5_0:1 Got async error event: {e}" for e in events]
    (found,) = links([["n1:500:500 [0] NCCL INFO Using network IB"] + lines])[1]
    assert f"port mlx5_0:1 of n1 {end}" in found["title"]


def test_ports_without_names_are_not_one(links):
    """NCCL before 2.21 does not say which: eight that failed once are none that failed eight times."""
    lines = [f"n1:500:520 [0] NCCL WARN NET/IB : Got async event : {e}" for e in ["port error"] * 8 + ["port active"] * 8]
    (found,) = links([["n1:500:500 [0] NCCL INFO Using network IB"] + lines])[1]
    assert "ports of n1 lost their link 8 times, all of them together" in found["title"]


@pytest.mark.parametrize("setting", [None, "NCCL_ALGO", "NCCL_PROTO"])
def test_a_sweep_of_settings_is_no_link_that_fell(links, setting):
    """Eight runs on the same devices, the last four slower: with a setting of their own that is no news."""
    lines = []
    for i in range(8):
        me = f"n1:{1000 + 2 * i}:{1000 + 2 * i} [0] NCCL INFO"
        lines += [f"{me} {setting} set by environment to Tree."] if setting and i >= 4 else []
        lines += [f"{me} NCCL_DEBUG set by environment to INFO."] + measured(1000 + 2 * i, [100.0 if i < 4 else 70.0 + i] * 2)
    found = [f for f in links([lines])[1] if f["detail"] == "own_bandwidth"]
    assert [f["severity"] for f in found] == ["low" if setting else "medium"]
    assert any(f"{setting}=Tree" in e["text"] for e in found[0]["evidence"]) == bool(setting)


@pytest.mark.parametrize("there, back, told", ((20, 240, True), (119, 240, True), (125, 240, False), (240, 240, False)))
def test_a_path_that_is_narrower_one_way_is_told_of_one_host(links, there, back, told):
    """NCCL_DEBUG_SUBSYS=GRAPH prints the paths of each device; every rank of a host prints the same."""
    log = lines_of(0)
    for gpu in range(GPUS):
        me = f"worker-0:{100 + gpu}:{120 + gpu} [{gpu}] NCCL INFO"
        log += [f"{me} GPU/1b000 :GPU/1b000 (0/5000.000000/LOC) GPU/2b000 (1/{there}.000000/NVL) CPU/0 (1/24.0/PHB) ",
                f"{me} GPU/2b000 :GPU/1b000 (1/{back}.000000/NVL) GPU/2b000 (0/5000.000000/LOC) CPU/0 (1/24.0/PHB) "]
    verdict, found = links([log])
    assert len(found) == told
    if told:
        assert (found[0]["detail"], found[0]["severity"]) == ("one_way", "medium")
        assert f"from GPU/1b000 to GPU/2b000 has {there} GB/s, and 240 back" in found[0]["title"]
        assert len(found[0]["evidence"]) == 1, verdict


def sweep(links_gbps, best_gbps, hosts=1, largest=30):
    """nccl-tests on the devices of one host, in NCCL's log of them: latency, then the best."""
    log = [line for g in range(4) for line in set_up(100 + g, g, g, 4, 8, "0x1")]
    log = [line.replace("nNodes 1", f"nNodes {hosts}") for line in log]
    at = next(i for i, line in enumerate(log) if "coll channels" in line)
    log.insert(at, f"n1:100:120 [0] NCCL INFO === System : maxBw {links_gbps} totalBw {links_gbps} ===")
    log += ["# nThread 1 nGpus 4 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20"]
    log += [f"#  Rank  {g} Group  0 Pid {100 + g if g else 100} on n1 device  {g} [0x1b] NVIDIA A100-SXM4-80GB" for g in range(4)]
    for power in range(16, largest + 1):
        size = 1 << power
        bus = best_gbps * size / (size + (1 << 22))
        log.append(f"{size} {size // 4} float sum -1 {size / bus / 1e3:.1f} {bus / 1.5:.2f} {bus:.2f} 0 {size / bus / 1e3:.1f} {bus / 1.5:.2f} {bus:.2f} 0")
    return log


def test_a_sweep_far_below_the_links_of_its_host(links):
    (found,) = links([sweep(240.0, 11.5)])[1]
    assert found["detail"] == "below_class" and found["severity"] == "medium" and "240 GB/s" in found["title"], found
    assert not links([sweep(240.0, 228.0)])[1]
    assert not links([sweep(24.0, 11.5)])[1], "PCIe: half of its rate is what it does"
    assert not links([sweep(240.0, 11.5, hosts=2)])[1], "over the network"
    assert not links([sweep(240.0, 228.0, largest=20)])[1], "small messages measure latency"
