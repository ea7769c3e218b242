"""Texts in the CSV files that a browser downloads, which people open in a spreadsheet."""

STARTS = ("=", "+", "-", "@", "\t", "\r")  # of what a spreadsheet computes


def spreadsheet_text(text: str) -> str:
    """The text as a cell that no spreadsheet computes: an apostrophe before what could be a formula.

    Numbers stay as they are.
    """
    return f"'{text}" if text.startswith(STARTS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
