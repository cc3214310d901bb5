"""Sets views with mistakes aside, so that the sources and the other views of a file can be worked on meanwhile.

Finding mistakes does not belong here (`load`, `sections`, `view_graph`).
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeproof.config.document import YamlDocument
from lakeproof.config.mistakes import ConfigFileError, Mistake, dotted
from lakeproof.config.model import ViewConfig
from lakeproof.config.view_graph import check_graph


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
