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
