// The road: drivable area, lanes with their marks and direction, intersections, crossings.

const DASH_M = [2, 1.8];
const PAINT_M = 0.14;
const SHORT_LANE_PX = 26;

/** The lines or polygons of an array as one path for each value that `kind(row)` takes. */
function pathsOf(scene, name, closed, kind = () => 0) {
  const points = scene.arrays[name].values;
  const { values, rows, columns } = scene.arrays[`${name}_rows`];
  const paths = [];
  for (let row = 0, p = 0; row < rows; row++) {
    const facts = values.subarray(row * columns, (row + 1) * columns);
    const path = (paths[kind(facts)] ??= new Path2D());
    for (let i = 0; i < facts[0]; i++, p++) {
      const [x, y] = [points[2 * p] * METRE, points[2 * p + 1] * METRE];
      if (i) path.lineTo(x, y);
      else path.moveTo(x, y);
    }
    if (closed) path.closePath();
  }
  return paths;
}

/** Everything about the map that does not depend on the view, made once for each scene. */
function roadOf(scene) {
  scene.road ??= {
    ground: pathsOf(scene, "ground", true),
    tint: pathsOf(scene, "tint", true, (facts) => facts[1]),
    crossing: pathsOf(scene, "crossing", true),
    bar: pathsOf(scene, "bar", true),
    centerline: pathsOf(scene, "centerline", false),
    stroke: pathsOf(scene, "stroke", false, (facts) => 2 * facts[1] + facts[2]),
  };
  return scene.road;
}

/** Nothing but the background. */
function clear(surface, colors) {
  surface.inPixels();
  surface.ctx.fillStyle = colors.background;
  surface.ctx.fillRect(0, 0, surface.width, surface.height);
}

/** From the background up; a scene without a map has nothing else. */
function drawMap(surface, scene, colors) {
  const { ctx } = surface;
  clear(surface, colors);
  const road = roadOf(scene);
  const pixel = 1 / camera.scale;
  surface.inMetres();
  ctx.lineCap = "butt";
  ctx.lineJoin = "round";
  ctx.setLineDash([]);
  const fill = (paths, color) => {
    ctx.fillStyle = color;
    // Polygons may lie over one another, all of them wound the same way: nonzero keeps both.
    paths.forEach((path) => ctx.fill(path, "nonzero"));
  };
  const stroke = (path, color, width) => {
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.stroke(path);
  };
  // Edges first: where two areas abut, the ground hides the line between them.
  road.ground.forEach((path) => stroke(path, colors.ground_edge, 2.4 * pixel));
  fill(road.ground, colors.ground);
  road.tint.forEach((path, kind) => fill([path], colors.tint[kind]));
  fill(road.crossing, colors.crossing);
  fill(road.bar, colors.bar);
  // Without marks the centrelines are all there is of the map, so they may be stronger.
  const bare = !road.stroke.some(Boolean);
  const center = bare ? colors.centerline_bare : colors.centerline;
  road.centerline.forEach((path) => stroke(path, center, (bare ? 1.2 : 0.7) * pixel));
  drawArrows(surface, scene, colors);
  surface.inMetres();
  road.stroke.forEach((path, look) => {
    const paint = look >> 1;
    ctx.setLineDash(look & 1 ? DASH_M : []);
    stroke(path, colors.paint[paint], paint ? Math.max(PAINT_M, 1.1 * pixel) : 0.8 * pixel);
  });
  ctx.setLineDash([]);
}

/** Which way each lane goes, where there is room to tell. */
function drawArrows(surface, scene, colors) {
  const { ctx } = surface;
  const { values, rows } = scene.arrays.arrow;
  surface.inPixels();
  ctx.fillStyle = colors.centerline_bare;
  ctx.beginPath();
  for (let row = 0; row < rows; row++) {
    const [x, y, heading, length] = values.subarray(4 * row, 4 * row + 4);
    const place = [x * METRE, y * METRE];
    if (length * METRE * camera.scale < SHORT_LANE_PX || !surface.holds(place, 1)) continue;
    outline(ctx, CHEVRON, surface.toPixels(place), heading / 1000, [7, 5]);
  }
  ctx.fill();
}
