"""Marked parts of a page: `<!-- name -->` … `<!-- end -->`, of which a program writes the middle."""

import re


def with_part(text: str, name: str, content: str) -> str:
    """The page with one part made anew; a page without that part stays as it is."""
    marked = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    # Split and joined, so that the content goes in literally: its backslashes are none of a
    # replacement's.
    parts = marked.split(text)
    if len(parts) != 4:
        return text
    before, start, end, after = parts
    middle = f"{content}\n" if content else ""
    return f"{before}{start}{middle}{end}{after}"
