# SPDX-License-Identifier: Apache-2.0
"""laggard mcp: what an assistant gets is what the commands print; what is no message is answered, and costs nothing."""
import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRACE = ROOT / "tests/data/kineto/train.json.gz"
LOG = ROOT / "tests/data/torchlog/job.log"


@pytest.fixture
def talk(laggard_path, tmp_path):
    """talk(message or bytes, ...) -> the answers, a list for a batch."""
    def call(*messages):
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        done = subprocess.run([laggard_path, "mcp"], input=b"\n".join(lines) + b"\n", capture_output=True, check=False, timeout=120,
                              cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
        return [json.loads(line) for line in done.stdout.splitlines()]
    return call


def ask(method, number=1, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def use(tool, **arguments):
    return ask("tools/call", name=tool, arguments=arguments)


def test_a_session(talk):
    answers = talk(ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"}),
                   {"jsonrpc": "2.0", "method": "notifications/initialized"}, ask("ping", "p"), ask("tools/list", 3))
    assert [(a["jsonrpc"], a["id"]) for a in answers] == [("2.0", 1), ("2.0", "p"), ("2.0", 3)]
    hello = answers[0]["result"]
    assert hello["protocolVersion"] == "2025-06-18" and hello["serverInfo"]["name"] == "laggard" and "tools" in hello["capabilities"]
    assert answers[1]["result"] == {}
    tools = {t["name"]: t for t in answers[2]["result"]["tools"]}
    assert set(tools) == {"explain", "steps", "query", "diff", "memory", "hang", "rules"}
    for tool in tools.values():
        schema = tool["inputSchema"]
        assert schema["type"] == "object" and set(schema["required"]) <= set(schema["properties"]) and len(tool["description"]) > 40
        assert tool["annotations"] == {"readOnlyHint": True}
    # A version that is not known: the newest that is; the client decides.
    assert talk(ask("initialize", protocolVersion="1999-01-01"))[0]["result"]["protocolVersion"] == "2025-11-25"


def test_a_tool_says_what_its_command_prints(talk, laggard):
    other = ROOT / "tests/data/kineto/gpu.json.gz"
    other = other if other.exists() else TRACE
    sql = "SELECT name, count(*) AS n FROM span GROUP BY name ORDER BY n DESC LIMIT 3"
    for message, args in (
            (use("explain", files=[str(TRACE)], cost_per_hour=98.5), ("explain", "--json", "--cost-per-hour", "98.5", TRACE)),
            (use("steps", files=[str(TRACE)]), ("steps", "--json", TRACE)),
            (use("query", files=[str(TRACE)], sql=sql), ("query", "--json", TRACE, sql)),
            (use("diff", before=str(TRACE), after=str(other)), ("diff", "--json", TRACE, other)),
            (use("memory", files=[str(LOG)]), ("memory", "--json", LOG)),
            (use("hang", files=[str(ROOT / "tests/data/pyspy/dump.txt")]), ("hang", "--json", ROOT / "tests/data/pyspy/dump.txt")),
            (use("rules", id="host.lock_held"), ("rules", "--json", "host.lock_held")), (use("rules"), ("rules", "--json"))):
        result = talk(message)[0]["result"]
        printed = laggard(*args)
        assert printed.returncode == 0 and result["isError"] is False
        assert result["content"][0] == {"type": "text", "text": printed.stdout}, args
        assert "".join(c["text"] for c in result["content"][1:]) == printed.stderr


def test_what_fails_is_said(talk, tmp_path):
    (tmp_path / "no.json").write_text("{", encoding="utf-8")
    for message, said in ((use("explain", files=["no.json"]), "no.json"), (use("explain", files=["absent"]), "absent"),
                          (use("query", files=[str(TRACE)], sql="DELETE FROM span"), "may not be modified"),
                          (use("query", files=[str(TRACE)], sql="ATTACH 'x.db' AS x"), ""), (use("rules", id="no.such"), "no.such")):
        result = talk(message)[0]["result"]
        assert result["isError"] is True and said in result["content"][0]["text"], message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["no.json"]


def test_a_path_is_no_option(talk, tmp_path):
    """What an assistant was talked into by a file's text must not write anywhere."""
    for bad in ("--html=page.html", "-opage", "--save-baseline=page"):
        for tool in ("explain", "steps", "memory", "hang"):
            assert talk(use(tool, files=[bad, str(TRACE)]))[0]["result"]["isError"] is True
        assert talk(use("diff", before=bad, after=str(TRACE)))[0]["result"]["isError"] is True
        assert talk(use("explain", files=[str(TRACE)], cost_per_hour=bad))[0]["error"]["code"] == -32602
    assert not list(tmp_path.iterdir())
    assert talk(use("explain", files=["-"]))[0]["result"]["isError"] is True  # there is nothing on its standard input


@pytest.mark.parametrize("line, code", [
    (b"x", -32700), (b"{", -32700), (b'"text"', -32600), (b"7", -32600), (b"{}", None), (b'{"id":1}', -32600),
    (b'{"id":1,"method":7}', -32600), (b'{"id":1,"method":"no/such"}', -32601), (b'{"id":1,"result":{}}', None),
    (b'{"id":1,"method":"tools/call"}', -32602), (b'{"id":1,"method":"tools/call","params":[]}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"record","arguments":{"files":["x"]}}}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"explain"}}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"explain","arguments":{"files":[]}}}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"explain","arguments":{"files":[1]}}}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"explain","arguments":{"files":"x"}}}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"query","arguments":{"files":["x"],"sql":1}}}', -32602),
    (b'{"id":1,"method":"tools/call","params":{"name":"explain","arguments":{"files":[' + b'"x",' * 5000 + b'"x"]}}}', -32602),
    (b"[" * 100_000, -32700), (b"[" * 500 + b"]" * 500, -32700), (b'{"id":1,"method":"ping' + b"x" * (1 << 20) + b'"}', -32600),
    (b"\0\xff\xfe", -32700), (b"[]", None),
], ids=lambda v: repr(v)[:40])
def test_what_is_no_request_is_answered_and_forgotten(talk, line, code):
    answers = talk(line, b"", b"  \r", ask("ping", 99))
    assert answers[-1] == {"jsonrpc": "2.0", "id": 99, "result": {}}
    errors = [a["error"]["code"] for a in answers[:-1] if isinstance(a, dict)]
    assert errors == ([code] if code else [])


def test_a_batch_is_answered_as_one(talk):
    assert talk([ask("ping", 1), {"jsonrpc": "2.0", "method": "ping"}, ask("no", 2)]) == [[
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": -32601, "message": "no such method"}}]]


def test_a_long_answer_is_cut_and_says_so(talk):
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i, 'xxxxxxxxxxxxxxxxxxxxxxxxx' x FROM n"
    result = talk(use("query", files=[str(TRACE)], sql=sql))[0]["result"]
    assert len(result["content"][0]["text"]) == 4 << 20 and "cut" in result["content"][1]["text"] and not result["isError"]


def test_it_ends_with_its_client(laggard_path):
    with subprocess.Popen([laggard_path, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        p.stdin.write(json.dumps(ask("ping")).encode() + b"\n")
        p.stdin.flush()
        assert json.loads(p.stdout.readline())["result"] == {}  # at once, not at the end
        p.stdin.close()
        assert p.wait(timeout=10) == 0
