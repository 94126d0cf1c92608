"""The output of `print(client.compare(id))`: a table, one line per candidate."""

from tests.factories.comparison import made_comparison


def test_a_comparison_prints_as_a_table_of_its_candidates() -> None:
    comparison = made_comparison()
    head, *lines = str(comparison).splitlines()
    assert head.split()[:2] == ["candidate", "lr"]
    assert [line.split()[0] for line in lines] == [row.candidate for row in comparison.rows]
    better, baseline = lines
    assert "-0.0505 [-0.0614, -0.0396]  better" in better
    assert "2.3010 ± 0.0025" in baseline and "–" in baseline
    assert max(map(len, (head, *lines))) < 200
