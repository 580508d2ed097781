"use strict";
// What is stored in the page, and how it becomes numbers again (written by codec.py and pack.py).

const index = JSON.parse(document.getElementById("index").textContent);
const METRE = 0.01; // coordinates are centimetres

/** The bytes behind base64 text, inflated. */
async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Arrays by name: `{values: Int32Array [n * c], rows: n, columns: c}`. */
function unpack(bytes, shapes) {
  const arrays = {};
  let start = 0;
  for (const [name, rows, columns] of shapes) {
    const size = rows * columns;
    const values = new Int32Array(size);
    for (let column = 0, i = 0; column < columns; column++) {
      let value = 0;
      for (let row = 0; row < rows; row++, i++) {
        const at = start + i;
        const folded = bytes[at] | (bytes[at + size] << 8) | (bytes[at + 2 * size] << 16) | (bytes[at + 3 * size] << 24);
        value += (folded >>> 1) ^ -(folded & 1);
        values[row * columns + column] = value;
      }
    }
    arrays[name] = { values, rows, columns };
    start += 4 * size;
  }
  return arrays;
}

/** One scenario: texts as they are stored, and its arrays. Steps count from the first observed one. */
class Scene {
  constructor(stored, arrays) {
    Object.assign(this, stored);
    this.arrays = arrays;
    this.tracks = stored.track_id.length;
    const ahead = Math.max(0, ...stored.models.map((model) => model.steps));
    this.last = Math.max(this.steps, this.observed + ahead) - 1;
    this.now = this.observed - 1;
    const anyone = (step) => Array.from({ length: this.tracks }, (_, track) => track).some((track) => this.seen(track, step));
    this.end = this.steps - 1; // a test scenario may have steps in which nobody was recorded
    while (this.end > this.now && !anyone(this.end)) this.end--;
    this.known = new Map(); // modes by model and track, as they are asked for
    this.told = [...stored.models, ...stored.without]; // first as seen, then without somebody
    this.rowOf = this.told.map((model) => new Map(model.tracks.map((track, row) => [track, row])));
  }

  /** Whether a track is seen at a step. */
  seen(track, step) {
    return step >= 0 && step < this.steps && this.arrays.state.values[(track * this.steps + step) * 3] === 1;
  }

  /** The step, or the last one that was recorded: a forecast may go on for longer. */
  recorded(step) {
    return Math.min(step, this.end);
  }

  /** `[x, y]` metres. */
  place(track, step) {
    const at = (track * this.steps + step) * 2;
    const { values } = this.arrays.position;
    return [values[at] * METRE, values[at + 1] * METRE];
  }

  /** Radians. */
  heading(track, step) {
    return this.arrays.state.values[(track * this.steps + step) * 3 + 1] / 1000;
  }

  /** Metres per second. */
  speed(track, step) {
    return this.arrays.state.values[(track * this.steps + step) * 3 + 2] * METRE;
  }

  /** Where a track was seen in steps `from` to `to`, in order: `[[x, y], …]` metres. */
  path(track, from, to) {
    const points = [];
    for (let step = Math.max(0, from); step <= Math.min(to, this.steps - 1); step++) {
      if (this.seen(track, step)) points.push(this.place(track, step));
    }
    return points;
  }

  /** What `told[m]` says of a track: `[{points, band, probability, error}, …]`, or none. */
  modes(m, track) {
    const model = this.told[m];
    const row = model ? this.rowOf[m].get(track) : undefined;
    if (row === undefined) return [];
    const places = this.arrays[`mode${m}`].values;
    const widths = this.arrays[`band${m}`]?.values;
    return Array.from({ length: model.modes }, (_, k) => {
      const first = (row * model.modes + k) * model.steps;
      const each = (f) => [places[2 * (first + f)] * METRE, places[2 * (first + f) + 1] * METRE];
      return {
        points: Array.from({ length: model.steps }, (_, f) => each(f)),
        band: widths ? Array.from({ length: model.steps }, (_, f) => widths[first + f] * METRE) : null,
        probability: model.probability[row][k],
        error: model.end_error?.[row]?.[k] ?? null,
      };
    });
  }

  /** The metrics of model `m` for a track, in the order of `index.metrics`, or null. */
  metrics(m, track) {
    const row = this.models[m] ? this.rowOf[m].get(track) : undefined;
    return row === undefined ? null : this.models[m].metrics[row];
  }
}

const KEPT = 12; // scenes decoded at a time: the others wait as text
const opened = new Map();

/** The scene with this number in `index.scenes`, decoded when first asked for. */
async function openScene(number) {
  const known = opened.get(number);
  if (known) return known;
  const { arrays, data, ...stored } = JSON.parse(document.getElementById(`scene-${number}`).textContent);
  const scene = new Scene(stored, unpack(await inflate(data), arrays));
  opened.set(number, scene);
  if (opened.size > KEPT) opened.delete(opened.keys().next().value);
  return scene;
}
