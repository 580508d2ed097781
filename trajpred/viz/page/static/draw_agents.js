// Road users, how they came to where they are, and where they really went.

// Outlines in a box of length 1 (x, ahead) and width 1 (y, left), those of viz/shapes.py.
const RECTANGLE = [[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]];
const LOZENGE = [[0.5, 0], [0.1, 0.5], [-0.5, 0.35], [-0.5, -0.35], [0.1, -0.5]];
const DIAMOND = [[0.5, 0], [0, 0.5], [-0.5, 0], [0, -0.5]];
const CHEVRON = [[0.5, 0], [-0.5, 0.5], [-0.2, 0], [-0.5, -0.5]];
const ELLIPSE = Array.from({ length: 20 }, (_, i) => [Math.cos(i * Math.PI / 10) / 2, Math.sin(i * Math.PI / 10) / 2]);
const OUTLINES = {
  vehicle: RECTANGLE, bus: RECTANGLE, pedestrian: ELLIPSE,
  cyclist: LOZENGE, motorcyclist: LOZENGE, riderless_bicycle: LOZENGE,
};
const ROLES = ["OTHER", "SCORED", "EGO", "FOCAL"]; // higher ones are drawn over lower ones
const TRAIL_WIDTH = { OTHER: 1.3, SCORED: 1.7, EGO: 1.7, FOCAL: 2.8 };
const SMALLEST_PX = 6;
const HOLLOW_PX = 13; // room to see that there is nothing in it
const FADES = 8;

/** Add a closed outline at a pixel, turned by `heading` (counter-clockwise), of a size in pixels. */
function outline(ctx, shape, [x, y], heading, [length, width]) {
  const [c, s] = [Math.cos(heading), Math.sin(heading)];
  shape.forEach(([ahead, left], i) => {
    const [a, l] = [ahead * length, left * width];
    if (i) ctx.lineTo(x + a * c - l * s, y - a * s - l * c);
    else ctx.moveTo(x + a * c - l * s, y - a * s - l * c);
  });
  ctx.closePath();
}

/** Add a line through points in metres. Those less than a pixel from the one before are left out: most stand. */
function polyline(pane, points) {
  let before = [Infinity, Infinity];
  points.forEach((point, i) => {
    const [x, y] = pane.toPixels(point);
    if (i && i < points.length - 1 && Math.abs(x - before[0]) + Math.abs(y - before[1]) < 1) return;
    before = [x, y];
    if (i) pane.ctx.lineTo(x, y);
    else pane.ctx.moveTo(x, y);
  });
}

/** Length and width of a track in pixels, never a speck. */
function bodySize(scene, track) {
  return index.size_m[scene.type[track]].map((metres) => Math.max(metres * camera.scale, SMALLEST_PX));
}

/** Pixels all over the body of a track. */
function bodyPoints(pane, scene, track, step) {
  const [[x, y], heading] = [pane.toPixels(scene.place(track, step)), scene.heading(track, step)];
  const [length, width] = bodySize(scene, track);
  const [c, s] = [Math.cos(heading), Math.sin(heading)];
  const shares = [-0.5, -0.25, 0, 0.25, 0.5];
  return shares.flatMap((a) => shares.map((l) =>
    [x + a * length * c - l * width * s, y - a * length * s - l * width * c]));
}

/** Tracks seen at a step and in view, by rising role: of the others only if `others` is asked for. */
function tracksShown(pane, scene, step, others) {
  const tracks = [];
  for (let track = 0; track < scene.tracks; track++) {
    const wanted = others || track === scene.focal || track === state.selected;
    if (wanted && scene.seen(track, step) && pane.holds(scene.place(track, step), 8)) tracks.push(track);
  }
  const rank = (track) => ROLES.indexOf(scene.role[track]) + (track === state.selected ? 0.5 : 0);
  return tracks.sort((a, b) => rank(a) - rank(b));
}

/** The last steps of each track, fading in towards `step`. */
function drawHistories(pane, scene, tracks, step, colors) {
  const { ctx } = pane;
  pane.inPixels();
  ctx.lineCap = "butt";
  const first = Math.max(0, step - scene.observed + 1);
  const length = Math.max(1, step - first);
  for (const role of ROLES) {
    const own = tracks.filter((track) => scene.role[track] === role);
    ctx.strokeStyle = colors.role[role];
    ctx.lineWidth = TRAIL_WIDTH[role];
    for (let fade = 0; fade < FADES && own.length; fade++) {
      const from = first + Math.round(length * fade / FADES);
      const to = first + Math.round(length * (fade + 1) / FADES);
      ctx.globalAlpha = 0.06 + 0.74 * (fade + 0.5) / FADES;
      // One by one: a path of all would cover the whole canvas, which costs more than many small ones.
      for (const track of own) {
        const path = scene.path(track, from, to);
        if (path.length < 2 || Math.hypot(path[0][0] - path.at(-1)[0], path[0][1] - path.at(-1)[1]) < 0.05) continue;
        ctx.beginPath();
        polyline(pane, path);
        ctx.stroke();
      }
    }
  }
  ctx.globalAlpha = 1;
}

/** Whether a track is left out of what is shown. */
function isRemoved(scene, track) {
  return state.layers.without && scene.removed.includes(track);
}

/** Each track as the outline of its type, coloured by role, hollow if it is left out; a ring around the one chosen. */
function drawAgents(pane, scene, tracks, step, colors) {
  const { ctx } = pane;
  pane.inPixels();
  ctx.globalAlpha = state.step > step ? 0.55 : 1; // where they were last recorded
  for (const track of tracks) {
    const shape = OUTLINES[scene.type[track]] ?? DIAMOND;
    const [place, heading] = [pane.toPixels(scene.place(track, step)), scene.heading(track, step)];
    const removed = isRemoved(scene, track);
    const size = bodySize(scene, track).map((pixels) => Math.max(pixels, removed ? HOLLOW_PX : 0));
    ctx.beginPath();
    outline(ctx, shape, place, heading, size);
    ctx.fillStyle = removed ? colors.ground : colors.role[scene.role[track]];
    ctx.fill();
    ctx.setLineDash(removed ? [3, 2.5] : []);
    ctx.strokeStyle = removed ? colors.ink : colors.role_edge[scene.role[track]];
    ctx.lineWidth = removed ? 1.6 : 1;
    ctx.stroke();
    ctx.setLineDash([]);
    if (shape === RECTANGLE && !removed) {
      const nose = Math.min(0.55 * Math.min(...size), 14);
      ctx.beginPath();
      outline(ctx, CHEVRON.map(([x, y]) => [x + 0.45, y]), place, heading, [nose, nose]);
      ctx.fillStyle = colors.nose;
      ctx.fill();
    }
    if (track === state.selected && track !== scene.focal) drawRing(ctx, shape, place, heading, size, colors);
  }
  ctx.globalAlpha = 1;
}

function drawRing(ctx, shape, place, heading, size, colors) {
  ctx.beginPath();
  outline(ctx, shape, place, heading, size.map((pixels) => pixels + 9));
  ctx.strokeStyle = colors.ink;
  ctx.lineWidth = 1.6;
  ctx.stroke();
}

/** The real future of the chosen track, dashed up to a star, and thinner those of the scored ones. */
function drawTruths(pane, scene, tracks, colors) {
  const { ctx } = pane;
  pane.inPixels();
  for (const track of tracks) {
    const path = scene.path(track, scene.now, scene.steps - 1);
    if (path.length < 2) continue;
    const chosen = track === state.selected;
    const end = pane.toPixels(path.at(-1));
    ctx.lineCap = "butt";
    for (const [color, width] of [[colors.halo, chosen ? 4 : 0], [colors.role[scene.role[track]], chosen ? 2.2 : 1.2]]) {
      if (!width) continue;
      ctx.beginPath();
      polyline(pane, path);
      ctx.setLineDash(color === colors.halo ? [] : [6, 3.5]);
      ctx.globalAlpha = color === colors.halo ? 0.6 : 1;
      ctx.strokeStyle = color;
      ctx.lineWidth = width;
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
    drawEnd(ctx, end, chosen, colors.role[scene.role[track]], colors.halo);
  }
}

function drawEnd(ctx, [x, y], chosen, color, halo) {
  ctx.beginPath();
  if (chosen) {
    for (let i = 0; i < 10; i++) {
      const [angle, reach] = [-Math.PI / 2 + i * Math.PI / 5, i % 2 ? 3.4 : 8];
      ctx.lineTo(x + reach * Math.cos(angle), y + reach * Math.sin(angle));
    }
    ctx.closePath();
  } else {
    ctx.arc(x, y, 2.2, 0, 2 * Math.PI);
  }
  ctx.fillStyle = color;
  ctx.fill();
  ctx.strokeStyle = halo;
  ctx.lineWidth = 1;
  if (chosen) ctx.stroke();
}
