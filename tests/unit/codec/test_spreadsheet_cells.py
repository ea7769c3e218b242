import pytest

from service.codec.spreadsheet_cells import spreadsheet_text


@pytest.mark.parametrize(
    "text",
    ["=cmd|' /C calc'!A0", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=", "--1"],
)
def test_what_a_spreadsheet_would_compute_becomes_text(text: str):
    assert spreadsheet_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["low", "", "-1", "+0.5", "1e-3", "a=b", "'quoted", "-inf"])
def test_names_and_numbers_stay_as_they_are(text: str):
    assert spreadsheet_text(text) == text
