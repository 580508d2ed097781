// From whom the chosen track's token takes its information: lanes coloured, agents ringed and joined to it.

const SHARE = 0.001; // what shares are multiples of, and those of a single head (written by heard.py)
const HEAD_SHARE = 0.004;
const FAINTEST_PART = 0.12; // of the strongest: who gives less is not drawn
const SHARES_TOLD = 6;

/** The points in metres of every line or polygon of an array. */
function linesOf(scene, name) {
  const points = scene.arrays[name].values;
  const { values, rows, columns } = scene.arrays[`${name}_rows`];
  let p = 0;
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: values[row * columns] }, () => [points[2 * p] * METRE, points[2 * p++ + 1] * METRE]));
}

/** Lane segments by their centrelines and, counted on, crossings by their outlines. */
function lanesOf(scene) {
  scene.lanes ??= [
    ...linesOf(scene, "centerline").map((line) => ({ line, kind: "lane segment" })),
    ...linesOf(scene, "crossing").map((line) => ({ line: [...line, line[0]], kind: "crossing" })),
  ];
  return scene.lanes;
}

/** Columns of the chosen layer and head, all of them where nothing is chosen or the model has no such. */
function chosenHeads([layers, heads]) {
  const { layer, head } = state.attention;
  const all = Array.from({ length: layers * heads }, (_, column) => column);
  const chosen = all.filter((column) => (layer === null || Math.floor(column / heads) === layer)
    && (head === null || column % heads === head));
  return chosen.length ? chosen : all;
}

/** Whether the heads of a track are kept one by one: those of the focal and the scored ones are. */
function headsKept(scene, track) {
  return track === scene.focal || scene.role[track] === "SCORED";
}

/**
 * From whom model `m` takes what it knows of a track, by rising share: `[{share, part, track, lane}, …]`,
 * `part` of the strongest, and either `track` or `lane` (a row of `lanesOf`) null.
 */
function heardBy(scene, m, track) {
  const edges = scene.arrays[`heard${m}`];
  if (!edges) return [];
  const columns = chosenHeads(scene.models[m].heads);
  const key = `heard ${m} ${track} ${columns}`;
  if (!scene.known.has(key)) scene.known.set(key, readHeard(scene, edges, scene.arrays[`heads${m}`], track, columns));
  return scene.known.get(key);
}

function readHeard(scene, edges, heads, track, columns) {
  const averaged = columns.length === heads.columns || !headsKept(scene, track);
  const found = [];
  for (let row = 0; row < edges.rows; row++) {
    const [receiver, sender, mean] = edges.values.subarray(3 * row, 3 * row + 3);
    if (receiver !== track) continue;
    const sum = () => columns.reduce((total, column) => total + heads.values[row * heads.columns + column], 0);
    const share = averaged ? mean * SHARE : sum() * HEAD_SHARE / columns.length;
    const lane = sender < scene.tracks ? null : sender - scene.tracks;
    found.push({ share, track: lane === null ? sender : null, lane });
  }
  found.sort((a, b) => a.share - b.share);
  const most = found.at(-1)?.share || 1;
  return found.map((one) => ({ ...one, part: one.share / most }));
}

/** What of it is drawn: nothing without somebody, for it was recorded with everybody. */
function heardShown(pane, scene) {
  if (!state.layers.attention || pane.m < 0 || pane.told !== pane.m) return [];
  return heardBy(scene, pane.m, state.selected).filter((one) => one.part >= FAINTEST_PART);
}

/** Lanes, and lines to agents where they are at `step`, by width and opacity. */
function drawHeard(pane, scene, step, colors) {
  const { ctx } = pane;
  pane.inPixels();
  ctx.strokeStyle = colors.attention;
  ctx.lineCap = "butt";
  ctx.lineJoin = "round";
  const own = scene.seen(state.selected, step) ? scene.place(state.selected, step) : null;
  for (const { part, track, lane } of heardShown(pane, scene)) {
    const seen = track === null || (own && scene.seen(track, step));
    if (!seen) continue;
    ctx.globalAlpha = 0.12 + 0.7 * part;
    ctx.lineWidth = track === null ? 1 + 5.5 * part : 0.6 + 2.4 * part;
    ctx.beginPath();
    polyline(pane, track === null ? lanesOf(scene)[lane].line : [own, scene.place(track, step)]);
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

/** A ring around each agent that is heard. */
function drawRings(pane, scene, step, colors) {
  const { ctx } = pane;
  pane.inPixels();
  ctx.strokeStyle = colors.attention;
  for (const { part, track } of heardShown(pane, scene)) {
    if (track === null || !scene.seen(track, step)) continue;
    ctx.globalAlpha = 0.12 + 0.88 * part;
    ctx.lineWidth = 1 + 2 * part;
    const shape = OUTLINES[scene.type[track]] ?? DIAMOND;
    ctx.beginPath();
    const size = bodySize(scene, track).map((pixels) => pixels + 3);
    outline(ctx, shape, pane.toPixels(scene.place(track, step)), scene.heading(track, step), size);
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

/** Where a share belongs: at the agent, or at the point in view that is nearest to the lane's middle; or null. */
function anchorOf(pane, scene, step, { track, lane }) {
  const inside = ([x, y]) => x > 12 && y > 12 && x < pane.width - 12 && y < pane.height - 12;
  if (track !== null) {
    const place = scene.seen(track, step) ? pane.toPixels(scene.place(track, step)) : null;
    return place && inside(place) ? place : null;
  }
  const { line } = lanesOf(scene)[lane];
  const points = line.slice(1).flatMap(([x, y], i) =>
    [0.25, 0.5, 0.75].map((s) => pane.toPixels([line[i][0] + s * (x - line[i][0]), line[i][1] + s * (y - line[i][1])])));
  const middle = (points.length - 1) / 2;
  const order = points.map((point, i) => ({ point, away: Math.abs(i - middle) })).sort((a, b) => a.away - b.away);
  return order.find(({ point }) => inside(point))?.point ?? null;
}

/** Write the share of the strongest in view beside them; `labels` is what stands already, see `drawLabels`. */
function drawShares(pane, scene, step, colors, labels) {
  const centre = pane.toPixels(scene.place(state.selected, step));
  const told = heardShown(pane, scene).toReversed().map((one) => ({ ...one, anchor: anchorOf(pane, scene, step, one) }));
  const look = { text: colors.attention, halo: colors.halo, leader: colors.attention };
  for (const { anchor, ...one } of told.filter((each) => each.anchor).slice(0, SHARES_TOLD)) {
    if (one.track !== null) labels.taken.push(...bodyPoints(pane, scene, one.track, step));
    const along = Math.atan2(anchor[1] - centre[1], anchor[0] - centre[0]);
    drawLabel(pane, percent(one.share), anchor, along, look, labels);
  }
}

/** The lane that is heard at a pixel, with its share, or null. */
function heardLaneAt(pane, scene, pixel) {
  let best = null;
  for (const one of heardShown(pane, scene)) {
    if (one.lane === null) continue;
    const distance = distanceTo(pixel, lanesOf(scene)[one.lane].line.map((point) => pane.toPixels(point)));
    if (distance <= 3 + 3 * one.part && (!best || distance < best.distance)) best = { ...one, distance };
  }
  return best;
}

/** Of whom the shares are told, and which heads they are of. */
function headsInWords(scene, track) {
  const { layer, head } = state.attention;
  const heads = [layer === null ? "all layers" : `layer ${layer + 1}`, head === null ? "all heads" : `head ${head + 1}`];
  const which = headsKept(scene, track) ? heads.join(", ") : "all layers, all heads";
  return `of what ${kindOf(scene, track)} ${scene.track_id[track]} takes in (${which})`;
}
