// The road: drivable area, lanes with marks and direction, intersections, crossings.

const DASH_M = [2, 1.8];
const PAINT_M = 0.14;
const MIN_ARROW_LANE_PX = 26;
const MARGIN = 0.25; // of width and height, drawn beyond each side of the cached map for panning

/** One path per group of lines or polygons, built once per scene. */
function mapPaths(scene) {
  const build = (name, closed, group = () => 0) => {
    const paths = [];
    scene.lines[name].forEach((points, i) => {
      const path = (paths[group(scene.map[name][i])] ??= new Path2D());
      points.forEach(([x, y], p) => (p ? path.lineTo(x, y) : path.moveTo(x, y)));
      if (closed) path.closePath();
    });
    return paths;
  };
  return scene.cached("map", () => ({
    ground: build("ground", true),
    tint: build("tint", true, ({ tint }) => tint),
    crossing: build("crossing", true),
    bar: build("bar", true),
    centerline: build("centerline", false),
    stroke: build("stroke", false, ({ paint, dashed }) => 2 * paint + dashed),
  }));
}

/** Draw the map bottom layer first on a cleared surface. */
function drawMap(surface, scene, colors) {
  const { ctx } = surface;
  surface.clear(colors.background);
  const paths = mapPaths(scene);
  const pixel = 1 / camera.scale;
  surface.useMetres();
  Object.assign(ctx, { lineCap: "butt", lineJoin: "round" });
  ctx.setLineDash([]);
  const fill = (path, color) => {
    ctx.fillStyle = color;
    ctx.fill(path, "nonzero"); // overlapping polygons have the same orientation
  };
  const stroke = (path, color, width) => {
    Object.assign(ctx, { strokeStyle: color, lineWidth: width });
    ctx.stroke(path);
  };
  // Edges first: where two areas abut, the fill hides the line between them.
  paths.ground.forEach((path) => stroke(path, colors.ground_edge, 2.4 * pixel));
  paths.ground.forEach((path) => fill(path, colors.ground));
  paths.tint.forEach((path, tint) => fill(path, colors.tint[tint]));
  paths.crossing.forEach((path) => fill(path, colors.crossing));
  paths.bar.forEach((path) => fill(path, colors.crossing_bar));
  // Without lane boundaries, centrelines are the whole map and are drawn stronger.
  const bare = !paths.stroke.length;
  const center = bare ? colors.centerline_bare : colors.centerline;
  paths.centerline.forEach((path) => stroke(path, center, (bare ? 1.2 : 0.7) * pixel));
  drawLaneArrows(surface, scene, colors);
  surface.useMetres();
  paths.stroke.forEach((path, group) => {
    const paint = group >> 1;
    ctx.setLineDash(group & 1 ? DASH_M : []);
    stroke(path, colors.paint[paint], paint ? Math.max(PAINT_M, 1.1 * pixel) : 0.8 * pixel);
  });
  ctx.setLineDash([]);
}

/** Draw the direction of each lane that is long enough on the screen. */
function drawLaneArrows(surface, scene, colors) {
  const { ctx } = surface;
  surface.usePixels();
  ctx.fillStyle = colors.centerline_bare;
  ctx.beginPath();
  for (const [x, y, heading, length] of scene.map.arrow) {
    const point = [x * METRE, y * METRE];
    if (length * METRE * camera.scale < MIN_ARROW_LANE_PX || !surface.contains(point, 1)) continue;
    traceOutline(ctx, CHEVRON, surface.toPixels(point), heading / 1000, [7, 5]);
  }
  ctx.fill();
}

/** The map as an image with a margin: panning moves it, playing copies it, the end of a zoom redraws it. */
class MapCache {
  constructor() {
    this.surface = new Surface(document.createElement("canvas"));
    this.drawn = { key: "", x: 0, y: 0 };
    this.previousKey = "";
  }

  draw(pane, scene, colors) {
    const { width, height } = pane.canvas;
    const key = [scene.id, width, height, pane.ratio, currentTheme(), camera.scale].join(" ");
    const resting = key === this.previousKey;
    this.previousKey = key;
    if (key !== this.drawn.key || !this.covers(pane)) {
      if (!resting) return drawMap(pane, scene, colors); // while zooming, a larger image would be wasted
      const [x, y] = [Math.round(width * MARGIN), Math.round(height * MARGIN)];
      this.surface.setSize(width + 2 * x, height + 2 * y, pane.ratio);
      drawMap(this.surface, scene, colors);
      this.drawn = { key, x: camera.x, y: camera.y };
    }
    pane.ctx.setTransform(1, 0, 0, 1, 0, 0);
    return pane.ctx.drawImage(this.surface.canvas, ...this.corner(pane));
  }

  /** Where the image begins on the pane, in whole canvas pixels to avoid blurring. */
  corner(pane) {
    const { canvas } = this.surface;
    const s = camera.scale * pane.ratio;
    return [
      Math.round((pane.canvas.width - canvas.width) / 2 + (this.drawn.x - camera.x) * s),
      Math.round((pane.canvas.height - canvas.height) / 2 - (this.drawn.y - camera.y) * s),
    ];
  }

  covers(pane) {
    const { canvas } = this.surface;
    const [left, top] = this.corner(pane);
    return left <= 0 && top <= 0 && left + canvas.width >= pane.canvas.width && top + canvas.height >= pane.canvas.height;
  }
}
