// Attention of the selected track: lanes coloured, agents ringed and connected by lines.

const SHARE = 0.001; // units of averaged shares and of those of a single head, see forecast_data.py
const HEAD_SHARE = 0.004;
const MIN_STRENGTH = 0.12; // smaller shares, relative to the largest, are omitted
const MAX_SHARE_LABELS = 6;

/** Lane segments by their centrelines, followed by crossings by their outlines. */
function attentionLanes(scene) {
  return scene.cached("lanes", () => [
    ...scene.lines.centerline.map((line) => ({ line, kind: "lane segment" })),
    ...scene.lines.crossing.map((line) => ({ line: [...line, line[0]], kind: "crossing" })),
  ]);
}

/** Columns of `heads` for the selected layer and head; all if the model does not have them. */
function selectedHeads({ layers, head_count }) {
  const { layer, head } = state.attention;
  const all = Array.from({ length: layers * head_count }, (_, column) => column);
  const chosen = all.filter((column) => (layer === null || Math.floor(column / head_count) === layer)
    && (head === null || column % head_count === head));
  return chosen.length ? chosen : all;
}

/** Whether single heads are stored for a track: only for focal and scored tracks. */
function hasHeads(scene, track) {
  return track === scene.focal || scene.role[track] === "SCORED";
}

/**
 * Senders that model `m` attends to for a track, by ascending share: `[{share, strength, track, lane}, …]` with
 * `strength` relative to the largest share, and either `track` or `lane` (an index of `attentionLanes`) null.
 */
function sendersTo(scene, m, track) {
  const attention = scene.models[m]?.attention;
  if (!attention) return [];
  const columns = selectedHeads(attention);
  return scene.cached(`senders ${m} ${track} ${columns}`, () => {
    const averaged = columns.length === attention.layers * attention.head_count || !hasHeads(scene, track);
    const found = [];
    attention.receiver.forEach((receiver, edge) => {
      if (receiver !== track) return;
      const sum = () => columns.reduce((total, column) => total + attention.heads[edge][column], 0);
      const share = averaged ? attention.share[edge] * SHARE : sum() * HEAD_SHARE / columns.length;
      const lane = attention.sender[edge] - scene.tracks.length;
      found.push(lane < 0 ? { share, track: attention.sender[edge], lane: null } : { share, track: null, lane });
    });
    found.sort((a, b) => a.share - b.share);
    const largest = found.at(-1)?.share || 1;
    return found.map((one) => ({ ...one, strength: one.share / largest }));
  });
}

/** The drawn senders; none in a what-if view, whose attention is not stored. */
function drawnSenders(pane, scene) {
  if (!state.layers.attention || pane.m < 0 || pane.isWhatIf) return [];
  if (scene.madeAt(pane.forecast) < scene.now) return []; // attention is stored for the last update only
  return sendersTo(scene, pane.m, state.selected).filter(({ strength }) => strength >= MIN_STRENGTH);
}

/** Draw attended lanes, and lines to attended agents at their position at `step`. */
function drawAttentionLines(pane, scene, step, colors) {
  const receiver = scene.isValid(state.selected, step) ? scene.position(state.selected, step) : null;
  for (const { strength, track, lane } of drawnSenders(pane, scene)) {
    if (track !== null && !(receiver && scene.isValid(track, step))) continue;
    const line = track === null ? attentionLanes(scene)[lane].line : [receiver, scene.position(track, step)];
    const width = track === null ? 1 + 5.5 * strength : 0.6 + 2.4 * strength;
    pane.strokeLine(line, { color: colors.attention, width, alpha: 0.12 + 0.7 * strength });
  }
}

/** Draw a ring around each attended agent. */
function drawAttentionRings(pane, scene, step, colors) {
  const { ctx } = pane;
  pane.usePixels();
  for (const { strength, track } of drawnSenders(pane, scene)) {
    if (track === null || !scene.isValid(track, step)) continue;
    traceBody(pane, scene, track, step, { extra: 3 });
    Object.assign(ctx, { strokeStyle: colors.attention, globalAlpha: 0.12 + 0.88 * strength, lineWidth: 1 + 2 * strength });
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

/** The pixel a share is written at: the agent, or the visible point nearest to the lane's middle; or null. */
function shareAnchor(pane, scene, step, { track, lane }) {
  const inside = ([x, y]) => x > 12 && y > 12 && x < pane.width - 12 && y < pane.height - 12;
  if (track !== null) {
    const pixel = scene.isValid(track, step) ? pane.toPixels(scene.position(track, step)) : null;
    return pixel && inside(pixel) ? pixel : null;
  }
  const { line } = attentionLanes(scene)[lane];
  const pixels = line.slice(1).flatMap(([x, y], i) =>
    [0.25, 0.5, 0.75].map((s) => pane.toPixels([line[i][0] + s * (x - line[i][0]), line[i][1] + s * (y - line[i][1])])));
  const middle = (pixels.length - 1) / 2;
  const order = pixels.map((pixel, i) => ({ pixel, offset: Math.abs(i - middle) })).sort((a, b) => a.offset - b.offset);
  return order.find(({ pixel }) => inside(pixel))?.pixel ?? null;
}

/** Write the largest visible shares beside their senders. */
function drawShares(pane, scene, step, colors, clutter) {
  const receiver = scene.position(state.selected, step);
  const anchored = drawnSenders(pane, scene).toReversed().map((one) => ({ ...one, anchor: shareAnchor(pane, scene, step, one) }));
  const shown = anchored.filter(({ anchor }) => anchor).slice(0, MAX_SHARE_LABELS);
  const labels = shown.map(({ anchor, share, track }) => {
    if (track !== null) clutter.avoid(bodyPixels(pane, scene, track, step));
    const [x, y] = pane.toMetres(anchor);
    return { text: percent(share), anchor, direction: Math.atan2(y - receiver[1], x - receiver[0]) };
  });
  drawLabels(pane, labels, { text: colors.attention, halo: colors.halo, leader: colors.attention }, clutter);
}

/** The lane with the largest share at a pixel, or null. */
function attendedLaneAt(pane, scene, pixel) {
  const isHit = ({ lane, strength }) => lane !== null && pane.isOnLine(pixel, attentionLanes(scene)[lane].line, 6 + 6 * strength);
  return drawnSenders(pane, scene).toReversed().find(isHit) ?? null;
}

/** Describe whose attention is shown, and which heads. */
function describeHeads(scene, track) {
  const { layer, head } = state.attention;
  const names = [layer === null ? "all layers" : `layer ${layer + 1}`, head === null ? "all heads" : `head ${head + 1}`];
  const heads = hasHeads(scene, track) ? names.join(", ") : "all layers, all heads";
  return `of the attention of ${typeName(scene, track)} ${scene.track_id[track]} (${heads})`;
}
