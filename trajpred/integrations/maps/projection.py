"""Latitudes and longitudes as metres in a plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trajpred.data.checks import as_array
from trajpred.data.environment import install_command
from trajpred.errors import DataError, require, require_finite

#: Most degrees between a map and the origin of its frame: farther ones are of another map, or exchanged.
FARTHEST_DEG = 5.0


def project(
    degrees: NDArray[np.float64], origin: tuple[float, float] | None = None, crs: str | None = None
) -> NDArray[np.float64]:
    """Convert latitudes and longitudes ``[N, 2]`` (WGS 84, degrees) to metres ``[N, 2]``, x east, y north.

    Args:
        origin: latitude and longitude of the frame's origin; by default the middle of the points' extent.
        crs: the projection, as pyproj understands it (``EPSG:32632``, ``+proj=tmerc …``), in any unit of
            length; by default UTM in the zone of the origin, as Lanelet2's ``UtmProjector``.

    Raises: DataError without pyproj, on an unknown projection or coordinates that are none, and on an origin
        outside it.
    """
    try:
        from pyproj import CRS, Transformer
        from pyproj.exceptions import ProjError
    except ImportError:
        needed = f"needs pyproj, which is not installed: {install_command('maps')}"
        raise DataError(needed, field="node.lat") from None
    lat, lon = origin_of(degrees, origin)
    try:
        projection = CRS.from_user_input(crs or utm(lat, lon))
        transform = Transformer.from_crs("EPSG:4326", projection, always_xy=True).transform
    except ProjError as error:
        raise DataError(f"is not a projection that pyproj knows ({error})", field="crs") from None
    require(projection.is_projected, "crs", f"must be a projection to a plane, is {projection.name}")
    at = np.array(transform(lon, lat))
    require_finite(at, "origin")
    unit_m = projection.axis_info[0].unit_conversion_factor
    return unit_m * (np.stack(transform(degrees[:, 1], degrees[:, 0]), -1) - at)


def origin_of(degrees: NDArray[np.float64], origin: tuple[float, float] | None) -> tuple[float, float]:
    """Return the latitude and longitude of the origin of the frame, by default the middle of all points."""
    valid = degrees[np.isfinite(degrees).all(-1)]
    require(len(valid) > 0, "node.lat", "is in no node, with lon, a number of degrees up to 90")
    middle = (valid.min(axis=0) + valid.max(axis=0)) / 2
    point = middle if origin is None else origin
    lat, lon = as_array(point, np.float64, "origin", (2,)).tolist()
    require(abs(lat) <= 84 and abs(lon) <= 180, "origin", f"must be latitude and longitude, is {lat}, {lon}")
    difference = np.median(valid, axis=0) - (lat, lon)
    apart = np.abs((difference + 180) % 360 - 180).max()
    far = f"is {apart:.0f}° from the map: give its latitude, then its longitude"
    require(origin is None or apart <= FARTHEST_DEG, "origin", far)
    return lat, lon


def utm(lat: float, lon: float) -> str:
    """Return the projection of UTM in the zone of a point; zones are wider off Norway and in Svalbard."""
    zone = min(int(lon + 180) // 6 + 1, 60)
    if 56 <= lat < 64 and 3 <= lon < 6:
        zone = 32
    if lat >= 72 and 0 <= lon < 42:
        zone = 31 + 2 * int((lon + 3) // 12)
    hemisphere = " +south" if lat < 0 else ""
    return f"+proj=utm +zone={zone} +datum=WGS84{hemisphere}"
