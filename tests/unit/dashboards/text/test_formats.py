"""Numbers as people read them."""

import math

import pytest

from dashboards.text import formats


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (formats.loss, 2.29214, "2.2921"),
        (formats.loss, -0.41209, "−0.4121"),
        (formats.loss, 123456.0, "1.2e+05"),
        (formats.loss, None, "—"),
        (formats.loss, math.nan, "—"),
        (formats.difference, -0.029, "−0.0290"),
        (formats.difference, 0.0012, "+0.0012"),
        (formats.difference, 0.0, "±0.0000"),
        (formats.p_value, 0.0341, "p = 0.034"),
        (formats.p_value, 0.0002, "p < 0.001"),
        (formats.p_value, None, ""),
        (formats.p_value, 0.0496, "p < 0.05"),
        (formats.p_value, 0.05, "p = 0.05"),
        (formats.p_value, math.nextafter(0.05, 0), "p < 0.05"),
        (formats.difference, 0.0000213, "+0.00002"),
        (formats.difference, -3e-14, "−3e-14"),
        (formats.size, 6_701_056, "6.70 MB"),
        (formats.size, 447_488, "447 kB"),
        (formats.size, 12_461_000_000, "12.5 GB"),
        (formats.size, 12, "12 B"),
        (formats.percent, 0.0668, "6.7 %"),
        (formats.percent, 0.555, "56 %"),
        (formats.percent, 0.0, "0 %"),
        (formats.seconds, 0.0112, "11.2 ms"),
        (formats.seconds, 1.234, "1.23 s"),
        (formats.duration, 42.4, "42 s"),
        (formats.duration, 245, "4 min 05 s"),
        (formats.duration, 3780, "1 h 03 min"),
        (formats.duration, 187_200, "2 d 4 h"),
        (formats.device_time, 0.0, "0 s"),
        (formats.device_time, 0.0071, "26 s"),
        (formats.device_time, 0.0123, "44 s"),
        (formats.device_time, 0.19, "11 min 24 s"),
        (formats.device_time, 13.84, "13.8 h"),
        (formats.device_time, None, "—"),
        (formats.count, 2880, "2,880"),
        (formats.compact, 24_630, "24.6 k"),
        (formats.compact, 512, "512"),
        (formats.rate, 0.002, "0.002"),
        (formats.rate, 1000.0, "1000"),
        (formats.rate, 0.00194625, "0.001946"),
    ],
)
def test_quantity_is_written_as_its_field_writes_it(function, value, text):
    assert function(value) == text


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [(0, "just now"), (59, "just now"), (200, "3 min ago"), (7300, "2 h ago"), (90_000, "1 day ago"),
     (180_000, "2 days ago"), (-5, "just now")],
)  # fmt: skip
def test_ago_counts_in_the_largest_unit(elapsed, text):
    assert formats.age(1000.0, 1000.0 + elapsed) == text


def test_time_of_a_cpu_is_never_called_that_of_a_gpu():
    assert formats.device_time_title("cpu") == "Device time (cpu)"
    assert formats.device_time_title("NVIDIA H100") == "Device time (gpu)"
    assert formats.device_time_title(None) == "Device time"


def test_sentences_get_the_minus_sign_in_their_numbers_and_nowhere_else():
    assert formats.sentence("(-0.081 to -0.057), n = 3") == "(−0.081 to −0.057), n = 3"
    assert formats.sentence("gpt2-124m, 1e-05, 5 - 3, 2026-11-22") == "gpt2-124m, 1e-05, 5 - 3, 2026-11-22"


def test_no_line_of_a_page_ends_within_a_figure():
    shown = formats.page_sentence("2.61 ± 0.02 at lr 0.004 (95 % interval -0.08 to -0.05, n = 3, p < 0.001), a <= b")
    assert (
        shown.replace("\N{NO-BREAK SPACE}", "_")
        == "2.61_±_0.02 at lr_0.004 (95_% interval −0.08 to −0.05, n_=_3, p_<_0.001), a ≤ b"
    )
