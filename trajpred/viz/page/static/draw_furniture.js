// Around the scene: scale bar, legend, and what each model said in numbers.

const UNITS = { minADE6: " m", minFDE6: " m", MR6: "", "brier-minFDE6": "" };

/** A value of a metric as text. */
function metricText(name, value) {
  if (value === null || value === undefined) return "–";
  if (name === "MR6") return value ? "miss" : "hit";
  return value.toFixed(2) + (UNITS[name] ?? "");
}

/** The largest of 1, 2 or 5 times a power of ten that is no longer than `metres`. */
function roundLength(metres) {
  const power = 10 ** Math.floor(Math.log10(metres));
  return [5, 2, 1].map((step) => step * power).find((length) => length <= metres);
}

/** A round length at the lower left of a canvas. */
function drawScaleBar(pane, colors) {
  const { ctx } = pane;
  const metres = roundLength(120 / camera.scale);
  const [x, y, width] = [16, pane.height - 16, metres * camera.scale];
  pane.inPixels();
  ctx.lineCap = "butt";
  const bar = () => {
    ctx.beginPath();
    ctx.moveTo(x, y - 5);
    ctx.lineTo(x, y);
    ctx.lineTo(x + width, y);
    ctx.lineTo(x + width, y - 5);
    ctx.stroke();
  };
  ctx.lineJoin = "miter";
  [ctx.strokeStyle, ctx.lineWidth] = [colors.halo, 5];
  bar();
  [ctx.strokeStyle, ctx.lineWidth] = [colors.ink, 1.6];
  bar();
  ctx.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  ctx.textAlign = "center";
  ctx.textBaseline = "alphabetic";
  ctx.lineJoin = "round";
  ctx.strokeStyle = colors.halo;
  ctx.lineWidth = 3.5;
  ctx.strokeText(`${metres} m`, x + width / 2, y - 5);
  ctx.fillStyle = colors.ink;
  ctx.fillText(`${metres} m`, x + width / 2, y - 5);
}

/** Whose forecast a canvas shows and how good it is. */
function tellModel(pane, scene) {
  const { said } = pane;
  said.hidden = pane.m < 0;
  if (said.hidden) return;
  said.replaceChildren();
  const { selected } = state;
  add(said, "b", (index.models.length > 1 ? `${"AB"[pane.m]}  ` : "") + index.models[pane.m]);
  if (selected !== scene.focal) add(add(said, "span"), "em", `${kindOf(scene, selected)} ${scene.track_id[selected]}`);
  if (pane.told !== pane.m) {
    add(add(said, "span", "without "), "em", removedInWords(scene));
    const moved = scene.told[pane.told].moved_m[scene.rowOf[pane.told].get(selected)];
    add(add(said, "span", "mean future ends "), "em", Number.isFinite(moved) ? `${moved.toFixed(2)} m away` : "–");
    return;
  }
  tellAttention(pane, scene);
  const values = scene.metrics(pane.m, selected);
  if (!values) {
    add(said, "span", scene.rowOf[pane.m].has(selected) ? "no true future to judge by" : "not predicted");
    return;
  }
  index.metrics.forEach((name, i) => add(add(said, "span", `${name} `), "em", metricText(name, values[i])));
}

/** How much the chosen track takes from all agents, and from all lanes. */
function tellAttention(pane, scene) {
  const heard = state.layers.attention ? heardBy(scene, pane.m, state.selected) : [];
  const sum = (some) => some.reduce((total, one) => total + one.share, 0);
  if (!heard.length) return;
  const agents = sum(heard.filter((one) => one.track !== null)) / sum(heard);
  add(add(pane.said, "span", "attention "), "em", `${percent(agents)} agents, ${percent(1 - agents)} lanes`);
}

/** Who is left out. */
function removedInWords(scene) {
  return scene.removed.map((track) => `${kindOf(scene, track)} ${scene.track_id[track]}`).join(", ");
}

/** A new last child with text, which is never read as markup. */
function add(parent, tag, text = "") {
  const child = parent.appendChild(document.createElement(tag));
  child.textContent = text;
  return child;
}

/** The type of a track in words. */
function kindOf(scene, track) {
  return scene.type[track].replaceAll("_", " ");
}

const NAMES = { FOCAL: "focal agent", EGO: "recording vehicle", SCORED: "scored agent", OTHER: "other agent" };
const GLYPHS = [
  ["pedestrian", ["pedestrian"], '<circle cx="6" cy="6" r="4"/>'],
  ["two-wheeler", ["cyclist", "motorcyclist", "riderless_bicycle"], '<path d="M0 4.2L7 2l5 4-5 4-7-2.2z"/>'],
  ["object", ["static", "background", "construction", "unknown"], '<path d="M6 1l5 5-5 5-5-5z"/>'],
];

/** Below the scene: only what the scene holds. */
function tellLegend(scene, colors) {
  const legend = document.getElementById("legend");
  legend.replaceChildren();
  const entry = (drawing, color, name, width = 12) => {
    const item = legend.appendChild(document.createElement("span"));
    // Drawings and colours are ours; names of the data never come here.
    item.innerHTML = `<svg width="${width}" height="12" fill="${color}" stroke="${color}">${drawing}</svg>`;
    item.append(name);
  };
  const line = (more) => `<path d="M0 6H24" fill="none" ${more}/>`;
  const roles = new Set(scene.role);
  const kinds = new Set(scene.type);
  for (const role of ROLES.toReversed()) {
    if (roles.has(role)) entry('<rect x="1" y="1" width="10" height="10" rx="1.5" stroke="none"/>', colors.role[role], NAMES[role]);
  }
  for (const [name, types, drawing] of GLYPHS) {
    if (types.some((type) => kinds.has(type))) entry(drawing, colors.role_edge.OTHER, name);
  }
  entry(line('stroke-width="3" opacity="0.6"'), colors.role.FOCAL, "history", 24);
  if (scene.path(scene.focal, scene.observed, scene.steps).length) {
    entry(line('stroke-width="2" stroke-dasharray="5 3"'), colors.role.FOCAL, "true future", 24);
  }
  if (!scene.models.length) return;
  const item = add(legend, "span", "probability 0");
  add(item, "i").className = "ramp";
  const stops = Array.from({ length: 11 }, (_, i) => probabilityColor(i / 10, colors));
  item.lastChild.style.background = `linear-gradient(90deg, ${stops.join()})`;
  item.append("100%");
  if (scene.models.some((_, m) => scene.arrays[`band${m}`])) {
    entry('<rect y="1" width="24" height="10" rx="2" opacity="0.35" stroke="none"/>', probabilityColor(0.4, colors), "80% band", 24);
  }  if (state.layers.attention) entry(line('stroke-width="5" opacity="0.7"'), colors.attention, "attention", 24);
  if (state.layers.without && scene.without.length) {
    const hollow = 'x="1" y="1" width="10" height="10" fill="none" stroke-dasharray="3 2"';
    entry(`<rect ${hollow}/>`, colors.ink, "left out");
    entry(line('stroke-width="1.6" stroke-dasharray="5 4"'), colors.muted, "future as seen", 24);
  }
}
