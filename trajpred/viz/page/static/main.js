// Connects the parts: the open scene, and when it is drawn.

const state = {
  scene: null, number: -1, step: 0, selected: -1, playing: false,
  layers: {}, attention: { layer: null, head: null }, theme: null, hover: null, listed: [],
};
const panes = (index.models.length ? index.models.map((_, m) => m) : [-1]).map((m) => new Pane(get("panes"), m));
const extension = {}; // functions of a script that is run after these, such as that of trajpred explore
const MOVED_M = 0.5; // the original modes of road users whose mean future ends farther away are drawn, too
let drawRequested = false;

/** Draw once before the next screen update, however often this is called. */
function redraw() {
  if (drawRequested) return;
  drawRequested = true;
  requestAnimationFrame(() => {
    drawRequested = false;
    if (state.scene) panes.forEach((pane) => draw(pane, state.scene));
  });
}

function draw(pane, scene) {
  const { layers, step, selected } = state;
  const colors = index.themes[currentTheme()];
  pane.resize();
  const recorded = scene.recorded(step);
  const visible = visibleTracks(pane, scene, recorded, layers.agents);
  const scored = scene.tracks.filter((track) => track !== selected && !isRemoved(scene, track)
    && (track === scene.focal || (layers.agents && scene.role[track] === "SCORED")));
  const predicted = pane.m >= 0 && layers.modes;
  const clutter = new Clutter(pane);
  if (layers.map) pane.mapCache.draw(pane, scene, colors);
  else pane.clear(colors.background);
  drawAttentionLines(pane, scene, recorded, colors);
  if (layers.history) drawHistories(pane, scene, visible.filter((track) => !isRemoved(scene, track)), recorded, colors);
  if (predicted && layers.band) drawBands(pane, scene, selected, colors);
  drawAgents(pane, scene, visible.filter((track) => track !== selected), recorded, colors, clutter);
  if (predicted && layers.others) scored.forEach((track) => drawFaintModes(pane, scene, track, colors));
  if (layers.truth) drawTruths(pane, scene, scored, colors);
  drawAttentionRings(pane, scene, recorded, colors);
  const hasMoved = (track) => scene.forecasts[pane.forecast].shift_m[scene.rowOf[pane.forecast].get(track)] > MOVED_M;
  if (predicted && scene.edited) scored.filter(hasMoved).forEach((track) => drawOriginalModes(pane, scene, track, colors));
  if (predicted) drawOriginalModes(pane, scene, selected, colors);
  if (predicted) drawModes(pane, scene, selected, step, colors);
  if (layers.truth) drawTruths(pane, scene, [selected], colors);
  drawAgents(pane, scene, visible.filter((track) => track === selected), recorded, colors, clutter);
  avoidFutures(pane, scene, selected, clutter);
  extension.draw?.(pane, scene, colors, clutter);
  if (predicted && layers.labels) drawProbabilities(pane, scene, selected, colors, clutter);
  drawShares(pane, scene, recorded, colors, clutter);
  drawScaleBar(pane, colors);
}

function fit() {
  panes.forEach((pane) => pane.resize());
  fitCamera(state.scene, state.selected, panes[0]);
  redraw();
}

/** Select the track whose modes are drawn in full. */
function select(track) {
  state.selected = track;
  panes.forEach((pane) => updateSummary(pane, state.scene));
  redraw();
}

/** Select the next road user in view: the focal one, then scored ones, then by distance; fit to its futures. */
function selectNext(by) {
  const { scene } = state;
  const first = { FOCAL: 2e6, SCORED: 1e6 };
  const rank = (track) => (first[scene.role[track]] ?? 0) - Math.hypot(...scene.position(track, scene.now));
  const order = scene.tracks.filter((track) => scene.isValid(track, scene.now)).sort((a, b) => rank(b) - rank(a));
  select(order.at((order.indexOf(state.selected) + by) % order.length));
  fit();
}

/** Open a scene at a time in seconds, relative to its last observed step, which is the default. */
async function showScene(number, t = null) {
  if (state.playing) setPlaying(false);
  const before = state.number;
  state.number = number;
  markOpenRow();
  let scene = null;
  try {
    scene = await openScene(number);
  } catch (error) {
    get("scene-id").textContent = `This scenario cannot be read: ${error.message}`;
    throw error;
  }
  if (state.number !== number) return; // another one was requested meanwhile
  const entry = index.scenes[number];
  Object.assign(state, { scene, hover: null });
  get("tip").hidden = true;
  get("slider").max = scene.last;
  get("scene-id").textContent = scene.id;
  const agents = `${entry.agents} road user${entry.agents === 1 ? "" : "s"}`;
  get("scene-facts").textContent = [...entryFacts(entry), agents].join(" · ");
  get("title").title = `${scene.id}\n${get("scene-facts").textContent}`;
  document.title = `${scene.id} · trajpred`;
  updateLegend(scene, index.themes[currentTheme()]);
  updateWithoutLabel(scene);
  extension.opened?.();
  select(scene.focal);
  setStep(scene.now + Math.round((t ?? 0) / scene.step_s));
  if (before !== number) fit();
}

/** Open the next scene of the filtered and sorted list. */
function nextScene(by) {
  const { listed, number } = state;
  if (!listed.length) return;
  const at = listed.indexOf(number);
  const next = at < 0 ? 0 : Math.min(listed.length - 1, Math.max(0, at + by));
  if (listed[next] !== number) showScene(listed[next]);
}

/** Open the scene of the address; without a valid one, a typical one. */
function followAddress() {
  const { scene, t } = readAddress();
  const number = index.scenes.findIndex((entry) => entry.id === scene);
  if (number >= 0) showScene(number, t);
  else if (!state.scene) showScene(typicalScene());
}

initControls();
initList((number) => { document.body.classList.remove("list-open"); showScene(number); });
panes.forEach((pane) => addPointerListeners(pane, {
  moved: redraw,
  hovered: hover,
  grabbed: (...at) => extension.grabbed?.(...at),
  clicked: (where, pixel) => {
    if (extension.clicked?.(where, pixel)) return;
    const track = trackAt(where, state.scene, pixel);
    get("tip").hidden = true; // its content is outdated
    select(track ?? state.scene.focal);
  },
}));
new ResizeObserver(() => (state.scene && camera.fitted ? fit() : redraw())).observe(get("panes"));
addEventListener("hashchange", followAddress);
applyTheme();
followAddress();
