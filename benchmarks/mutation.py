"""Small faults that a programmer might make, as changes of a module's syntax tree."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SWAPPED_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_PAIRS = [
    ("min", "max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("clamp_min", "clamp_max"),
    ("minimum", "maximum"),
    ("any", "all"),
    ("zeros_like", "ones_like"),
    ("new_zeros", "new_ones"),
    ("zeros", "ones"),
    ("sum", "mean"),
    ("log", "exp"),
    ("softmax", "log_softmax"),
    ("sub_", "add_"),
    ("mul_", "div_"),
]
SWAPPED_NAMES = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
# imports, texts, defaults, and what only tells the type checker or the reader
NO_COMPUTATION = (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.arguments, ast.Assert)
DROPPED_CALLS = {"detach", "masked_fill", "masked_fill_", "flip", "abs", "exp_", "square"}


@dataclass(frozen=True)
class Mutant:
    """One fault: where, and what."""

    key: str  # function, line and change: stable while the line stays as it is
    function: str  # the outermost one that it is in
    line: int
    source: str
    node: int  # the number of the node that changes
    change: Callable[[ast.AST], None]

    def original(self) -> ast.Module:
        """The module without its fault."""
        return _parse(self.source)

    def tree(self) -> ast.Module:
        """The changed module."""
        tree = _parse(self.source)
        self.change(list(_walk(tree))[self.node][0])
        return ast.fix_missing_locations(tree)


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module."""
    lines = source.splitlines()
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for number, (node, owner) in enumerate(_walk(_parse(source))):
        for name, change in _changes(node):
            line = getattr(node, "lineno", 0)
            key = f"{owner}: {lines[line - 1].strip()} [{name}]"
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > 1:
                key += f" #{seen[key]}"
            found.append(Mutant(key, owner, line, source, number, change))
    return found


def _parse(source: str) -> ast.Module:
    tree = ast.parse(source)
    _forget_what_does_nothing(tree)
    return tree


def _forget_what_does_nothing(tree: ast.Module) -> None:
    """Take out annotations: they change nothing."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None


def _walk(node: ast.AST, owner: str = "", inside: bool = False) -> Iterator[tuple[ast.AST, str]]:
    """Nodes within functions, with the outermost function's name; none that are no computation."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, NO_COMPUTATION) or (isinstance(child, ast.keyword) and child.arg == "strict"):
            continue
        if isinstance(node, ast.FunctionDef) and child in node.decorator_list:
            continue
        name, within = owner, inside
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not inside:
            name = f"{owner}.{child.name}".lstrip(".")
            within = inside or isinstance(child, ast.FunctionDef)
            if child.name in ("__repr__", "__str__"):
                continue
        if inside:
            yield child, name
        if not isinstance(child, ast.Raise):  # its message is no matter of mutants
            yield from _walk(child, name, within)


Change = tuple[str, Callable[[ast.AST], None]]


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)):
        yield from _operator(node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _comparison(node)
    elif isinstance(node, ast.UnaryOp) and not _is_last(node):
        yield f"drop {type(node.op).__name__}", _become(node.operand)
    elif isinstance(node, ast.Constant):
        yield from _constant(node)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "negate the condition", _negate
    elif isinstance(node, ast.Call):
        yield from _call(node)
    elif isinstance(node, (ast.Expr, ast.Raise)) and not _is_docstring(node):
        yield "drop the statement", _drop


def _operator(node: ast.BinOp | ast.AugAssign | ast.BoolOp) -> Iterator[Change]:
    other = SWAPPED_OPERATORS.get(type(node.op))
    # a union of types is no arithmetic
    if other is not None and not _is_type(node):

        def swap(target: ast.AST) -> None:
            target.op = other()  # type: ignore[attr-defined]

        yield f"{type(node.op).__name__} -> {other.__name__}", swap


def _comparison(node: ast.Compare) -> Iterator[Change]:
    other = SWAPPED_OPERATORS.get(type(node.ops[0]))
    if other is not None:

        def swap(target: ast.AST) -> None:
            target.ops = [other()]  # type: ignore[attr-defined]

        yield f"{type(node.ops[0]).__name__} -> {other.__name__}", swap


def _constant(node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        new: object = not value
    elif isinstance(value, int):
        new = 1 if value == 0 else 0 if value == 1 else value + 1
    elif isinstance(value, float):
        new = 1.0 if value == 0 else 0.0 if value == 1 else value * 2
    else:
        return

    def change(target: ast.AST) -> None:
        target.value = new  # type: ignore[attr-defined]

    yield f"{value!r} -> {new!r}", change


def _call(node: ast.Call) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    other = SWAPPED_NAMES.get(name)
    if other is not None:

        def rename(target: ast.AST) -> None:
            function = target.func  # type: ignore[attr-defined]
            if isinstance(function, ast.Attribute):
                function.attr = other
            else:
                function.id = other

        yield f"{name} -> {other}", rename
    if name in DROPPED_CALLS and isinstance(node.func, ast.Attribute):
        yield f"drop .{name}()", _become(node.func.value)


def _become(part: ast.AST) -> Callable[[ast.AST], None]:
    """Replace a node by a part of itself."""

    def change(target: ast.AST) -> None:
        fresh = copy.deepcopy(part)
        target.__class__ = fresh.__class__  # type: ignore[assignment]
        target.__dict__.clear()
        target.__dict__.update(fresh.__dict__)

    return change


def _negate(target: ast.AST) -> None:
    target.test = ast.UnaryOp(ast.Not(), target.test)  # type: ignore[attr-defined]


def _drop(target: ast.AST) -> None:
    new: ast.stmt = ast.Pass()
    if isinstance(target, ast.Expr):
        # never called; what the function closes over (`super()` needs its class) stays the same
        new = ast.Expr(ast.Lambda(ast.arguments([], [], None, [], [], None, []), target.value))
    _become(ast.copy_location(new, target))(target)


def _is_last(node: ast.UnaryOp) -> bool:
    """Whether this is −1, an axis mostly: 1 is often the same one, and −1 becomes 0 as well."""
    return (
        isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and node.operand.value == 1
    )


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_type(node: ast.AST) -> bool:
    """Whether this reads like `Tensor | None` rather than like a computation."""
    return any(
        (isinstance(part, ast.Constant) and (part.value is None or isinstance(part.value, str)))
        for part in ast.walk(node)
    ) and isinstance(getattr(node, "op", None), ast.BitOr)
