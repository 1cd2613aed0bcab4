"""The benchmark of re-asking, against a server that draws evenly from the range of the schema."""

from __future__ import annotations

from benchmarks.reask import run


async def test_a_model_that_reads_nothing_gains_by_the_schema_and_by_samples_alone() -> None:
    rows = {name: count async for name, count in run(decisions=10, seed=1, use_script=True)}

    plain, learned = rows["typed reasons"], rows["and in the schema"]
    assert rows["no reasons"].accepted == rows["raw reasons"].accepted == plain.accepted
    assert learned.accepted > plain.accepted
    assert rows["8 samples"].accepted > rows["raw reasons"].first
    assert rows["8 samples"].proposals == 80
