// What is predicted: futures coloured, widened and faded by probability, their uncertainty, their labels.

/** Colour of a probability; its square root spreads the low values that six modes share. */
function probabilityColor(probability, colors) {
  const last = colors.ramp.length - 1;
  return colors.ramp[Math.round(Math.sqrt(Math.min(1, Math.max(0, probability))) * last)];
}

/** A short label; never "0%" for what is merely unlikely. */
function percent(probability) {
  return probability > 0 && probability < 0.005 ? "<1%" : `${Math.round(100 * probability)}%`;
}

/** The modes of a track from where it stood, the likeliest last, so that it lies on top. */
function modesOf(scene, m, track) {
  const key = `${m} ${track}`;
  if (!scene.known.has(key)) {
    const start = scene.seen(track, scene.now) ? [scene.place(track, scene.now)] : [];
    const modes = scene.modes(m, track).map((mode, k) => ({ ...mode, k, line: [...start, ...mode.points] }));
    scene.known.set(key, modes.sort((a, b) => a.probability - b.probability));
  }
  return scene.known.get(key);
}

/** Futures of a track that is not the chosen one: thin and faint. */
function drawFaintModes(pane, scene, track, colors) {
  const { ctx } = pane;
  pane.inPixels();
  ctx.lineCap = "round";
  for (const mode of modesOf(scene, pane.told, track)) {
    ctx.globalAlpha = 0.2 + 0.5 * Math.sqrt(mode.probability);
    ctx.strokeStyle = probabilityColor(mode.probability, colors);
    ctx.lineWidth = 1.2;
    ctx.beginPath();
    polyline(pane, mode.line);
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

/** The futures of the chosen track, each with an end and a dot where it is at `step`. */
function drawModes(pane, scene, track, step, colors) {
  const { ctx } = pane;
  const modes = modesOf(scene, pane.told, track);
  pane.inPixels();
  ctx.lineCap = "round";
  ctx.lineJoin = "round";
  for (const mode of modes) {
    const width = 1.6 + 2.6 * Math.sqrt(mode.probability);
    const hot = state.hover?.mode === mode.k && state.hover.pane === pane;
    for (const [color, extra, alpha] of [
      [colors.halo, 2.2, 0.8],
      [probabilityColor(mode.probability, colors), hot ? 1.8 : 0, hot ? 1 : 0.55 + 0.45 * Math.sqrt(mode.probability)],
    ]) {
      ctx.globalAlpha = alpha;
      ctx.strokeStyle = color;
      ctx.lineWidth = width + extra;
      ctx.beginPath();
      polyline(pane, mode.line);
      ctx.stroke();
    }
  }
  ctx.globalAlpha = 1;
  for (const mode of modes) {
    drawDot(pane, mode.points.at(-1), 4.2, mode, colors);
    const at = step - scene.observed;
    if (at >= 0 && at < mode.points.length - 1) drawDot(pane, mode.points[at], 3, mode, colors);
  }
}

function drawDot(pane, point, radius, mode, colors) {
  const { ctx } = pane;
  ctx.beginPath();
  ctx.arc(...pane.toPixels(point), radius, 0, 2 * Math.PI);
  ctx.fillStyle = probabilityColor(mode.probability, colors);
  ctx.fill();
  ctx.strokeStyle = colors.halo;
  ctx.lineWidth = 1.2;
  ctx.stroke();
}

/** Where somebody is left out: the futures as seen, dashed and colourless, to compare with. */
function drawGhosts(pane, scene, track, colors) {
  if (pane.told === pane.m) return;
  const { ctx } = pane;
  pane.inPixels();
  ctx.lineCap = "butt";
  ctx.setLineDash([5, 4]);
  ctx.strokeStyle = colors.muted;
  for (const mode of modesOf(scene, pane.m, track)) {
    ctx.globalAlpha = 0.35 + 0.6 * Math.sqrt(mode.probability);
    ctx.lineWidth = 1 + 1.2 * Math.sqrt(mode.probability);
    ctx.beginPath();
    polyline(pane, mode.line);
    ctx.stroke();
  }
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
}

const SMOOTH = 3; // steps to either side that tell the direction of a mode
const STILL_M = 0.3;

/** To either side of each mode the width that holds 80 %. */
function drawBands(pane, scene, track, colors) {
  const { ctx } = pane;
  pane.inPixels();
  for (const mode of modesOf(scene, pane.told, track)) {
    if (!mode.band) continue;
    const [left, right] = [[], []];
    let normal = [0, 0];
    mode.points.forEach(([x, y], f) => {
      const [before, after] = [Math.max(0, f - SMOOTH), Math.min(mode.points.length - 1, f + SMOOTH)].map((i) => mode.points[i]);
      const [dx, dy] = [after[0] - before[0], after[1] - before[1]];
      const length = Math.hypot(dx, dy);
      if (length > STILL_M) normal = [-dy / length, dx / length]; // standing still has no direction
      left.push([x + normal[0] * mode.band[f], y + normal[1] * mode.band[f]]);
      right.push([x - normal[0] * mode.band[f], y - normal[1] * mode.band[f]]);
    });
    ctx.beginPath();
    polyline(pane, [...left, ...right.reverse()]);
    ctx.closePath();
    ctx.globalAlpha = 0.07 + 0.2 * mode.probability;
    ctx.fillStyle = probabilityColor(mode.probability, colors);
    ctx.fill("nonzero");
  }
  ctx.globalAlpha = 1;
}

const LABEL_FONT = '600 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const SAME_END_PX = 9;
const TURNS = [0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180].map((degrees) => degrees * Math.PI / 180);
const GAPS = [9, 18, 30, 44];

/** Modes that end in the same place share a label with their total. */
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

/**
 * Write the probability beside the end of each mode, covering neither labels nor ends nor modes.
 *
 * `labels` is what other labels have to keep clear of: `placed` ones, `ends`, and points that are `taken`.
 */
function drawLabels(pane, scene, track, colors, labels) {
  const modes = modesOf(scene, pane.told, track);
  const groups = groupEnds(pane, modes);
  const lines = [...modes.map((mode) => mode.points), scene.path(track, scene.now, scene.steps - 1)];
  labels.taken.push(...lines.flatMap((line) => line.filter((_, i) => i % 3 === 0).map((point) => pane.toPixels(point))));
  const step = scene.recorded(state.step);
  if (scene.seen(track, step)) labels.taken.push(...bodyPoints(pane, scene, track, step));
  labels.ends.push(...groups.map((group) => group.end));
  for (const { mode, end, total, count } of groups) {
    const text = percent(total) + (count > 1 ? ` · ${count} modes` : "");
    const { line } = mode;
    const [tip, back] = [pane.toPixels(line.at(-1)), pane.toPixels(line.at(-Math.min(8, line.length)))];
    const along = Math.atan2(tip[1] - back[1], tip[0] - back[0]);
    drawLabel(pane, text, end, along, { text: colors.ink, halo: colors.halo, leader: colors.muted }, labels);
  }
}

/** Write `text` near `end`, best in the direction `along`, where it covers least; `look`: its three colours. */
function drawLabel(pane, text, end, along, look, labels) {
  const { ctx } = pane;
  pane.inPixels();
  ctx.font = LABEL_FONT;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.lineJoin = "round";
  const half = [ctx.measureText(text).width / 2 + 2, 8];
  const center = placeLabel(pane, end, along, half, labels);
  labels.placed.push({ center, half });
  if (Math.hypot(center[0] - end[0], center[1] - end[1]) > half[0] + 20) drawLeader(ctx, end, center, half, look.leader);
  ctx.strokeStyle = look.halo;
  ctx.lineWidth = 3.5;
  ctx.strokeText(text, ...center);
  ctx.fillStyle = look.text;
  ctx.fillText(text, ...center);
}

function drawLeader(ctx, [x, y], center, half, color) {
  const [dx, dy] = [center[0] - x, center[1] - y];
  const stop = 1 - Math.min(half[0] / Math.abs(dx), half[1] / Math.abs(dy)); // at the border of the label
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x + dx * stop, y + dy * stop);
  ctx.strokeStyle = color;
  ctx.lineWidth = 0.8;
  ctx.stroke();
}

/** The cheapest of the places around an end; the way of viz/labels.py. */
function placeLabel(pane, anchor, along, half, { placed, ends, taken }) {
  let best = null;
  for (const gap of GAPS) {
    for (const turn of TURNS) {
      const [c, s] = [Math.cos(along + turn), Math.sin(along + turn)];
      const reach = gap + Math.min(half[0] / Math.max(Math.abs(c), 1e-6), half[1] / Math.max(Math.abs(s), 1e-6));
      const center = [anchor[0] + c * reach, anchor[1] + s * reach];
      const outside = Math.abs(center[0] - pane.width / 2) + half[0] > pane.width / 2
        || Math.abs(center[1] - pane.height / 2) + half[1] > pane.height / 2;
      const covers = ([x, y], dx, dy) => Math.abs(x - center[0]) < dx && Math.abs(y - center[1]) < dy;
      let cost = 0.5 * gap + 1.5 * Math.abs(turn) + (outside ? 50 : 0);
      for (const other of placed) cost += covers(other.center, other.half[0] + half[0], other.half[1] + half[1]) ? 1000 : 0;
      for (const end of ends) cost += covers(end, half[0] + 4, half[1] + 4) ? 20 : 0;
      for (const point of taken) cost += covers(point, half[0] + 1, half[1] + 1) ? 3 : 0;
      if (!best || cost < best.cost) best = { cost, center };
    }
  }
  return best.center;
}
