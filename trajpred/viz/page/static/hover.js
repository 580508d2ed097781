// What lies under the pointer, in words.

const NEAR_PX = 7;

/** Distance in pixels from a pixel to a line through pixels. */
function distanceTo([x, y], line) {
  let least = Infinity;
  for (let i = 0; i < line.length; i++) {
    const [a, b] = [line[Math.max(0, i - 1)], line[i]];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const share = Math.min(1, Math.max(0, ((x - a[0]) * dx + (y - a[1]) * dy) / (dx * dx + dy * dy || 1)));
    least = Math.min(least, Math.hypot(x - a[0] - share * dx, y - a[1] - share * dy));
  }
  return least;
}

/** The track at a pixel: the nearest whose body, or a little around it, is hit. */
function trackAt(pane, scene, pixel) {
  let best = null;
  const step = scene.recorded(state.step);
  for (const track of tracksShown(pane, scene, step, state.layers.agents)) {
    const place = pane.toPixels(scene.place(track, step));
    const distance = Math.hypot(place[0] - pixel[0], place[1] - pixel[1]);
    const [length, width] = bodySize(scene, track);
    const heading = scene.heading(track, step);
    const [dx, dy] = [pixel[0] - place[0], place[1] - pixel[1]];
    const ahead = Math.abs(dx * Math.cos(heading) + dy * Math.sin(heading));
    const aside = Math.abs(dy * Math.cos(heading) - dx * Math.sin(heading));
    const hit = ahead <= length / 2 + 3 && aside <= width / 2 + 3;
    if (hit && (!best || distance < best.distance)) best = { track, distance };
  }
  return best?.track ?? null;
}

/** The mode of the chosen track at a pixel. */
function modeAt(pane, scene, pixel) {
  if (pane.m < 0 || !state.layers.modes) return null;
  let best = null;
  for (const mode of modesOf(scene, pane.told, state.selected)) {
    const distance = distanceTo(pixel, mode.line.map((point) => pane.toPixels(point)));
    // Where several run together the likeliest is meant; modes come by rising probability.
    if (distance <= NEAR_PX && (!best || distance <= best.distance + 1)) best = { mode, distance };
  }
  return best?.mode ?? null;
}

/** The lines that tell of a track, a mode or a lane that is heard; the first one is the heading. */
function describe(pane, scene, { track, mode, lane }) {
  const tenths = (share) => `${(100 * share).toFixed(1)}%`;
  if (lane) return [`${lanesOf(scene)[lane.lane].kind} · ${tenths(lane.share)}`, headsInWords(scene, state.selected)];
  if (mode) {
    const lines = [`Mode ${mode.k + 1} · ${tenths(mode.probability)}`];
    if (pane.told !== pane.m) lines.push("without those left out");
    else lines.push(mode.error === null ? "no true end to compare" : `ends ${mode.error.toFixed(2)} m from the truth`);
    const length = mode.line.slice(1).reduce((sum, [x, y], i) => sum + Math.hypot(x - mode.line[i][0], y - mode.line[i][1]), 0);
    lines.push(`${length.toFixed(1)} m in ${(mode.points.length * scene.step_s).toFixed(1)} s`);
    if (mode.band) lines.push(`±${mode.band.at(-1).toFixed(1)} m across at the end (80%)`);
    return lines;
  }
  const lines = [`${kindOf(scene, track)} ${scene.track_id[track]}`, `${NAMES[scene.role[track]]} · ${scene.speed(track, scene.recorded(state.step)).toFixed(1)} m/s`];
  const heard = heardShown(pane, scene).find((one) => one.track === track);
  if (heard) lines.push(`gives ${tenths(heard.share)} ${headsInWords(scene, state.selected)}`);
  if (isRemoved(scene, track)) return [...lines, "left out of this forecast"];
  const values = scene.metrics(pane.m, track);
  if (values) lines.push(index.metrics.slice(0, 3).map((name, i) => `${name} ${metricText(name, values[i])}`).join(" · "));
  else if (pane.m >= 0) lines.push(scene.rowOf[pane.m].has(track) ? "no true future to judge by" : "not predicted");
  if (pane.m >= 0 && scene.rowOf[pane.m].has(track) && track !== state.selected) lines.push("click for its futures");
  return lines;
}

/** Show what is under the pointer, or nothing. */
function hover(pane, pixel, event) {
  const tip = document.getElementById("tip");
  const { scene } = state;
  const before = state.hover;
  const track = scene && pixel ? trackAt(pane, scene, pixel) : null;
  const mode = scene && pixel && track === null ? modeAt(pane, scene, pixel) : null;
  const lane = scene && pixel && track === null && !mode ? heardLaneAt(pane, scene, pixel) : null;
  state.hover = mode ? { pane, mode: mode.k } : null;
  tip.hidden = track === null && !mode && !lane;
  pane.canvas.classList.toggle("pointing", track !== null);
  if (!tip.hidden) {
    const [first, ...rest] = describe(pane, scene, { track, mode, lane });
    tip.replaceChildren();
    add(tip, "b", first);
    rest.forEach((line) => add(tip, "div", line));
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 14, innerHeight - height - 8);
    Object.assign(tip.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
  }
  if (before?.mode !== state.hover?.mode || before?.pane !== state.hover?.pane) redraw();
}
