"""Quantiles of Student's t against the printed tables."""

import pytest

from advisor.student_t import two_sided_quantile

# Two-sided 95% and 99%, from any table of the distribution.
TABLE = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 4: (2.776, 4.604), 5: (2.571, 4.032)}
TABLE |= {7: (2.365, 3.499), 10: (2.228, 3.169), 29: (2.045, 2.756), 120: (1.980, 2.617)}


@pytest.mark.parametrize("degrees", TABLE)
def test_matches_the_tables(degrees):
    narrow, wide = TABLE[degrees]
    assert two_sided_quantile(0.95, degrees) == pytest.approx(narrow, abs=6e-4)
    assert two_sided_quantile(0.99, degrees) == pytest.approx(wide, abs=6e-4)


@pytest.mark.parametrize(("confidence", "degrees"), [(0.95, 0), (0.0, 3), (1.0, 3)])
def test_no_quantile_is_invented(confidence, degrees):
    with pytest.raises(ValueError, match="no quantile"):
        two_sided_quantile(confidence, degrees)
