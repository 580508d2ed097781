// Editing: drags, additions and removals go to the server, whose models answer. One request is in flight, and the latest
// edits follow it; until then the outline follows the pointer.

const NONE = { moved: {}, removed: [], added: [], lanes: [] };
const SPEED = { vehicle: 8, pedestrian: 1.4 }; // types that can be added (m/s)
const [HANDLE_PX, GRAB_PX] = [16, 11]; // from the body to the handle of a standing road user; radius to grab it
const [MOVE_M, TURN, MAX_SPEED] = [0.5, Math.PI / 36, 60]; // by a key: metres, radians; m/s
const MIN_SHIFT_M = 0.05; // of mean futures that are listed
const HINT = "Drag a road user, or the handle ahead of the selected one; go back in time to predict from there.";
const LANE_M = 4; // from a centreline to a click on it
const [LANE_DASH, KNOB_PX] = [[2, 4], 6]; // of removed lanes; radius of the handle
const editor = {
  recorded: null, // the scene as it was recorded
  known: null, // forecasts of the recorded scene as of a time: {observed, models}
  edits: NONE, accepted: NONE, // accepted by the server
  added: null, // the row of a road user to select when the models have answered
  script: "", busy: false, waiting: false, takesLanes: false,
};
const round = (value, digits = 2) => Number(value.toFixed(digits));
const isEdited = (edits) => Object.values(edits).some((part) => Object.keys(part).length > 0);
const observed = () => Math.min(state.step, editor.recorded.now) + 1;
const say = (sentence) => { get("said").textContent = sentence; };
const toggled = (list, name) => (list.includes(name) ? list.filter((other) => other !== name) : [...list, name]);

/** Request forecasts for the current edits and time, unless an answer is pending. */
async function ask() {
  const { recorded, edits, known } = editor;
  if (editor.busy) return void (editor.waiting = true);
  if (!isEdited(edits) && observed() === recorded.observed) return show(recorded, edits, "");
  Object.assign(editor, { busy: true, waiting: false });
  const sent = { scene: recorded.id, observed: observed(), edits, models: observed() !== known.observed };
  try {
    const response = await fetch("/forecast", { method: "POST", headers: { "X-Token": index.token }, body: JSON.stringify(sent) });
    const { script, error, ...changes } = await response.json();
    if (editor.recorded !== recorded) editor.waiting = true; // another scene was opened meanwhile
    else if (!response.ok) refuse(error);
    else {
      if (changes.models) editor.known = { observed: sent.observed, models: changes.models };
      const scene = recorded.with({ ...changes, models: editor.known.models, edited: isEdited(edits) });
      const isSame = edits.added.length === editor.edits.added.length;
      const tracks = isSame ? scene.tracks : recorded.tracks;
      tracks.forEach((track) => nudge(scene, track, poseOf(edits, track), poseOf(editor.edits, track)));
      show(scene, edits, script);
    }
  } catch (error) {
    refuse(`No answer: is trajpred explore still running? (${error.message})`);
  }
  editor.busy = false;
  if (editor.waiting) ask();
}

/** Return to the last edits accepted by the server, and say why. */
function refuse(sentence) {
  editor.edits = editor.accepted;
  say(sentence);
  updateAddress();
}

/** Show a scene, and how far each mean future moved, farthest first. */
function show(scene, edits, script) {
  Object.assign(editor, { accepted: edits, script });
  state.scene = scene;
  Object.assign(scene, { last: editor.recorded.last, zero: editor.recorded.zero }); // time is that of the recording
  state.layers.without = Boolean(scene.edited);
  if (scene.tracks.includes(editor.added)) [state.selected, editor.added] = [editor.added, null];
  if (!scene.tracks.includes(state.selected)) state.selected = scene.focal;
  document.body.classList.toggle("edited", Boolean(scene.edited));
  get("script").disabled = !script;
  get("recorded").disabled = !scene.edited;
  setStep(state.step);
  updatePanels();
  const shiftOf = (track) => scene.without.map(({ tracks, shift_m }) => shift_m[tracks.indexOf(track)] ?? null);
  const rows = scene.tracks.map((track) => ({ track, shifts: shiftOf(track), largest: Math.max(...shiftOf(track)) }));
  const moved = rows.filter(({ largest }) => largest >= MIN_SHIFT_M).sort((a, b) => b.largest - a.largest);
  get("shifts").replaceChildren();
  add(get("shifts"), "li", moved.length ? `mean futures moved by (m)${index.models.length > 1 ? ", A · B" : ""}:` : HINT);
  for (const { track, shifts } of moved) {
    const row = add(add(get("shifts"), "li"), "button", trackNames(scene, [track]));
    row.title = scene.track_id[track];
    add(row, "b", ` ${shifts.map((shift) => shift?.toFixed(2) ?? "–").join(" · ")}`);
    row.addEventListener("click", () => select(track));
  }
}

/** Where edits place a track, relative to the recorded pose, or to the city if added: `{x, y, turn, speed}`. */
function poseOf(edits, track) {
  const { tracks, track_id } = editor.recorded;
  const added = edits.added[track - tracks.length];
  return added ? { ...added, turn: added.heading } : { x: 0, y: 0, turn: 0, speed: null, ...edits.moved[track_id[track]] };
}

/** Move the drawn states of a track from one pose to another. */
function nudge(scene, track, from, to) {
  for (const [states, name] of [["x", "x"], ["y", "y"], ["headings", "turn"]]) {
    const by = to[name] - from[name];
    if (by) scene[states][track] = scene[states][track].map((value) => value + by);
  }
}

/** Change the pose of a track. */
function move(track, changes) {
  const { edits, recorded } = editor;
  const before = poseOf(edits, track);
  const { turn, ...pose } = { ...before, ...changes };
  for (const name of ["x", "y", "speed"]) pose[name] = pose[name] === null ? null : round(pose[name]);
  const angle = round(Math.atan2(Math.sin(turn), Math.cos(turn)), 3);
  if (pose.object_type) commit({ added: edits.added.with(track - recorded.tracks.length, { ...pose, heading: angle }) });
  else commit({ moved: { ...edits.moved, [recorded.track_id[track]]: { ...pose, turn: angle } } });
  nudge(state.scene, track, before, poseOf(editor.edits, track));
}

/** Change parts of the edits, and request; truth and metrics disappear at once. */
function commit(parts) {
  const { scene } = state;
  editor.edits = { ...editor.edits, ...parts };
  say("");
  if (isEdited(editor.edits) && !scene.edited) {
    camera.fitted = false; // the view stays as it is
    const valid = scene.valid.map((seen) => seen.slice(0, scene.observed).padEnd(scene.steps, "0"));
    const without = scene.stored.models.map((model) => ({ ...model, shift_m: model.tracks.map(() => 0) }));
    show(scene.with({ valid, without, edited: true }), editor.accepted, editor.script);
  }
  updateAddress();
  redraw();
  ask();
}

/** The lane nearest to a point in metres: its row, its distance, and its point and heading there. */
function nearestLane([px, py]) {
  let best = { lane: null, distance: Infinity, point: [px, py], heading: 0 };
  editor.recorded.lines.centerline.forEach((line, lane) => line.slice(1).forEach(([bx, by], i) => {
    const [[ax, ay], [dx, dy]] = [line[i], [bx - line[i][0], by - line[i][1]]];
    const share = Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy || 1)));
    const point = [ax + share * dx, ay + share * dy];
    const distance = Math.hypot(point[0] - px, point[1] - py);
    if (distance < best.distance) best = { lane, distance, point, heading: Math.atan2(dy, dx) };
  }));
  return best;
}

/** Add a road user in the middle of the view, a car on the nearest lane; select it once the models have answered. */
function addRoadUser(object_type) {
  const { origin, tracks } = editor.recorded;
  const { point, heading } = nearestLane([camera.x, camera.y]);
  const [x, y] = object_type === "vehicle" ? point : [camera.x, camera.y];
  const at = { x: round(origin[0] + x), y: round(origin[1] + y), heading: round(heading, 3) };
  editor.added = tracks.length + editor.edits.added.length;
  commit({ added: [...editor.edits.added, { object_type, ...at, speed: SPEED[object_type] }] });
}

/** Remove the selected road user, or restore it. */
function toggleRoadUser() {
  const { edits: { added, removed }, recorded: { tracks, track_id, focal } } = editor;
  const { selected } = state;
  if (selected >= tracks.length) commit({ added: added.toSpliced(selected - tracks.length, 1) });
  else if (selected === focal) say("The focal agent cannot be removed.");
  else commit({ removed: toggled(removed, track_id[selected]) });
}

/** Remove the lane nearest to a point in metres, or restore it. */
function toggleLane(point) {
  const { lane, distance } = nearestLane(point);
  if (distance > LANE_M) say("There is no lane.");
  else commit({ lanes: toggled(editor.edits.lanes, editor.recorded.lane_id[lane]) });
}

/** The selected road user's handle, one second ahead of it; null if it cannot be moved now. */
function handleOf(pane) {
  const { scene, selected } = state;
  const isHere = scene.recorded(state.step) === scene.now && scene.isValid(selected, scene.now);
  if (!isHere || isRemoved(scene, selected)) return null;
  const heading = scene.headings[selected][scene.now];
  const speed = poseOf(editor.edits, selected).speed ?? scene.speeds[selected][scene.now];
  const [x, y] = pane.toPixels(scene.position(selected, scene.now));
  const standing = bodySize(scene, selected)[0] / 2 + HANDLE_PX;
  const at = (reach) => [x + reach * Math.cos(heading), y - reach * Math.sin(heading)];
  return { pixel: at(standing + speed * camera.scale), front: at(standing - HANDLE_PX), standing, heading, speed };
}

/** The object that follows the pointer: the selected road user's handle, a road user, or null. */
extension.grabbed = (pane, pixel, event) => {
  const { scene, selected } = state;
  get("tip").hidden = true; // its content will be outdated
  if (editor.takesLanes || scene.recorded(state.step) !== scene.now) return null;
  const handle = handleOf(pane);
  if (handle && Math.hypot(handle.pixel[0] - pixel[0], handle.pixel[1] - pixel[1]) < GRAB_PX) {
    return (to) => {
      const [x, y] = pane.toPixels(state.scene.position(selected, scene.now));
      const turn = Math.atan2(y - to[1], to[0] - x) - state.scene.headings[selected][scene.now];
      const reach = Math.max(0, Math.hypot(to[0] - x, to[1] - y) - handle.standing);
      move(selected, { turn: poseOf(editor.edits, selected).turn + turn, speed: Math.min(MAX_SPEED, reach / camera.scale) });
    };
  }
  const track = trackAt(pane, scene, pixel);
  if (track === null || isRemoved(scene, track)) return null;
  const pose = poseOf(editor.edits, track);
  return (_, { clientX, clientY }) => { // the canvas itself may move when the text above it changes
    if (state.selected !== track) select(track);
    move(track, { x: pose.x + (clientX - event.clientX) / camera.scale, y: pose.y - (clientY - event.clientY) / camera.scale });
  };
};

extension.clicked = (pane, pixel) => {
  if (editor.takesLanes) toggleLane(pane.toMetres(pixel));
  return editor.takesLanes;
};

/** Draw removed lanes, and the handle, which labels avoid. */
extension.draw = (pane, scene, colors, clutter) => {
  for (const name of editor.edits.lanes) {
    const line = scene.lines.centerline[editor.recorded.lane_id.indexOf(name)] ?? [];
    pane.strokeLine(line, { color: colors.halo, width: 4.5 });
    pane.strokeLine(line, { color: colors.ink, width: 2, dash: LANE_DASH });
  }
  const handle = handleOf(pane);
  if (!handle) return;
  const ends = [handle.front, handle.pixel].map((pixel) => pane.toMetres(pixel));
  pane.strokeLine(ends, { color: colors.halo, width: 4.5 });
  pane.strokeLine(ends, { color: colors.ink, width: 1.6 });
  pane.fillCircle(ends[1], KNOB_PX, colors.halo, colors.ink, 1.6);
  const label = { text: `${handle.speed.toFixed(1)} m/s`, anchor: handle.pixel, direction: handle.heading - Math.PI / 2 };
  drawLabels(pane, [label], { text: colors.ink, halo: colors.halo, leader: colors.ink }, clutter);
  clutter.block(squareAt(handle.pixel, KNOB_PX + 2));
};

/** Explain removed objects in the legend. */
extension.legend = (line, colors) => {
  const style = `stroke-width="2" stroke-dasharray="${LANE_DASH.join(" ")}"`;
  if (editor.edits.lanes.length) line(colors.ink, "removed lane", style);
};

extension.address = () => {
  const parts = Object.entries(editor.edits).filter(([, part]) => Object.keys(part).length);
  return parts.length ? `&edits=${encodeURIComponent(JSON.stringify(Object.fromEntries(parts)))}` : "";
};

/** Take the edits from the address if the opened scene is the one in the address. */
extension.opened = () => {
  const { scene } = state;
  const words = new URLSearchParams(location.hash.slice(1));
  const known = { observed: scene.observed, models: scene.stored.models };
  Object.assign(editor, { recorded: scene, known, edits: NONE, accepted: NONE });
  if (words.get("scene") !== scene.id || !words.has("edits")) return;
  try {
    const edits = { ...NONE, ...JSON.parse(words.get("edits")) };
    if (!Object.entries(NONE).every(([name, part]) => edits[name].constructor === part.constructor)) throw new TypeError();
    editor.edits = edits;
  } catch {
    say("The edits of the address cannot be read.");
  }
};

extension.stepped = () => {
  if (editor.recorded && (observed() !== state.scene.observed || editor.edits !== editor.accepted)) ask();
};

/** Make the buttons and keys. */
function initEditor() {
  const bar = Object.assign(add(get("top"), "div"), { id: "edit" });
  const button = (label, title, act, properties = {}) => {
    add(bar, "button", label).addEventListener("click", act);
    Object.assign(bar.lastChild, { type: "button", title, ...properties });
  };
  const keys = {
    a: () => addRoadUser("vehicle"), e: () => addRoadUser("pedestrian"), x: toggleRoadUser, Delete: toggleRoadUser,
    l: () => toggleLane(state.scene.position(state.selected, state.scene.now)), 0: () => commit(NONE),
  };
  const steps = {
    4: ({ x }) => ({ x: x - MOVE_M }), 6: ({ x }) => ({ x: x + MOVE_M }), 2: ({ y }) => ({ y: y - MOVE_M }), 8: ({ y }) => ({ y: y + MOVE_M }),
    7: ({ turn }) => ({ turn: turn + TURN }), 9: ({ turn }) => ({ turn: turn - TURN }),
    1: (_, speed) => ({ speed: Math.max(0, speed - 1) }), 3: (_, speed) => ({ speed: Math.min(MAX_SPEED, speed + 1) }),
  };
  button("Add car", "in the middle of the view (a)", keys.a);
  button("Add pedestrian", "in the middle of the view (e)", keys.e);
  button("Remove", "remove or return the selected road user (x)", keys.x);
  button("Lanes", "click lanes to take them away or return them (l: that of the selected road user)", (event) => {
    editor.takesLanes = !editor.takesLanes;
    event.currentTarget.ariaPressed = editor.takesLanes;
  }, { ariaPressed: false });
  button("As recorded", "undo all edits (0)", keys[0], { id: "recorded", disabled: true });
  button("Script", "the same in Python", () => {
    get("code").lastChild.textContent = editor.script;
    get("code").showModal();
  }, { id: "script", disabled: true });
  add(bar, "output").id = "said";
  add(bar, "ol").id = "shifts";
  add(get("shifts"), "li", HINT);
  const code = Object.assign(add(document.body, "dialog"), { id: "code" });
  const form = Object.assign(add(code, "form"), { method: "dialog" });
  add(form, "h2", "These edits in Python");
  const copy = Object.assign(add(form, "button", "Copy"), { type: "button" });
  copy.addEventListener("click", () => copyText(editor.script, copy));
  add(form, "button", "✕").ariaLabel = "Close";
  add(code, "pre");
  const help = { "4 6 2 8": "move the selected road user", "7 9, 1 3": "turn it, make it slower or faster",
    "a, e, x": "add a car or a pedestrian, remove the selected road user", "l, 0": "remove its lane, undo all edits" };
  Object.entries(help).forEach(([key, what]) => { add(get("help").lastElementChild, "dt", key); add(get("help").lastElementChild, "dd", what); });
  addEventListener("keydown", (event) => {
    if (isTyping(event)) return;
    const handle = steps[event.key] && handleOf(panes[0]);
    if (handle) move(state.selected, steps[event.key](poseOf(editor.edits, state.selected), handle.speed));
    keys[event.key]?.();
  });
}

initEditor();
