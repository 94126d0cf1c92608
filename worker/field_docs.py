"""What fields mean: the docstrings under them, read from a class's source when a JSON schema is asked for (torch-free).

Pydantic would take them itself (`use_attribute_docstrings`) while it makes each class. That was a third of the start of
every process, for sentences that only OpenAPI, `adapm-bench schema` and editors show.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """A record whose fields are described by the docstrings under them."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Pydantic's own schema, with what each field means."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, meaning in field_docs(cls).items():
            if name in properties:
                properties[name].setdefault("description", meaning)
        return schema


def field_docs(record: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field of a record, and of what it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if issubclass(each, BaseModel) and not each.__module__.startswith("pydantic"):
            found |= _docs_in(each.__module__).get(each.__qualname__, {})
    return found


@cache
def _docs_in(module: str) -> dict[str, dict[str, str]]:
    """Of every class of a module, by its qualified name; nothing where there is no source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {name: dict(_docs_under(each)) for name, each in _classes(ast.parse(source), "")}


def _classes(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, ast.ClassDef):
            yield prefix + each.name, each
            yield from _classes(each, f"{prefix}{each.name}.")
        elif isinstance(each, ast.FunctionDef):
            yield from _classes(each, f"{prefix}{each.name}.<locals>.")
        elif isinstance(each, ast.If):
            yield from _classes(each, prefix)


def _docs_under(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            said = after.value.value if isinstance(after.value, ast.Constant) else None
            if isinstance(said, str):
                yield field.target.id, inspect.cleandoc(said)
