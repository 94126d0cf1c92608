"""Plotly.js of the installed package, cut to what our figures are made of: less than a third of its bytes.

The Python package brings one bundle of 4.8 MB: maps, WebGL, geography and forty kinds of traces, all of which a browser
reads and runs before the first line is drawn. Our figures are lines and bars (`vector.TRACES`). The bundle is a row of
modules that call each other by name, so what a page needs can be followed from Plotly's core; the rest is left out, and
so are the styles of maps that the core would add to every page.

    licence ─ helpers ─ module ─ module ─ … ─ main: var P=CORE();P.register([TRACE(),TRACE(),…]) ─ licences

A bundle that does not look like this is served whole: slower, never broken.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

BEYOND_CORE = ("bar",)
"""Kinds of traces that we draw and that Plotly's core has not: lines and marks are a part of it."""

_BEGIN = "var Plotly=(()=>{"
_END = re.compile(r"return ([\w$]+)\(\);?\}\)\(\);")
_COMMON = re.compile(r"([\w$]+)=\((\w),(\w)\)=>\(\)=>\{try\{return \3\|\|\2\(\(\3=\{exports:")
"""The helper that makes a module `var NAME=HELPER((exports,module)=>{…});`."""
_MODERN = re.compile(r"([\w$]+)=\((\w),(\w),(\w)\)=>\(\)=>\{if\(\4\)throw \4\[0\]")
"""The one that makes the beginning of an ECMAScript module, whose functions stand before it in the open."""
_REGISTERED = re.compile(r"\b([\w$]+)=([\w$]+)\(\);\1\.register\(\[([\w$(),]+)\]\)")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_MAP_STYLES = re.compile(r"^var [\w$]+=[\w$]+\(\(\)=>\{(?=\(function\(\)\{if\(!document\.getElementById\()")


class UnknownBundleError(ValueError):
    """The bundle is not made as we know it."""


@dataclass(frozen=True, kw_only=True)
class PlotlyBundle:
    """Plotly's script in its parts."""

    licence: str
    helpers: str
    """What modules are made with."""
    sources: tuple[str, ...]
    """A module each, with the open functions of the ECMAScript modules that follow it."""
    places: dict[str, int]
    """Which source has the module of that name."""
    main: str
    """The name of the module that registers all others."""
    licences: str
    """Of what is bundled."""


def cut_plotly(script: str, kinds: Iterable[str] = BEYOND_CORE) -> str:
    """The script with its core and these kinds of traces alone; the whole script where it cannot be cut."""
    try:
        return _cut(_split(script), kinds)
    except UnknownBundleError:
        return script


def _split(script: str) -> PlotlyBundle:
    begin, ends = script.find(_BEGIN), list(_END.finditer(script))
    if begin < 0 or not ends or not script.startswith("/**"):
        raise UnknownBundleError("no single function makes Plotly")
    end = ends[-1]
    body = script[begin + len(_BEGIN) : end.start()]
    common, modern = _COMMON.search(body), _MODERN.search(body)
    if common is None or modern is None:
        raise UnknownBundleError("its modules are made in another way")
    starts = list(re.finditer(rf";var ([\w$]+)={re.escape(common[1])}\(", body))
    edges = [*(one.start() + 1 for one in starts), len(body)]
    sources = tuple(body[edges[place] : edges[place + 1]] for place in range(len(starts)))
    opened = re.compile(rf"[,; ]([\w$]+)={re.escape(modern[1])}\(")
    places = {name: place for place, source in enumerate(sources) for name in opened.findall(source)}
    places |= {one[1]: place for place, one in enumerate(starts)}
    if not sources or not all(source.endswith("});") for source in sources):
        raise UnknownBundleError("its modules are not told apart")
    licences, found, _ = script[end.end() :].partition("window.Plotly")
    if not found:
        raise UnknownBundleError("it is not handed to the page")
    return PlotlyBundle(
        licence=script[: script.index("*/") + 2],
        helpers=body[: edges[0]],
        sources=sources,
        places=places,
        main=end[1],
        licences=licences,
    )


def _cut(bundle: PlotlyBundle, kinds: Iterable[str]) -> str:
    main = bundle.sources[_place(bundle, bundle.main)]
    registered = _REGISTERED.search(main)
    if registered is None:
        raise UnknownBundleError("nothing is registered")
    core = _reachable(bundle, [registered[2]])
    chosen = [_module_of(bundle, kind, _NAME.findall(registered[3]), core) for kind in kinds]
    kept = _reachable(bundle, [registered[2], *chosen])
    body = "".join(_without_map_styles(bundle.sources[place]) for place in sorted(kept))
    calls = ",".join(f"{name}()" for name in chosen)
    last = main[: registered.start(3)] + calls + main[registered.end(3) :]
    return (
        f"{bundle.licence}\n/* Of its modules only those that AdaPM Bench draws with. */\n"
        f'"use strict";{_BEGIN}{bundle.helpers}{body}{last}return {bundle.main}();}})();\n'
        f"window.Plotly = Plotly;\n{bundle.licences}"
    )


def _module_of(bundle: PlotlyBundle, kind: str, registered: Iterable[str], core: set[int]) -> str:
    """The module among those registered that brings this kind of traces."""
    told = f'moduleType:"trace",name:"{kind}"'
    for name in registered:
        if any(told in bundle.sources[place] for place in _reachable(bundle, [name], beyond=core)):
            return name
    raise UnknownBundleError(f"no module brings {kind}")


def _reachable(bundle: PlotlyBundle, names: Iterable[str], beyond: Iterable[int] = ()) -> set[int]:
    """Where these modules are and all that they may call: every word in their source that is a module's name counts."""
    passed, reached = set(beyond), set[int]()
    waiting = [_place(bundle, name) for name in names]
    while waiting:
        place = waiting.pop()
        if place not in passed | reached:
            reached.add(place)
            waiting += [bundle.places[word] for word in bundle.places.keys() & _NAME.findall(bundle.sources[place])]
    return reached


def _place(bundle: PlotlyBundle, name: str) -> int:
    if name not in bundle.places:
        raise UnknownBundleError(f"{name} is no module")
    return bundle.places[name]


def _without_map_styles(source: str) -> str:
    """Without what a module does to every page as it is loaded: the styles of maps, which we do not draw."""
    found = _MAP_STYLES.match(source)
    return f"{found[0]}}});" if found else source
