// The list of scenarios: sorted by metrics, filtered by metric, class, manoeuvre, city and id.

const RESAMPLES = 2000;
const filter = { text: "", facts: {}, low: null, high: null, sort: "", descending: false };

/** Ways to sort: `{name, label, value(entry)}`; values may be null. */
function makeSortings() {
  const sortings = [];
  const compare = index.models.length > 1;
  index.metrics.forEach((name, i) => {
    const valueOf = (entry, m) => entry.metrics[m]?.[i] ?? null;
    index.models.forEach((_, m) => {
      sortings.push({ name, label: compare ? `${name}, ${"AB"[m]}` : name, value: (entry) => valueOf(entry, m) });
    });
    const change = (entry) => {
      const [a, b] = [valueOf(entry, 0), valueOf(entry, 1)];
      return a === null || b === null ? null : a - b;
    };
    if (compare) sortings.push({ name, label: `${name}, A − B`, value: change });
  });
  sortings.push({ name: "agents", label: "road users", value: (entry) => entry.agents });
  sortings.push({ name: "order", label: "original order", value: (entry) => index.scenes.indexOf(entry) });
  return sortings;
}

const SORTINGS = makeSortings();
const currentSorting = () => SORTINGS.find(({ label }) => label === filter.sort) ?? SORTINGS[0];

/** Numbers of the scenes that pass all filters, sorted; those without a value come last. */
function listedScenes() {
  const { value } = currentSorting();
  const rows = index.scenes.map((entry, number) => ({ entry, number, key: value(entry) })).filter(({ entry, key }) =>
    entry.id.toLowerCase().includes(filter.text)
    && Object.entries(filter.facts).every(([fact, wanted]) => !wanted || entry[fact] === wanted)
    && (filter.low === null || (key !== null && key >= filter.low))
    && (filter.high === null || (key !== null && key <= filter.high)));
  const order = filter.descending ? -1 : 1;
  const compare = (a, b) => (a.key === null || b.key === null ? (a.key === null) - (b.key === null) : order * (a.key - b.key));
  return rows.sort((a, b) => compare(a, b) || a.number - b.number).map(({ number }) => number);
}

/** Rebuild the list. */
function updateList() {
  state.listed = listedScenes();
  get("list").replaceChildren(...state.listed.map(listRow));
  if (!state.listed.length) add(get("list"), "li", "No scenario passes these filters.").className = "none";
  const [count, all] = [state.listed.length, index.scenes.length];
  get("count").textContent = count === all ? `${all} scenario${all === 1 ? "" : "s"}` : `${count} of ${all}`;
  get("range-name").textContent = currentSorting().label;
  get("range").hidden = currentSorting().name === "order";
  get("order").textContent = filter.descending ? "↓" : "↑";
  updateMeans();
  markOpenRow();
}

/** The scene with the median sort value; the first one if nothing was measured. */
function typicalScene() {
  const { name, value } = currentSorting();
  const known = state.listed.filter((number) => name !== "order" && value(index.scenes[number]) !== null);
  return known[Math.floor((known.length - 1) / 2)] ?? state.listed[0];
}

/** The metric that rows and means show: the one sorted by, else minFDE6. */
function shownMetric() {
  const { name } = currentSorting();
  return index.metrics.includes(name) ? name : "minFDE6";
}

/** 97.5 % quantile of Student's t relative to the normal quantile, by the expansion in trajpred.evaluation.table. */
function widening(count) {
  const z = 1.959964;
  const freedom = count - 1;
  const second = (z ** 3 + z) / 4 / freedom;
  const third = (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96 / freedom ** 2;
  const fourth = (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384 / freedom ** 3;
  return ((z + second + third + fourth) / z) * Math.sqrt(count / freedom);
}

/**
 * Mean of `values` and the bounds of 95 % of its bootstrap resamples, which are reproducible. For few values, which vary
 * too little, the bounds are moved apart; fewer than two values have none.
 */
function bootstrap(values) {
  let seed = 1;
  const draw = () => values[Math.floor((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32 * values.length)];
  const mean = (next) => values.reduce((sum, value) => sum + next(value), 0) / values.length;
  const means = Float64Array.from({ length: RESAMPLES }, () => mean(draw)).sort();
  const center = mean((value) => value);
  if (values.length < 2) return [center];
  const wider = widening(values.length);
  const bound = (share) => center + wider * (means[Math.round(share * (RESAMPLES - 1))] - center);
  return [center, bound(0.025), bound(0.975)];
}

/** Show the mean of each model over the listed scenarios, and of A against B in pairs, with 95 % intervals. */
function updateMeans() {
  const name = shownMetric();
  const at = index.metrics.indexOf(name);
  const entries = state.listed.map((number) => index.scenes[number].metrics);
  const rows = entries.map((each) => each.map((values) => values?.[at] ?? null)).filter((row) => !row.includes(null));
  get("means").replaceChildren();
  if (!rows.length || !index.models.length) return;
  const compare = index.models.length > 1;
  const line = (label, values, sign) => {
    const text = (value) => `${sign && value > 0 ? "+" : ""}${value.toFixed(2)}`.replace("-", "−");
    const [mean, ...bounds] = bootstrap(values);
    add(get("means"), "dt", label);
    add(get("means"), "dd", bounds.length ? `${text(mean)} [${bounds.map(text).join(", ")}]` : text(mean));
  };
  index.models.forEach((_, m) => line(`mean ${name}${compare ? `, ${"AB"[m]}` : ""}`, rows.map((row) => row[m]), false));
  if (compare) line("A − B, 95 %", rows.map(([a, b]) => a - b), true);
}

/** A row: id, the metric sorted by (else minFDE6) of each model, facts, and who missed. */
function listRow(number) {
  const entry = index.scenes[number];
  const item = document.createElement("li");
  const row = Object.assign(add(item, "button"), { type: "button", title: entry.id });
  row.dataset.number = number;
  const name = shownMetric() === "MR6" ? "minFDE6" : shownMetric();
  const metric = (wanted) => entry.metrics.map((values) => values?.[index.metrics.indexOf(wanted)] ?? null);
  add(row, "span", entry.id).className = "id";
  add(row, "span", entryFacts(entry).join(" · ")).className = "facts";
  const missed = metric("MR6").flatMap((value, m) => (value === 1 ? ["AB"[m]] : []));
  const both = index.models.length > 1;
  add(row, "span", missed.length ? `miss${both ? ` ${missed.join(" + ")}` : ""}` : "").className = "miss";
  const cell = add(row, "span");
  cell.className = "value";
  const known = metric(name).filter((value) => value !== null);
  metric(name).forEach((value, m) => {
    if (both) cell.append(`${m ? " · " : ""}${"AB"[m]} `);
    const better = known.length > 1 && value === Math.min(...known) && known[0] !== known[1];
    add(cell, "b", metricText(name, value)).className = better ? "better" : "";
  });
  return item;
}

/** Known facts of the focal agent in words. */
function entryFacts(entry) {
  return [entry.manoeuvre, entry.class.replaceAll("_", " "), entry.city].filter((word) => word !== "unknown");
}

/** Mark the row of the open scene and scroll to it. */
function markOpenRow() {
  for (const row of document.querySelectorAll("#list button")) {
    const open = Number(row.dataset.number) === state.number;
    row.setAttribute("aria-current", String(open));
    if (open) row.scrollIntoView({ block: "nearest" });
  }
}

/** Build the filters; `open(number)` is called when a row is clicked. */
function initList(open) {
  for (const fact of index.facts) {
    const counts = new Map();
    index.scenes.forEach((entry) => counts.set(entry[fact], (counts.get(entry[fact]) ?? 0) + 1));
    const select = Object.assign(add(get("facts"), "select"), { id: `fact-${fact}` });
    select.setAttribute("aria-label", fact);
    add(select, "option", fact).value = "";
    for (const [value, count] of [...counts].sort((a, b) => b[1] - a[1])) {
      add(select, "option", `${value.replaceAll("_", " ")} (${count})`).value = value;
    }
    select.addEventListener("change", () => { filter.facts[fact] = select.value; updateList(); });
  }
  SORTINGS.forEach(({ label }) => { add(get("sort"), "option", label).value = label; });
  const hasModels = index.models.length > 0;
  filter.sort = (hasModels ? SORTINGS.find(({ name }) => name === "minFDE6") ?? SORTINGS[0] : SORTINGS.at(-1)).label;
  if (index.models.length > 1) get("models").textContent = index.models.map((name, m) => `${"AB"[m]} ${name}`).join(" · ");
  get("sort").value = filter.sort;
  get("sort").addEventListener("change", () => {
    filter.sort = get("sort").value;
    filter.descending = false;
    for (const bound of ["low", "high"]) { // they were of another quantity
      filter[bound] = null;
      get(bound).value = "";
    }
    updateList();
  });
  get("order").addEventListener("click", () => { filter.descending = !filter.descending; updateList(); });
  get("search").addEventListener("input", () => { filter.text = get("search").value.trim().toLowerCase(); updateList(); });
  for (const bound of ["low", "high"]) {
    get(bound).addEventListener("input", () => {
      filter[bound] = get(bound).value === "" ? null : get(bound).valueAsNumber;
      updateList();
    });
  }
  get("filters").addEventListener("submit", (event) => event.preventDefault());
  get("list").addEventListener("click", (event) => {
    const row = event.target.closest("button");
    if (row) open(Number(row.dataset.number));
  });
  updateList();
}
