// Road users, their histories and their true futures.

// Outlines in a box of length 1 (x, forward) and width 1 (y, left), as in viz/agent_layer.py.
const RECTANGLE = [[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]];
const LOZENGE = [[0.5, 0], [0.1, 0.5], [-0.5, 0.35], [-0.5, -0.35], [0.1, -0.5]];
const DIAMOND = [[0.5, 0], [0, 0.5], [-0.5, 0], [0, -0.5]];
const CHEVRON = [[0.5, 0], [-0.5, 0.5], [-0.2, 0], [-0.5, -0.5]];
const polar = (radius, angle) => [radius * Math.cos(angle), radius * Math.sin(angle)];
const ELLIPSE = Array.from({ length: 20 }, (_, i) => polar(0.5, i * Math.PI / 10));
const STAR = Array.from({ length: 10 }, (_, i) => polar(i % 2 ? 0.2125 : 0.5, Math.PI * (0.5 - i / 5)));
const BODY_GRID = [-0.5, -0.25, 0, 0.25, 0.5].flatMap((a, _, shares) => shares.map((l) => [a, l]));
const OUTLINES = {
  vehicle: RECTANGLE, bus: RECTANGLE, pedestrian: ELLIPSE, unknown: CHEVRON,
  cyclist: LOZENGE, motorcyclist: LOZENGE, riderless_bicycle: LOZENGE,
};
const ROLES = ["OTHER", "SCORED", "EGO", "FOCAL"]; // drawn in this order
const HISTORY_WIDTHS = { OTHER: 1.3, SCORED: 1.7, EGO: 1.7, FOCAL: 2.8 };
const MIN_MOVED_M = 1; // in the last second; road users of unknown type that moved less stand and are circles
const MIN_SIZE_PX = 6;
const MIN_HOLLOW_PX = 13; // large enough to recognise as hollow
const UNSEEN_FONT = '10px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const STAR_PX = 16;
const FADES = 8; // steps of opacity along a history

/** Place an outline at a pixel, turned counter-clockwise by `heading`, of a size in pixels. */
function placeOutline(shape, [x, y], heading, [length, width]) {
  const [c, s] = [Math.cos(heading), Math.sin(heading)];
  return shape.map(([a, l]) => [x + a * length * c - l * width * s, y - a * length * s - l * width * c]);
}

/** Trace a closed outline, placed by `placeOutline`. */
function traceOutline(ctx, ...placed) {
  placeOutline(...placed).forEach((pixel, i) => (i ? ctx.lineTo(...pixel) : ctx.moveTo(...pixel)));
  ctx.closePath();
}

/** Trace the body of a track, enlarged by `extra` pixels, and return its shape, pixel, heading and size. */
function traceBody(pane, scene, track, step, { extra = 0, smallest = 0 } = {}) {
  const outline = OUTLINES[scene.type[track]] ?? DIAMOND;
  const seen = scene.lastSeen(track, step);
  const path = outline === CHEVRON ? scene.path(track, seen - Math.round(1 / scene.step_s), seen) : [];
  const [dx, dy] = path.length ? [0, 1].map((axis) => path.at(-1)[axis] - path[0][axis]) : [0, 0];
  const stands = outline === CHEVRON && Math.hypot(dx, dy) < MIN_MOVED_M;
  const shape = stands ? ELLIPSE : outline;
  const heading = shape === CHEVRON ? Math.atan2(dy, dx) : scene.headings[track][step];
  const pixel = pane.toPixels(scene.position(track, step));
  const full = bodySize(scene, track).map((pixels) => Math.max(pixels, smallest) + extra);
  const size = stands ? full.map(() => Math.min(...full)) : full;
  pane.ctx.beginPath();
  traceOutline(pane.ctx, shape, pixel, heading, size);
  return { shape, pixel, heading, size };
}

/** Length and width of a track in pixels. */
function bodySize(scene, track) {
  return scene.size_m[track].map((metres) => Math.max(metres * camera.scale, MIN_SIZE_PX));
}

/** Opposite corners of a square around a pixel. */
function squareAt([x, y], half) {
  return [[x - half, y - half], [x + half, y + half]];
}

/** Pixels all over the body of a track, which labels avoid. */
function bodyPixels(pane, scene, track, step) {
  const pixel = pane.toPixels(scene.position(track, step));
  return placeOutline(BODY_GRID, pixel, scene.headings[track][step], bodySize(scene, track));
}

/** Whether a track not visible at a step has a shown future, which would otherwise start from nothing. */
function isLost(pane, scene, track, step) {
  const { forecast } = pane;
  const hasModes = track === state.selected || (state.layers.others && ["FOCAL", "SCORED"].includes(scene.role[track]));
  return hasModes && state.layers.modes && scene.isPredicted(forecast, track) && step >= scene.madeAt(forecast)
    && !scene.isValid(track, step) && scene.lastSeen(track, step) >= 0;
}

/** How long before a step a track was last seen. */
function unseenText(scene, track, step) {
  return `${Number(((step - scene.lastSeen(track, step)) * scene.step_s).toPrecision(2))} s ago`;
}

/** Visible and lost tracks at a step by ascending role; without `others` only the focal and selected ones. */
function visibleTracks(pane, scene, step, others) {
  const rank = (track) => ROLES.indexOf(scene.role[track]) + (track === state.selected ? 0.5 : 0);
  return scene.tracks.filter((track) => (others || track === scene.focal || track === state.selected)
    && (scene.isValid(track, step) || isLost(pane, scene, track, step)) && pane.contains(scene.position(track, step), 8)).sort((a, b) => rank(a) - rank(b));
}

/** Draw the path of each track up to `step`, fading in. */
function drawHistories(pane, scene, tracks, step, colors) {
  const first = Math.max(0, step - scene.observed + 1);
  const length = Math.max(1, step - first);
  const byRole = tracks.toSorted((a, b) => ROLES.indexOf(scene.role[a]) - ROLES.indexOf(scene.role[b]));
  for (let fade = 0; fade < FADES; fade++) {
    const [from, to] = [fade, fade + 1].map((i) => first + Math.round(length * i / FADES));
    for (const track of byRole) {
      const path = scene.path(track, from, to);
      if (path.length < 2 || Math.hypot(path[0][0] - path.at(-1)[0], path[0][1] - path.at(-1)[1]) < 0.05) continue;
      const role = scene.role[track];
      pane.strokeLine(path, { color: colors.role[role], width: HISTORY_WIDTHS[role], alpha: 0.06 + 0.74 * (fade + 0.5) / FADES });
    }
  }
}

/** Whether a track is omitted from the shown forecast. */
function isRemoved(scene, track) {
  return state.layers.without && scene.removed.includes(track);
}

/** Draw each track as the outline of its type, coloured by role; removed and lost ones hollow, the selected one ringed. */
function drawAgents(pane, scene, tracks, step, colors, clutter) {
  const { ctx } = pane;
  pane.usePixels();
  ctx.globalAlpha = state.step > step ? 0.55 : 1; // the last recorded state
  for (const track of tracks) {
    const removed = isRemoved(scene, track);
    const lost = isLost(pane, scene, track, step);
    const body = traceBody(pane, scene, track, step, { smallest: removed ? MIN_HOLLOW_PX : 0 });
    ctx.setLineDash(removed ? [3, 2.5] : []);
    if (removed) {
      pane.fillPath(colors.ground, colors.ink, 1.6);
      clutter.block(bodyPixels(pane, scene, track, step));
    }
    else if (lost) pane.fillPath(colors.ground, colors.role_edge[scene.role[track]], 1.6);
    else pane.fillPath(colors.role[scene.role[track]], colors.role_edge[scene.role[track]], 1);
    ctx.setLineDash([]);
    if (lost) {
      Object.assign(ctx, { font: UNSEEN_FONT, textAlign: "center", textBaseline: "top", lineJoin: "round" });
      const below = Math.max(...body.size) / 2 + 3;
      const [x, y] = [body.pixel[0], body.pixel[1] + below];
      drawText(ctx, unseenText(scene, track, step), [x, y], colors.muted, colors.halo);
      clutter.block([[x - 24, y], [x + 24, y + 12]]);
    }
    if (body.shape === RECTANGLE && !removed && !lost) {
      const nose = Math.min(0.55 * Math.min(...body.size), 14);
      ctx.beginPath();
      traceOutline(ctx, CHEVRON.map(([x, y]) => [x + 0.45, y]), body.pixel, body.heading, [nose, nose]);
      ctx.fillStyle = colors.nose;
      ctx.fill();
    }
    if (track === state.selected && track !== scene.focal) {
      traceBody(pane, scene, track, step, { extra: 9 });
      Object.assign(ctx, { strokeStyle: colors.ink, lineWidth: 1.6 });
      ctx.stroke();
    }
  }
  ctx.globalAlpha = 1;
}

/** Draw true futures dashed, the selected track's with a star at its end. */
function drawTruths(pane, scene, tracks, colors) {
  for (const track of tracks) {
    const path = scene.path(track, scene.madeAt(pane.forecast), scene.steps - 1);
    if (path.length < 2) continue;
    const selected = track === state.selected;
    const color = colors.role[scene.role[track]];
    pane.strokeLine(path, { color: colors.halo, width: selected ? 4 : 2.6, alpha: 0.6 });
    pane.strokeLine(path, { color, width: selected ? 2.2 : 1.2, dash: [6, 3.5] });
    if (!selected) {
      pane.fillCircle(path.at(-1), 2.2, color, color, 0.1);
      continue;
    }
    pane.ctx.beginPath();
    traceOutline(pane.ctx, STAR, pane.toPixels(path.at(-1)), 0, [STAR_PX, STAR_PX]);
    pane.fillPath(color, colors.halo, 1);
  }
}
