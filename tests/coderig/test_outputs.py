"""Outputs that are too long to be shown, in runs of the command line: kept, read later, masked, forgotten."""

from __future__ import annotations

import re

import pytest
from coderig_kit import Cli, call, command
from hypothesis import given, settings
from hypothesis import strategies as st

from coderig.masking import Mask

SECRETS = {
    "A_KEY": "abababab",
    "B_TOKEN": "ababababab-long",
    "C_SECRET": 'with"quote',
    "D_KEY": "gehe\u00efmnis",
}


@pytest.mark.spec("OE-50")
def test_another_process_that_resumes_the_run_reads_an_output_by_its_handle(cli: Cli) -> None:
    first = [command("seq 1 20000", id="a"), command("touch made", id="b")]
    (cli.work / "rules.toml").write_text('[[rule]]\ndecision = "allow"\npattern = "seq *"\n')
    done = cli.run("run", "x", "--model", cli.script(first), "--policy", "rules.toml")
    assert done.code == 3, done
    run_id = cli.only_id
    (shown,) = cli.outputs(run_id)["a"]
    handle = re.search(r"handle ([0-9a-f]{12})", shown)
    assert handle is not None
    (path,) = (cli.home / "state/runs" / run_id / "outputs").iterdir()
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(1, 20_001))
    assert path.stat().st_mode & 0o777 == 0o600
    read = {"calls": [call("read_output", "c", handle=handle[1], mode="regex", pattern="^1000.$", count=2)]}
    cli.script([*first, read, "Done."])
    assert cli.run("resume", run_id, "--yes").code == 0
    assert cli.outputs(run_id)["c"] == [
        "2 lines match; there are more, go on with offset 10002\n10000:\t10000\n10001:\t10001"
    ]
    assert cli.run("forget", run_id).code == 0
    assert not path.exists()
    assert cli.ids() == []


@pytest.mark.spec("CLI-22", "OE-50")
def test_a_secret_is_not_kept_in_an_output(cli: Cli) -> None:
    secret = "sk-secret-0123456789"
    (cli.work / "secret").write_text(secret)
    model = cli.script(
        [command("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; cat secret; done"), "Done."]
    )
    done = cli.run("run", "x", "--model", model, "--yes", env={"MY_API_KEY": secret})
    assert done.code == 0, done
    (path,) = (cli.home / "state/runs" / cli.only_id / "outputs").iterdir()
    kept = path.read_text()
    assert secret not in kept
    assert kept == "".join(f"{number}\n[masked]" for number in range(1, 3001))


@pytest.mark.spec("CLI-22")
@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["abababab", "abab", "-long", "ababababab-long", "x", "\u00ef", 'with"quote']),
        max_size=12,
    ),
    st.lists(st.integers(0, 120), max_size=8),
)
def test_secrets_are_taken_out_of_bytes_however_they_come_cut(parts: list[str], cuts: list[int]) -> None:
    mask = Mask(SECRETS)
    text = "".join(parts)
    data, stream = text.encode(), mask.rewriter()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [stream.feed(data[edges[i] : edges[i + 1]]) for i in range(len(edges) - 1)]
    assert b"".join([*pieces, stream.end()]).decode() == mask.text(text)


@pytest.mark.spec("CLI-22")
def test_without_secrets_bytes_pass_at_once() -> None:
    stream = Mask({}).rewriter()
    assert (stream.feed(b"abc"), stream.end()) == (b"abc", b"")
