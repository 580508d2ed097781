// Predicted modes with uncertainty bands and probabilities.

const SMOOTH = 3; // steps on either side that determine the direction of a mode
const MIN_MOTION_M = 0.3;
const SAME_END_PX = 9;
const CAP = 0.35; // of the end of a band, relative to its half width
/** Colour of a probability; the square root spreads the low values typical of six modes. */
function probabilityColor(probability, colors) {
  const last = colors.ramp.length - 1;
  return colors.ramp[Math.round(Math.sqrt(Math.min(1, Math.max(0, probability))) * last)];
}

/** A short label; small positive values become "<1%", not "0%". */
function percent(probability) {
  return probability > 0 && probability < 0.005 ? "<1%" : `${Math.round(100 * probability)}%`;
}

/** Whether a mode ends within the length of its road user, which thus stays. */
function isShort(pane, scene, track, { points }) {
  const [x, y] = scene.position(track, scene.madeAt(pane.forecast));
  return points.every((point) => Math.hypot(point[0] - x, point[1] - y) < scene.size_m[track][0]);
}

/** Draw the modes of an unselected track, thin and faint, fainter beside attention; omit short ones. */
function drawFaintModes(pane, scene, track, colors) {
  const faded = drawnSenders(pane, scene).length ? 0.3 : 1;
  for (const mode of scene.modes(pane.forecast, track)) {
    if (isShort(pane, scene, track, mode)) continue;
    const { line, probability } = mode;
    const [color, alpha] = [probabilityColor(probability, colors), faded * (0.3 + 0.5 * Math.sqrt(probability))];
    pane.strokeLine(line, { color: colors.halo, alpha: 0.4 * faded, width: 2.2, cap: "round" });
    pane.strokeLine(line, { color, alpha, width: 1.2, cap: "round" });
  }
}

/** Draw the modes of the selected track with a dot at the end and one at `step`. */
function drawModes(pane, scene, track, step, colors) {
  const modes = scene.modes(pane.forecast, track);
  for (const { k, line, probability } of modes) {
    const width = 1.6 + 2.6 * Math.sqrt(probability);
    const hovered = state.hover?.mode === k && state.hover.pane === pane;
    const alpha = hovered ? 1 : 0.55 + 0.45 * Math.sqrt(probability);
    pane.strokeLine(line, { color: colors.halo, width: width + 2.2, alpha: 0.8, cap: "round" });
    const color = probabilityColor(probability, colors);
    pane.strokeLine(line, { color, width: width + (hovered ? 1.8 : 0), alpha, cap: "round" });
  }
  for (const { points, probability } of modes) {
    const dot = (point, radius) => pane.fillCircle(point, radius, probabilityColor(probability, colors), colors.halo, 1.2);
    dot(points.at(-1), 4.2);
    const at = step - scene.madeAt(pane.forecast) - 1;
    if (at >= 0 && at < points.length - 1) dot(points[at], 3);
  }
}

/** Draw the original modes dashed for comparison with those without some road users. */
function drawOriginalModes(pane, scene, track, colors) {
  if (!pane.isWhatIf) return;
  for (const { line, probability } of scene.modes(pane.m, track)) {
    const [alpha, width] = [0.35 + 0.6 * Math.sqrt(probability), 1 + 1.2 * Math.sqrt(probability)];
    pane.strokeLine(line, { color: colors.muted, width, alpha, dash: [5, 4] });
  }
}

/** Fill the 80 % band of each mode: the areas between successive cross-sections, in one path. */
function drawBands(pane, scene, track, colors) {
  const { ctx } = pane;
  pane.usePixels();
  for (const { points, band, probability } of scene.modes(pane.forecast, track)) {
    if (!band) continue;
    let normal = [0, 0];
    const sections = points.map(([x, y], f) => {
      const [before, after] = [points[Math.max(0, f - SMOOTH)], points[Math.min(points.length - 1, f + SMOOTH)]];
      const [dx, dy] = [after[0] - before[0], after[1] - before[1]];
      const length = Math.hypot(dx, dy);
      if (length > MIN_MOTION_M) normal = [-dy / length, dx / length];
      return [1, -1].map((side) => pane.toPixels([x + side * normal[0] * band[f], y + side * normal[1] * band[f]]));
    });
    ctx.beginPath();
    const [[left, right], last] = [sections.at(-1), pane.toPixels(points.at(-1))];
    const cap = Array.from({ length: 13 }, (_, i) => [0, 1].map((axis) => { // rounded, as in viz/forecast_layer.py
      const [c, s] = [Math.cos(i * Math.PI / 12), Math.sin(i * Math.PI / 12)];
      const ahead = axis ? right[0] - last[0] : last[1] - right[1];
      return last[axis] + c * (left[axis] - last[axis]) - CAP * s * ahead;
    }));
    const areas = sections.slice(1).map((section, f) => [sections[f][0], ...section, sections[f][1]]);
    for (const area of [...areas, cap]) {
      const next = (i) => area[(i + 1) % area.length];
      const size = area.reduce((sum, [x, y], i) => sum + x * next(i)[1] - y * next(i)[0], 0);
      if (size < 0) area.reverse(); // of one orientation, or overlaps inside of a turn would cancel
      area.forEach((corner, i) => (i ? ctx.lineTo(...corner) : ctx.moveTo(...corner)));
      ctx.closePath();
    }
    ctx.globalAlpha = 0.07 + 0.2 * probability;
    ctx.fillStyle = probabilityColor(probability, colors);
    ctx.fill("nonzero");
  }
  ctx.globalAlpha = 1;
}

/** Group modes with equal ends on the screen, which share a label with their total. */
function groupEnds(pane, modes) {
  const groups = [];
  for (const mode of modes.toReversed()) {
    const end = pane.toPixels(mode.points.at(-1));
    const near = groups.find((group) => Math.hypot(group.end[0] - end[0], group.end[1] - end[1]) < SAME_END_PX);
    if (near) [near.total, near.count] = [near.total + mode.probability, near.count + 1];
    else groups.push({ mode, end, total: mode.probability, count: 1 });
  }
  return groups;
}

/** Let labels avoid the futures and the star of a track, its body, and the scale bar. */
function avoidFutures(pane, scene, track, clutter) {
  const truth = scene.path(track, scene.madeAt(pane.forecast), scene.steps - 1);
  const lines = [...scene.modes(pane.forecast, track).map(({ points }) => points), truth];
  clutter.avoid(lines.flatMap((line) => line.filter((_, i) => i % 3 === 0).map((point) => pane.toPixels(point))));
  const step = scene.recorded(state.step);
  if (scene.isValid(track, step)) clutter.block(bodyPixels(pane, scene, track, step));
  if (truth.length > 1) clutter.block(squareAt(pane.toPixels(truth.at(-1)), STAR_PX / 2));
  clutter.block([[0, pane.height - 34], [150, pane.height]]);
}

/** Write the probability of each mode beside its end; modes shorter than the road user have no label. */
function drawProbabilities(pane, scene, track, colors, clutter) {
  const modes = scene.modes(pane.forecast, track).filter((mode) => !isShort(pane, scene, track, mode));
  const labels = groupEnds(pane, modes).map(({ mode: { line }, end, total, count }) => {
    const back = line.at(-Math.min(8, line.length));
    const direction = Math.atan2(line.at(-1)[1] - back[1], line.at(-1)[0] - back[0]);
    return { text: percent(total) + (count > 1 ? ` · ${count} modes` : ""), anchor: end, direction };
  });
  drawLabels(pane, labels, { text: colors.ink, halo: colors.halo, leader: colors.muted }, clutter);
}
