"""Small maps in the formats of vehicles: two roads in each, one of them with a crossing."""

from __future__ import annotations

from collections.abc import Iterable

LINE = "<line/>"
STRAIGHT = f'<geometry s="0" x="0" y="0" hdg="0" length="40">{LINE}</geometry>'


def lane(number: int, kind: str = "driving", width: str = 'a="3" b="0" c="0" d="0"', link: str = "") -> str:
    mark = '<roadMark sOffset="0" type="solid broken" color="yellow"/>'
    shape = f'<width sOffset="0" {width}/>' if number else ""
    return f'<lane id="{number}" type="{kind}"><link>{link}</link>\n{shape}\n{mark}</lane>\n'


def road(
    name: str = "1", geometry: str = STRAIGHT, length: float = 40, left: str = "", right: str = lane(-1),
    link: str = "", extra: str = "", objects: str = "", attributes: str = 'junction="-1"',
) -> str:  # fmt: skip
    """Return a road with one section."""
    section = f"<left>{left}</left><center>{lane(0, 'none')}</center><right>{right}</right>"
    return (
        f'<road id="{name}" length="{length}" {attributes}><link>{link}</link>\n'
        f'<planView>{geometry}</planView>\n<lanes>{extra}<laneSection s="0">{section}</laneSection></lanes>\n'
        f"<objects>{objects}</objects></road>\n"
    )


def linked(side: str, road: int, end: str) -> str:
    """Return the link of a road to the contact point of another."""
    return f'<{side} elementType="road" elementId="{road}" contactPoint="{end}"/>'


def connection(incoming: int, connecting: int, contact: str = "start") -> str:
    """Return a connection of a junction, between lanes -1."""
    roads = f'incomingRoad="{incoming}" connectingRoad="{connecting}"'
    return f'<connection {roads} contactPoint="{contact}"><laneLink from="-1" to="-1"/></connection>'


def opendrive(*roads: str, header: str = "", junctions: str = "") -> bytes:
    content = f"<header>{header}</header>\n{''.join(roads)}{junctions}"
    return f"<OpenDRIVE>{content}</OpenDRIVE>".encode()


def town() -> bytes:
    """Return a junction: road 1 along x leads to road 3 by the connecting road 2; all kinds of geometry."""
    before = '<predecessor id="-1"/>'
    after = '<successor id="-1"/>'
    crossing = '<object type="crosswalk" s="20" t="0" hdg="0" length="3" width="8"/>'
    offsets = '<laneOffset s="0" a="0" b="0" c="0.001" d="0"/><laneOffset s="20" a="0" b="0" c="0" d="0"/>'
    to_junction = '<successor elementType="junction" elementId="J"/>'
    first = road("1", link=to_junction, objects=crossing, extra=offsets)
    connecting = road(
        "2",
        '<geometry s="0" x="40" y="0" hdg="0" length="10"><arc curvature="0.05"/></geometry>',
        10,
        right=lane(-1, link=before + after),
        attributes='junction="J"',
        link=linked("predecessor", 1, "end") + linked("successor", 3, "start"),
    )
    exits = []
    shapes = (
        '<spiral curvStart="0" curvEnd="0.1"/>',
        '<poly3 a="0" b="0" c="0.01" d="0"/>',
        '<paramPoly3 aU="0" bU="10" cU="0" dU="0" aV="0" bV="0" cV="1" dV="0" pRange="normalized"/>',
    )
    for i, shape in enumerate(shapes):
        onwards = road(
            str(i + 3),
            f'<geometry s="0" x="49.58851" y="2.44835" hdg="0.5" length="10">{shape}</geometry>',
            10,
            left=lane(1),
            right=lane(-1, link=before) + lane(-2, "biking"),
            link=linked("predecessor", 2, "end"),
        )
        exits.append(onwards)
    return opendrive(first, connecting, *exits, junctions=f'<junction id="J">{connection(1, 2)}</junction>')


def node(name: int, x: float, y: float, local: bool = True) -> str:
    """Return a node, x and y metres from 48° N 9° E."""
    tags = f'<tag k="local_x" v="{x}"/><tag k="local_y" v="{y}"/>' if local else ""
    return f'<node id="{name}" lat="{48 + y / 111200}" lon="{9 + x / 74600}">{tags}</node>'


def way(name: int, nodes: Iterable[int], style: str = "solid") -> str:
    references = "".join(f'<nd ref="{node}"/>' for node in nodes)
    tags = f'<tag k="type" v="line_thin"/><tag k="subtype" v="{style}"/>'
    return f'<way id="{name}">{references}{tags}</way>'


def relation(name: object, left: int, right: int, kind: str = "road", one_way: str = "yes") -> str:
    """Return a lanelet between two ways."""
    return (
        f'<relation id="{name}"><member type="way" ref="{left}" role="left"/>\n'
        f'<member type="way" ref="{right}" role="right"/>\n<tag k="type" v="lanelet"/>\n'
        f'<tag k="subtype" v="{kind}"/>\n<tag k="one_way" v="{one_way}"/></relation>'
    )


def lanelet2(local: bool = False) -> bytes:
    """Return lanelet 1, its successor 2, 3 to the right of 1 against its way, a two-way 4, and a crosswalk.

    In metres the lanes are 30 m long along x and 3 m wide.
    """
    parts = ["<osm>"]
    for column in range(3):
        parts += [node(100 * column + row, 30 * column, 3 * row, local) for row in range(4)]
    parts += [
        way(10, (3, 103)),
        way(11, (2, 102), "solid_dashed"),
        way(12, (101, 1), "dashed"),
        way(13, (103, 203)),
        way(14, (102, 202)),
        relation(1, 10, 11),
        relation(2, 13, 14),
        relation(3, 11, 12, "bicycle_lane"),
        relation(4, 14, 12, one_way="no"),
        relation(5, 10, 12, "crosswalk", "no"),
        relation(6, 10, 12, "walkway", "no"),
        "</osm>",
    ]
    return "\n".join(parts).encode()


def _bound(side: str, y: float, x: float, mark: str) -> str:
    """Return three points 10 m apart."""
    points = "".join(f"<point><x>{x + 10 * i}</x>\n<y>{y}</y></point>" for i in range(3))
    return f"<{side}>{points}<lineMarking>{mark}</lineMarking></{side}>"


def _lanelet(name: int, x: float, link: str, kind: str = "urban") -> str:
    left = _bound("leftBound", 2, x, "solid_dashed")
    right = _bound("rightBound", -2, x, "broad_solid")
    return f'<lanelet id="{name}">{left}{right}\n{link}<laneletType>{kind}</laneletType></lanelet>\n'


def _state(tag: str, step: int, rate: float) -> str:
    """Return a state at 8 m/s along x, which departs from it by ``rate`` metres per step squared."""
    x = 8 * 0.1 * step
    y = rate * step**2
    heading = 0.01 * step
    return (
        f"<{tag}><position><point><x>{x}</x><y>{y}</y></point></position><orientation><exact>{heading}</exact>"
        f"</orientation><time><exact>{step}</exact></time>\n<velocity><exact>8</exact></velocity></{tag}>\n"
    )


#: Shapes of obstacles; the others have none.
SHAPES = {
    "car": "<shape><rectangle><length>4.4</length><width>1.7</width></rectangle></shape>",
    "bicycle": "<shape><circle><radius>0.4</radius></circle></shape>",
}


def _obstacle(name: int, kind: str, rate: float, steps: int, tag: str = "dynamicObstacle") -> str:
    path = "".join(_state("state", step, rate) for step in range(1, steps))
    if path:
        path = f"<trajectory>{path}</trajectory>"
    first = _state("initialState", 0, rate)
    shape = SHAPES.get(kind, "")
    return f'<{tag} id="{name}"><type>{kind}</type>{shape}{first}{path}</{tag}>'


def commonroad(steps: int = 30) -> bytes:
    """Return two lanelets in a row with a crosswalk, a car that turns, a cyclist, a parked car."""
    parts = [
        '<commonRoad timeStepSize="0.1" benchmarkID="ZAM_Test-1_1_T-1">\n',
        _lanelet(1, 0, '<successor ref="2"/>'),
        _lanelet(2, 20, '<predecessor ref="1"/>'),
        _lanelet(3, 10, "", "crosswalk"),
        '<intersection id="9"><incoming id="8"><successorsLeft ref="2"/></incoming></intersection>',
        _obstacle(11, "bicycle", 0, steps),
        _obstacle(12, "car", 0.01, steps),
        _obstacle(13, "parkedVehicle", 0, 1, "staticObstacle"),
        "</commonRoad>",
    ]
    return "".join(parts).encode()
