"""The API reference as a page, from the OpenAPI description."""

from collections.abc import Iterator
from typing import Any

Described = dict[str, Any]


def api_reference(described: Described) -> str:
    """Every call by its tag, then every shape that calls refer to."""
    tags: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            text = "\n".join(_operation(method.upper(), path, operation))
            tags.setdefault(operation.get("tags", ["pages"])[0], []).append(text)
    parts = [
        "# API reference",
        "",
        "From [openapi.json](openapi.json). [The API](api.md) explains it.",
        "",
    ]
    for tag, texts in tags.items():
        parts += [f"## {tag.capitalize()}", "", *texts]
    parts += ["## Shapes", ""]
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += _shape(name, schema)
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Described) -> Iterator[str]:
    yield from (f"### {method} {path}", "", operation.get("description", operation["summary"]), "")
    if "x-access" in operation:
        yield from (f"Needs: {operation['x-access']}.", "")
    if operation.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for each in operation["parameters"]:
            words = each.get("description", "")
            yield f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {_cell(words)} |"
        yield ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from (f"- body, `{media}`: {_type(content.get('schema', {}))}",)
    for status, answer in sorted(operation["responses"].items()):
        kinds = [_type(each.get("schema", {})) for each in answer.get("content", {}).values()]
        shown = f": {' or '.join(dict.fromkeys(kinds))}" if kinds else ""
        yield f"- {status} {answer['description']}{shown}"
    yield ""


def _shape(name: str, schema: Described) -> Iterator[str]:
    yield from (
        f"(shape-{name.lower()})=",
        "",
        f"### {name}",
        "",
        schema.get("description", ""),
        "",
    )
    if "properties" in schema:
        required = set(schema.get("required", ()))
        yield from ("| field | type | meaning |", "|---|---|---|")
        for field, each in schema["properties"].items():
            mark = "" if field in required else ", optional"
            yield f"| `{field}` | {_type(each)}{mark} | {_cell(each.get('description', ''))} |"
        yield ""


def _type(schema: Described) -> str:
    """A schema in few words, with a link to its shape."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#shape-{name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[word]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    return str(schema.get("format") or schema.get("type") or "any")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
