"""The public names of the model: what type checkers see is what a program gets."""

import ast
from pathlib import Path

import pytest

import model


def seen_by_type_checkers() -> dict[str, str]:
    """Each name with its module, from the imports that only type checkers follow."""
    tree = ast.parse(Path(model.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_and_programs_find_the_same_names():
    assert seen_by_type_checkers() == model._HOMES


@pytest.mark.parametrize("name", sorted(model._HOMES))
def test_a_public_name_is_there(name: str):
    assert getattr(model, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = model.Nonsense
