// Predicted modes with uncertainty bands and probabilities, and the placement of labels.

const SMOOTH = 3; // steps on either side that determine the direction of a mode
const MIN_MOTION_M = 0.3;
const SAME_END_PX = 9;
const LABEL_FONT = '600 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const TURNS = [0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180].map((degrees) => degrees * Math.PI / 180);
const GAPS = [9, 18, 30, 44];
const COVERED = 1000; // cost of covering another label

/** Colour of a probability; the square root spreads the low values typical of six modes. */
function probabilityColor(probability, colors) {
  const last = colors.ramp.length - 1;
  return colors.ramp[Math.round(Math.sqrt(Math.min(1, Math.max(0, probability))) * last)];
}

/** A short label; small positive values become "<1%", never "0%". */
function percent(probability) {
  return probability > 0 && probability < 0.005 ? "<1%" : `${Math.round(100 * probability)}%`;
}

/** Draw the modes of a track that is not selected, thin and faint. */
function drawFaintModes(pane, scene, track, colors) {
  for (const { line, probability } of scene.modes(pane.forecast, track)) {
    const [color, alpha] = [probabilityColor(probability, colors), 0.3 + 0.5 * Math.sqrt(probability)];
    pane.strokeLine(line, { color: colors.halo, alpha: 0.4, width: 2.2, cap: "round" });
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

/** Fill the 80 % band of each mode. */
function drawBands(pane, scene, track, colors) {
  const { ctx } = pane;
  pane.usePixels();
  for (const { points, band, probability } of scene.modes(pane.forecast, track)) {
    if (!band) continue;
    const [left, right] = [[], []];
    let normal = [0, 0];
    points.forEach(([x, y], f) => {
      const [before, after] = [points[Math.max(0, f - SMOOTH)], points[Math.min(points.length - 1, f + SMOOTH)]];
      const [dx, dy] = [after[0] - before[0], after[1] - before[1]];
      const length = Math.hypot(dx, dy);
      if (length > MIN_MOTION_M) normal = [-dy / length, dx / length];
      left.push([x + normal[0] * band[f], y + normal[1] * band[f]]);
      right.push([x - normal[0] * band[f], y - normal[1] * band[f]]);
    });
    ctx.beginPath();
    pane.tracePixels([...left, ...right.reverse()]);
    ctx.closePath();
    ctx.globalAlpha = 0.07 + 0.2 * probability;
    ctx.fillStyle = probabilityColor(probability, colors);
    ctx.fill("nonzero");
  }
  ctx.globalAlpha = 1;
}

/** Group modes with the same end on the screen, which share a label with their total. */
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

/** Write the probability beside the end of each mode; `labels` collects what later labels avoid. */
function drawProbabilities(pane, scene, track, colors, labels) {
  const modes = scene.modes(pane.forecast, track);
  const groups = groupEnds(pane, modes);
  const lines = [...modes.map((mode) => mode.points), scene.path(track, scene.madeAt(pane.forecast), scene.steps - 1)];
  labels.avoid.push(...lines.flatMap((line) => line.filter((_, i) => i % 3 === 0).map((point) => pane.toPixels(point))));
  const step = scene.recorded(state.step);
  if (scene.isValid(track, step)) labels.avoid.push(...bodyPixels(pane, scene, track, step));
  labels.ends.push(...groups.map((group) => group.end));
  for (const { mode: { line }, end, total, count } of groups) {
    const [tip, back] = [pane.toPixels(line.at(-1)), pane.toPixels(line.at(-Math.min(8, line.length)))];
    const direction = Math.atan2(tip[1] - back[1], tip[0] - back[0]);
    const text = percent(total) + (count > 1 ? ` · ${count} modes` : "");
    drawLabel(pane, text, end, direction, { text: colors.ink, halo: colors.halo, leader: colors.muted }, labels);
  }
}

/** Write `text` near `anchor`, preferably in `direction`, with a leader line if it is distant. */
function drawLabel(pane, text, anchor, direction, colors, labels) {
  const { ctx } = pane;
  pane.usePixels();
  Object.assign(ctx, { font: LABEL_FONT, textAlign: "center", textBaseline: "middle", lineJoin: "round" });
  const half = [ctx.measureText(text).width / 2 + 2, 8];
  const center = placeLabel(pane, anchor, direction, half, labels);
  if (!center) return;
  labels.placed.push({ center, half });
  const [dx, dy] = [center[0] - anchor[0], center[1] - anchor[1]];
  if (Math.hypot(dx, dy) > half[0] + 20) {
    const stop = 1 - Math.min(half[0] / Math.abs(dx), half[1] / Math.abs(dy)); // at the border of the label
    Object.assign(ctx, { strokeStyle: colors.leader, lineWidth: 0.8 });
    ctx.beginPath();
    ctx.moveTo(...anchor);
    ctx.lineTo(anchor[0] + dx * stop, anchor[1] + dy * stop);
    ctx.stroke();
  }
  drawText(ctx, text, center, colors.text, colors.halo);
}

function drawText(ctx, text, pixel, color, halo) {
  Object.assign(ctx, { strokeStyle: halo, lineWidth: 3.5, fillStyle: color });
  ctx.strokeText(text, ...pixel);
  ctx.fillText(text, ...pixel);
}

/** Choose the cheapest candidate position of a label, like `place_labels` in viz/view.py; null if none is free. */
function placeLabel(pane, anchor, direction, half, { placed, ends, avoid }) {
  let best = null;
  for (const gap of GAPS) {
    for (const turn of TURNS) {
      const [c, s] = [Math.cos(direction + turn), Math.sin(direction + turn)];
      const reach = gap + Math.min(half[0] / Math.max(Math.abs(c), 1e-6), half[1] / Math.max(Math.abs(s), 1e-6));
      const center = [anchor[0] + c * reach, anchor[1] + s * reach];
      const covers = ([x, y], dx, dy) => Math.abs(x - center[0]) < dx && Math.abs(y - center[1]) < dy;
      const inside = covers([pane.width / 2, pane.height / 2], pane.width / 2 - half[0], pane.height / 2 - half[1]);
      let cost = 0.5 * gap + 1.5 * Math.abs(turn) + (inside ? 0 : 50);
      for (const other of placed) cost += covers(other.center, other.half[0] + half[0], other.half[1] + half[1]) ? COVERED : 0;
      for (const end of ends) cost += covers(end, half[0] + 4, half[1] + 4) ? 20 : 0;
      for (const point of avoid) cost += covers(point, half[0] + 1, half[1] + 1) ? 3 : 0;
      if (!best || cost < best.cost) best = { cost, center };
    }
  }
  return best.cost < COVERED ? best.center : null;
}
