// Text around the scene: scale bar, legend, summary of each model, and the tooltip.

const UNITS = { minADE6: " m", minFDE6: " m", MR6: "", "brier-minFDE6": "", "mode displacement": " m" };
const ROLE_NAMES = { FOCAL: "focal agent", EGO: "recording vehicle", SCORED: "scored agent", OTHER: "other agent" };
const TYPE_SYMBOLS = [
  ["pedestrian", ["pedestrian"], '<circle cx="6" cy="6" r="4"/>'],
  ["two-wheeler", ["cyclist", "motorcyclist", "riderless_bicycle"], '<path d="M0 4.2L7 2l5 4-5 4-7-2.2z"/>'],
  ["unknown type", ["unknown"], '<path d="M11 6L1 11l3-5-3-5z"/>'],
  ["object", ["static", "background", "construction"], '<path d="M6 1l5 5-5 5-5-5z"/>'],
];
const HOVER_PX = 7;

/** Format a metric. */
function metricText(name, value) {
  if (value === null || value === undefined) return "–";
  if (name === "MR6") return value ? "miss" : "hit";
  return value.toFixed(2) + (UNITS[name] ?? "");
}

/** The type of a track in words. */
function typeName(scene, track) {
  return scene.type[track].replaceAll("_", " ");
}

/** Types and ids of tracks; long ids are truncated. */
function trackNames(scene, tracks) {
  const short = (id) => (id.length > 10 ? id.slice(0, 8) : id);
  return tracks.map((track) => `${typeName(scene, track)} ${short(scene.track_id[track])}`).join(", ");
}

/** Draw a bar of a round length (1, 2 or 5 times a power of ten) at the lower left. */
function drawScaleBar(pane, colors) {
  const { ctx } = pane;
  const power = 10 ** Math.floor(Math.log10(120 / camera.scale));
  const metres = [5, 2, 1].map((factor) => factor * power).find((length) => length <= 120 / camera.scale);
  const [x, y, width] = [16, pane.height - 16, metres * camera.scale];
  pane.usePixels();
  Object.assign(ctx, { lineCap: "butt", lineJoin: "miter" });
  for (const [strokeStyle, lineWidth] of [[colors.halo, 5], [colors.ink, 1.6]]) {
    Object.assign(ctx, { strokeStyle, lineWidth });
    ctx.beginPath();
    [[x, y - 5], [x, y], [x + width, y], [x + width, y - 5]].forEach((corner) => ctx.lineTo(...corner));
    ctx.stroke();
  }
  const font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  Object.assign(ctx, { font, textAlign: "center", textBaseline: "alphabetic", lineJoin: "round" });
  drawText(ctx, `${metres} m`, [x + width / 2, y - 5], colors.ink, colors.halo);
}

/** Update the line above a canvas: model and metrics of the selected track. */
function updateSummary(pane, scene) {
  const { summary, m } = pane;
  const { selected } = state;
  drawStream(pane, scene);
  summary.hidden = m < 0;
  if (summary.hidden) return;
  summary.replaceChildren();
  const item = (name, value) => add(add(summary, "span", `${name} `), "em", value);
  add(summary, "b", (index.models.length > 1 ? `${"AB"[m]}  ` : "") + index.models[m]);
  if (selected !== scene.focal) item("", trackNames(scene, [selected]));
  if (pane.isWhatIf) {
    const shift = scene.forecasts[pane.forecast].shift_m[scene.rowOf[pane.forecast].get(selected)];
    if (scene.edited) add(summary, "strong", "edited: nobody drove this");
    if (scene.removed.length) item("without", trackNames(scene, scene.removed));
    item("mean future ends", Number.isFinite(shift) ? `${shift.toFixed(2)} m away` : "–");
    return;
  }
  if (scene.madeAt(pane.forecast) < scene.now) { // the chart has its scores
    item("as predicted at", scene.time(scene.madeAt(pane.forecast)));
    return;
  }
  const senders = state.layers.attention ? sendersTo(scene, m, selected) : [];
  const sum = (list) => list.reduce((total, { share }) => total + share, 0);
  if (senders.length) {
    const agents = sum(senders.filter(({ track }) => track !== null)) / sum(senders);
    item("attention", `${percent(agents)} agents, ${percent(1 - agents)} lanes`);
  }
  const values = scene.metrics(m, selected);
  if (values) index.metrics.forEach((name, i) => item(name, metricText(name, values[i])));
  else add(summary, "span", scene.isPredicted(m, selected) ? "no true future for metrics" : "not predicted");
}

/** Update the legend with what the scene contains. */
function updateLegend(scene, colors) {
  const legend = get("legend");
  legend.replaceChildren();
  const entry = (drawing, color, name, width = 12) => {
    const item = add(legend, "span");
    // Constant drawings and theme colours only, never data.
    item.innerHTML = `<svg width="${width}" height="12" fill="${color}" stroke="${color}">${drawing}</svg>`;
    item.append(name);
  };
  const line = (color, name, style) => entry(`<path d="M0 6H24" fill="none" ${style}/>`, color, name, 24);
  for (const role of ROLES.toReversed().filter((one) => scene.role.includes(one))) {
    entry('<rect x="1" y="1" width="10" height="10" rx="1.5" stroke="none"/>', colors.role[role], ROLE_NAMES[role]);
  }
  for (const [name, types, drawing] of TYPE_SYMBOLS) {
    if (types.some((type) => scene.type.includes(type))) entry(drawing, colors.role_edge.OTHER, name);
  }
  line(colors.role.FOCAL, "history", 'stroke-width="3" opacity="0.6"');
  for (const role of ["FOCAL", "SCORED"]) {
    const known = (track) => scene.role[track] === role && scene.path(track, scene.observed, scene.steps).length;
    const name = `true future${role === "FOCAL" ? "" : ", scored"}`;
    if (scene.tracks.some(known)) line(colors.role[role], name, 'stroke-width="2" stroke-dasharray="5 3"');
  }
  if (!scene.models.length) return;
  const item = add(legend, "span", "probability 0");
  const ramp = add(item, "i");
  ramp.className = "ramp";
  ramp.style.background = `linear-gradient(90deg, ${Array.from({ length: 41 }, (_, i) => probabilityColor(i / 40, colors))})`;
  item.append("100%");
  if (scene.models.some((model) => model.band)) {
    entry('<rect y="1" width="24" height="10" rx="2" opacity="0.35" stroke="none"/>', probabilityColor(0.4, colors), "80% band", 24);
  }
  if (state.layers.attention) line(colors.attention, "attention", 'stroke-width="5" opacity="0.7"');
  if (state.layers.without && scene.without.length) {
    const hollow = '<rect x="1" y="1" width="10" height="10" fill="none" stroke-dasharray="3 2"/>';
    if (scene.removed.length) entry(hollow, colors.ink, "removed road user");
    line(colors.muted, "original future", 'stroke-width="1.6" stroke-dasharray="5 4"');
  }
  extension.legend?.(line, colors);
}

/** The topmost track whose body is at a pixel, or null. */
function trackAt(pane, scene, pixel) {
  const step = scene.recorded(state.step);
  pane.usePixels();
  return visibleTracks(pane, scene, step, state.layers.agents).toReversed().find((track) => {
    traceBody(pane, scene, track, step, { extra: 6 });
    return pane.ctx.isPointInPath(...pixel.map((value) => value * pane.ratio));
  }) ?? null;
}

/** The likeliest mode of the selected track at a pixel, or null. */
function modeAt(pane, scene, pixel) {
  if (pane.m < 0 || !state.layers.modes) return null;
  const modes = scene.modes(pane.forecast, state.selected).toReversed();
  return modes.find(({ line }) => pane.isOnLine(pixel, line, 2 * HOVER_PX)) ?? null;
}

/** Lines of the tooltip for a track, a mode or an attended lane; the first one is the heading. */
function describe(pane, scene, { track, mode, lane }) {
  const exact = (share) => `${(100 * share).toFixed(1)}%`;
  if (lane) return [`${attentionLanes(scene)[lane.lane].kind} · ${exact(lane.share)}`, describeHeads(scene, state.selected)];
  if (mode) return describeMode(pane, scene, mode, exact);
  const speed = scene.speeds[track][scene.recorded(state.step)];
  const lines = [`${typeName(scene, track)} ${scene.track_id[track]}`, `${ROLE_NAMES[scene.role[track]]} · ${speed.toFixed(1)} m/s`];
  const step = scene.recorded(state.step);
  if (isLost(pane, scene, track, step)) lines.push(`last seen ${unseenText(scene, track, step)}`);
  const sender = drawnSenders(pane, scene).find((one) => one.track === track);
  if (sender) lines.push(`${exact(sender.share)} ${describeHeads(scene, state.selected)}`);
  if (isRemoved(scene, track)) return [...lines, "removed from this forecast"];
  const values = pane.forecast === pane.m ? scene.metrics(pane.m, track) : null; // of no other forecast
  const isPredicted = scene.isPredicted(pane.forecast, track);
  if (values) lines.push(index.metrics.slice(0, 3).map((name, i) => `${name} ${metricText(name, values[i])}`).join(" · "));
  else if (pane.m >= 0 && !isPredicted) lines.push("not predicted");
  else if (pane.m >= 0 && pane.forecast === pane.m) lines.push("no true future for metrics");
  if (isPredicted && track !== state.selected) lines.push("click to show its modes");
  return lines;
}

function describeMode(pane, scene, mode, exact) {
  const length = mode.line.slice(1).reduce((sum, [x, y], i) => sum + Math.hypot(x - mode.line[i][0], y - mode.line[i][1]), 0);
  const error = mode.error === null ? "no true end to compare" : `ends ${mode.error.toFixed(2)} m from the truth`;
  const lines = [`Mode ${mode.k + 1} · ${exact(mode.probability)}`];
  lines.push(pane.isWhatIf ? `of the scene ${scene.edited ? "as edited" : "without the removed road users"}` : error);
  lines.push(`${length.toFixed(1)} m in ${(mode.points.length * scene.step_s).toFixed(1)} s`);
  if (scene.madeAt(pane.forecast) < scene.now) lines.splice(1, 1); // its end error is not stored
  if (mode.band) lines.push(`±${mode.band.at(-1).toFixed(1)} m across at the end (80%)`);
  return lines;
}

/** Show the tooltip for the object under the pointer, or hide it. */
function hover(pane, pixel, event) {
  const tip = get("tip");
  const { scene, hover: before } = state;
  const track = scene && pixel ? trackAt(pane, scene, pixel) : null;
  const mode = scene && pixel && track === null ? modeAt(pane, scene, pixel) : null;
  const lane = scene && pixel && track === null && !mode ? attendedLaneAt(pane, scene, pixel) : null;
  state.hover = mode ? { pane, mode: mode.k } : null;
  tip.hidden = track === null && !mode && !lane;
  pane.canvas.classList.toggle("pointing", track !== null);
  if (!tip.hidden) {
    tip.replaceChildren();
    describe(pane, scene, { track, mode, lane }).forEach((line, i) => add(tip, i ? "div" : "b", line));
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 14, innerHeight - height - 8);
    Object.assign(tip.style, { left: `${Math.max(4, left)}px`, top: `${Math.max(4, top)}px` });
  }
  if (before?.mode !== state.hover?.mode || before?.pane !== state.hover?.pane) redraw();
}
