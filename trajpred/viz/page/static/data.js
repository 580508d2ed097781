"use strict";
// Reads the data stored in the page, see page/data.py.

const index = JSON.parse(document.getElementById("index").textContent);
const METRE = 0.01; // lengths are stored in centimetres
const MAX_OPEN = 12; // decoded scenes kept in memory
const openScenes = new Map();

/** Decode base64 of gzipped JSON. */
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** Sum up stored differences, nested lists row by row, and scale them by `unit`. */
function decode(differences, unit = METRE) {
  if (Array.isArray(differences[0])) return differences.map((row) => decode(row, unit));
  let sum = 0;
  return differences.map((change) => (sum += change) * unit);
}

/** Points `[[x, y], …]` in metres of stored coordinates. */
function decodePoints(x, y) {
  const [xs, ys] = [decode(x), decode(y)];
  return xs.map((value, i) => [value, ys[i]]);
}

/** Lines and polygons of a stored map by name. */
function decodeMap(map) {
  const names = ["ground", "tint", "crossing", "bar", "centerline", "stroke"];
  return Object.fromEntries(names.map((name) => [name, map[name].map((line) => decodePoints(line.x, line.y))]));
}

/** One scenario with its forecasts. Steps count from the first observed one; lengths are metres. */
class Scene {
  constructor(stored, lines = decodeMap(stored.map)) {
    Object.assign(this, stored, { stored, lines });
    [this.x, this.y, this.speeds] = [decode(stored.x), decode(stored.y), decode(stored.speed)];
    this.headings = decode(stored.heading, 0.001);
    this.tracks = Array.from(stored.track_id.keys());
    this.now = this.observed - 1;
    this.zero = this.now; // the step that times are relative to
    this.last = Math.max(this.steps, ...stored.models.map((model) => this.observed + model.steps)) - 1;
    this.end = this.steps - 1; // scenarios without a future may end with empty steps
    while (this.end > this.now && !this.tracks.some((track) => this.isValid(track, this.end))) this.end--;
    this.cache = new Map();
    const earlier = stored.models.flatMap((model, m) => (model.stream?.earlier ?? []).map((one, u) => (
      { ...one, m, step: model.stream.step[u] })));
    // For the recorded scene, then without road users, then at earlier times.
    this.forecasts = [...stored.models, ...stored.without, ...earlier];
    this.rowOf = this.forecasts.map((forecast) => new Map(forecast.tracks.map((track, row) => [track, row])));
  }

  /** This scene with some stored members replaced, but not the map. */
  with(changes) {
    return new Scene({ ...this.stored, ...changes }, this.lines);
  }

  isValid(track, step) {
    return this.valid[track][step] === "1";
  }

  /** The time of a step in seconds, relative to the last observed one. */
  seconds(step) {
    return (step - this.zero) * this.step_s;
  }

  /** That time in words, such as "−1.2 s". */
  time(step) {
    const seconds = this.seconds(step);
    return step === this.zero ? "now" : `${seconds < 0 ? "−" : "+"}${Math.abs(seconds).toFixed(1)} s`;
  }

  /** The last valid step of a track until `step`, -1 if there is none; its state is repeated until `step`. */
  lastSeen(track, step) {
    return this.valid[track].lastIndexOf("1", step);
  }

  /** The step, or the last recorded one: forecasts may extend further. */
  recorded(step) {
    return Math.min(step, this.end);
  }

  position(track, step) {
    return [this.x[track][step], this.y[track][step]];
  }

  /** Valid positions of a track in steps `from` to `to`. */
  path(track, from, to) {
    const points = [];
    for (let step = Math.max(0, from); step <= Math.min(to, this.steps - 1); step++) {
      if (this.isValid(track, step)) points.push(this.position(track, step));
    }
    return points;
  }

  /** The value of `make()`, computed once for each `key`. */
  cached(key, make) {
    if (!this.cache.has(key)) this.cache.set(key, make());
    return this.cache.get(key);
  }

  /** Modes of a track in forecast `m`, by ascending probability: `{k, points, line, band, probability, error}`. */
  modes(m, track) {
    return this.cached(`modes ${m} ${track}`, () => {
      const [forecast, row] = [this.forecasts[m], this.rowOf[m]?.get(track)];
      if (row === undefined) return [];
      const made = this.madeAt(m);
      const starts = this.lastSeen(track, made) >= 0 && !(this.edited && m < this.models.length);
      const start = starts ? [this.position(track, made)] : []; // the recorded position is not that of an edited track
      const modes = forecast.probability[row].map((probability, k) => {
        const points = decodePoints(forecast.x[row][k], forecast.y[row][k]);
        const band = forecast.band && decode(forecast.band[row][k]);
        return { k, probability, points, line: [...start, ...points], band, error: forecast.end_error?.[row][k] ?? null };
      });
      return modes.sort((a, b) => a.probability - b.probability);
    });
  }

  /** The last step seen by forecast `m`. */
  madeAt(m) {
    return this.forecasts[m]?.step ?? this.now;
  }

  /** The latest forecast of model `m` at `step`; before the first, the first. */
  latest(m, step) {
    const earlier = Array.from(this.forecasts.keys()).filter((i) => this.forecasts[i].m === m);
    if (step >= this.now || !earlier.length) return m;
    return earlier.findLast((i) => this.forecasts[i].step <= step) ?? earlier[0];
  }

  /** Metrics of a track in the order of `index.metrics`, or null. */
  metrics(m, track) {
    return this.models[m]?.metrics[this.rowOf[m].get(track)] ?? null;
  }

  isPredicted(m, track) {
    return Boolean(this.rowOf[m]?.has(track));
  }
}

/** Return scene `number` of `index.scenes`, decoded at its first use. */
async function openScene(number) {
  if (!openScenes.has(number)) {
    const text = JSON.parse(document.getElementById(`scene-${number}`).textContent);
    openScenes.set(number, new Scene(await unpack(text)));
    if (openScenes.size > MAX_OPEN) openScenes.delete(openScenes.keys().next().value);
  }
  return openScenes.get(number);
}
