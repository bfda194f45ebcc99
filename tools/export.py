"""Write transformer_lit/ from the cells of the chapters.

    python tools/export.py            write the modules
    python tools/export.py --check    exit 1 and show what differs

A cell tagged `export` goes to the module that the chapter's front matter
names (transformer_lit: module: X), one tagged `export:Y` to the module Y.
The front matter's `api` lists the names that `import transformer_lit as tl`
offers at the top level, beside the packages within it (`tl.viz`), which are
written by hand. Imports move to the head of a module.
"""

import ast
import difflib
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field

from chapters import PACKAGE, ROOT, read, tags, texts

MARK = "# Written by tools/export.py. Edit the chapter instead."
ABOUT = '''"""Attention Is All You Need, executed.

    import transformer_lit as tl

The code is the book's: each module is written from the chapter that it names.
"""
'''
LAZY = '''

def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first asked for."""
    if name in PARTS:
        return import_module(f"transformer_lit.{name}")
    if name not in HOMES:
        raise AttributeError(f"transformer_lit has no {name!r}")
    return getattr(import_module(f"transformer_lit.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The names of the top level."""
    return [*globals(), *HOMES, *PARTS]

'''
PARTS = sorted(PACKAGE.glob("*/__init__.py"))
"""The packages within the package; they are written by hand."""


@dataclass
class Module:
    """What the chapters say of one module."""

    title: str
    chapter: str
    imports: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, heading: str, source: str, where: str) -> None:
        """Add one cell."""
        try:
            tree = ast.parse(source)
        except SyntaxError as error:  # a magic, say
            sys.exit(f"{where}: cannot be exported: {error}")
        lines = source.splitlines()
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                span = slice(node.lineno - 1, node.end_lineno)
                self.imports += lines[span]
                lines[span] = [""] * len(lines[span])
            self.names |= defined(node)
        rest = "\n".join(lines).strip("\n")
        if rest:
            mark = f"# {self.chapter}: {heading}"
            fresh = mark not in "\n".join(self.body)
            self.body.append(f"{mark}\n{rest}" if fresh else rest)

    def text(self) -> str:
        """The module's source."""
        return tidy(
            f'"""{self.title}\n\nFrom book/{self.chapter}.md.\n"""\n\n{MARK}\n\n'
            + "\n".join(self.imports)
            + "\n\n\n"
            + "\n\n\n".join(self.body)
            + f"\n\n\n__all__ = [\n{every(self.names)}]\n"
        )


def defined(node: ast.stmt) -> set[str]:
    """The public names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        names = {node.name}
    elif isinstance(node, ast.Assign):
        targets = [n for t in node.targets for n in ast.walk(t)]
        names = {n.id for n in targets if isinstance(n, ast.Name)}
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        names = {node.target.id}
    else:
        names = set()
    return {name for name in names if not name.startswith("_")}


def tidy(source: str) -> str:
    """Imports sorted, layout as ruff has it."""
    for arguments in (
        ["check", "--quiet", "--select", "I", "--fix"],
        ["format", "--quiet"],
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "-"]
        source = subprocess.run(
            [*command, "--stdin-filename", str(PACKAGE / "x.py")],
            cwd=ROOT,
            input=source,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return source


def collect() -> tuple[dict[str, Module], list[str]]:
    """Every module by name, and the names of the top level."""
    modules: dict[str, Module] = {}
    api: list[str] = []
    for path in texts():
        notebook = read(path)
        about = notebook.metadata.get("transformer_lit", {})
        api += about.get("api", [])
        title = heading = ""
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                for line in cell.source.splitlines():
                    if line.startswith("#"):
                        heading = line.lstrip("#").strip().split("{")[0]
                        title = title or f"{heading.rstrip('.')}."
                continue
            for tag in tags(cell):
                if tag.partition(":")[0] != "export":
                    continue
                where = f"{path.name}, under '{heading}'"
                name = tag.partition(":")[2] or about.get("module")
                if not name:
                    sys.exit(f"{where}: the front matter names no module")
                module = modules.setdefault(name, Module(title, path.stem))
                if module.chapter != path.stem:
                    sys.exit(f"{where}: {name} belongs to {module.chapter}")
                module.add(heading, cell.source, where)
    return modules, api


def top_level(modules: dict[str, Module], api: list[str]) -> str:
    """The source of __init__.py."""
    lines, homes = [], ""
    for name in sorted(api):
        found = [m for m, module in modules.items() if name in module.names]
        if len(found) != 1:
            sys.exit(f"api name {name}: exported by {found or 'no module'}")
        lines.append(f"    from transformer_lit.{found[0]} import {name}")
        homes += f'    "{name}": "{found[0]}",\n'
    parts = "".join(f'"{p.parent.name}", ' for p in PARTS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return tidy(
        f"{ABOUT}\n{MARK}\n\n"
        + "from importlib import import_module\n"
        + "from typing import TYPE_CHECKING, Any\n\n"
        + "if TYPE_CHECKING:\n"
        + "\n".join(lines)
        + f'\n\n__version__ = "{project["version"]}"\n\n'
        + f"HOMES = {{\n{homes}}}\n"
        + '"""The module in which each name of the top level is at home."""\n'
        + f"PARTS = ({parts})\n"
        + '"""Packages within this one."""\n'
        + LAZY
        + f"\n__all__ = [\n{every(api)}]\n"
    )


def every(names: Iterable[str]) -> str:
    """Names as the lines of a list."""
    return "".join(f'    "{name}",\n' for name in sorted(names))


def main() -> int:
    check, differs = "--check" in sys.argv, 0
    modules, api = collect()
    new = {PACKAGE / f"{n}.py": m.text() for n, m in modules.items()}
    new[PACKAGE / "__init__.py"] = top_level(modules, api)
    for path in sorted(set(new) | set(PACKAGE.glob("*.py"))):
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        text = new.get(path, "")
        if old == text:
            continue
        differs += 1
        name = str(path.relative_to(ROOT))
        if check:
            lines = old.splitlines(True), text.splitlines(True)
            diff = difflib.unified_diff(*lines, name, "the chapters' export")
            sys.stdout.writelines(diff)
        elif text:
            path.write_text(text, encoding="utf-8")
            print("wrote", name)
        else:
            path.unlink()
            print("removed", name)
    return 1 if check and differs else 0


if __name__ == "__main__":
    sys.exit(main())
