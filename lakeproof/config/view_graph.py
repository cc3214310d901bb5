"""The graph of the views: which view reads which other, in what order they are computed, and what is wrong with it.

Reading the file is in `load.py`, the binding of a view's names in `sections.py`. Views with mistakes can be set aside: the
sources and the other views of a file go on without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from lakeproof.config.document import YamlDocument
from lakeproof.config.mistakes import ConfigFileError, Mistake, dotted, hint
from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError

Views = Mapping[str, ViewConfig]


def with_inputs(views: Views, names: Iterable[str]) -> list[str]:
    """Return these views and all that they read, directly or through others, each after those that it reads.

    Raises ConfigError for a cycle, and for a view that is not configured.
    """
    done: dict[str, None] = {}
    for name in names:
        _visit(views, name, [], done)
    return list(done)


def sources_of(views: Views, name: str) -> list[str]:
    """Return the sources whose tables a view reads, directly or through other views, by name."""
    return sorted({source for other in with_inputs(views, [name]) for source, _ in views[other].reads.values()})


def readers_of(views: Views, sources: Collection[str]) -> list[ViewConfig]:
    """Return the views that read one of the sources, directly or through other views."""
    return [view for name, view in views.items() if not set(sources).isdisjoint(sources_of(views, name))]


def check_graph(document: YamlDocument, views: Mapping[str, ViewConfig | None]) -> None:
    """Add a mistake for each view that is read and does not exist, each circle, and each view that reads no source.

    `views` has None for a view with mistakes of its own.
    """
    whole = {name: view for name, view in views.items() if view is not None}
    wrong = set(views) - set(whole)
    for name, alias, other in [(n, a, o) for n, view in whole.items() for a, o in view.views.items() if o not in views]:
        document.add(("views", name, "reads", alias), f"reads {other[:80]}, which is no view; {hint(other, views)}")
        wrong.add(name)
    for cycle in _cycles(whole):
        alias = next(alias for alias, other in whole[cycle[0]].views.items() if other == cycle[1])
        text = f"the views read each other in a circle: {' → '.join(cycle)}; let one of them read tables instead"
        document.add(("views", cycle[0], "reads", alias), text)
        wrong.update(cycle)
    if not wrong:
        for name in [name for name, view in whole.items() if view.external and not sources_of(whole, name)]:
            text = "binds external tables alone; a view reads a table of a source, itself or through a view"
            document.add(("views", name, "reads"), text)


def _visit(views: Views, name: str, path: list[str], done: dict[str, None]) -> None:
    if name in done:
        return
    if name in path:
        cycle = " → ".join([*path[path.index(name) :], name])
        raise ConfigError(f"view {name}", f"the views read each other in a circle: {cycle}", "correct their `reads`")
    if name not in views:
        reader = path[-1] if path else name
        raise ConfigError(f"view {reader}", f"it reads {name}, which is no view", "correct its `reads`")
    for other in views[name].views.values():
        _visit(views, other, [*path, name], done)
    done[name] = None


def _cycles(views: Views) -> Iterator[list[str]]:
    """Yield each circle once, beginning and ending with its first view in the configuration."""
    seen: set[frozenset[str]] = set()
    position = {name: number for number, name in enumerate(views)}
    walked: set[str] = set()

    def walk(name: str, path: list[str]) -> Iterator[list[str]]:
        walked.add(name)
        for other in views[name].views.values():
            if other not in views:
                continue
            if other in path:
                members = path[path.index(other) :]
                if frozenset(members) not in seen:
                    seen.add(frozenset(members))
                    first = members.index(min(members, key=position.__getitem__))
                    turned = members[first:] + members[:first]
                    yield [*turned, turned[0]]
            elif other not in walked:
                yield from walk(other, [*path, other])

    for name in views:
        if name not in walked:
            yield from walk(name, [name])


def checked_views(
    document: YamlDocument, views: Mapping[str, ViewConfig | None], file: str, *, aside: bool
) -> tuple[dict[str, ViewConfig], dict[str, ConfigFileError]]:
    """Check which view reads which; return the views, and what is wrong with those that are set aside.

    With `aside`, the mistakes that are about one view are taken out of the document. A view that reads a view set aside is
    set aside itself.
    """
    left, faulty = dict(views), dict[str, list[Mistake]]()
    check_graph(document, views)
    while aside:
        for mistake in list(document.mistakes):
            name = next((n for n in views if _is_about(mistake, n)), None)
            if name is not None:
                document.mistakes.remove(mistake)
                faulty.setdefault(name, []).append(mistake)
        for name, view in left.items():
            for alias, other in {} if view is None else view.views.items():
                if other in faulty and name not in faulty:
                    path = ("views", name, "reads", alias)
                    faulty[name] = [Mistake(document.line(path), dotted(path), f"reads {other}, which has a mistake")]
        if faulty.keys().isdisjoint(left):
            break
        left = {name: view for name, view in left.items() if name not in faulty}
        check_graph(document, left)
    # One without a mistake of its own that could not be read: the file has others, and is refused for them.
    whole = {name: view for name, view in left.items() if view is not None}
    return whole, {name: ConfigFileError(file, mistakes) for name, mistakes in faulty.items()}


def _is_about(mistake: Mistake, view: str) -> bool:
    path = dotted(("views", view))
    return mistake.path.startswith(path) and mistake.path[len(path) : len(path) + 1] in ("", ".", "[")
