// The scenarios as a list that sorts by any metric and filters by metric, class, manoeuvre, city and id.

const filter = { text: "", facts: {}, low: null, high: null, sort: "", reverse: false };

/** What the list sorts by: `{name, label, value(line)}`; a value may be null. */
function sortings() {
  const found = [];
  const several = index.models.length > 1;
  index.metrics.forEach((name, i) => {
    index.models.forEach((model, m) => {
      const label = several ? `${name}, ${"AB"[m]}` : name;
      found.push({ name, label, m, value: (line) => line.metrics[m]?.[i] ?? null });
    });
    if (!several) return;
    const change = (line) => {
      const [a, b] = line.metrics.map((values) => values?.[i] ?? null);
      return a === null || b === null ? null : b - a;
    };
    found.push({ name, label: `${name}, B − A`, m: null, value: change });
  });
  found.push({ name: "agents", label: "road users", m: null, value: (line) => line.agents });
  found.push({ name: "order", label: "as given", m: null, value: (line) => index.scenes.indexOf(line) });
  return found;
}

const SORTINGS = sortings();
const sorting = () => SORTINGS.find((one) => one.label === filter.sort) ?? SORTINGS[0];

/** Numbers of the scenes that pass all filters, sorted; those without a value come last. */
function shownScenes() {
  const { value } = sorting();
  const passes = (line) => {
    const number = value(line);
    return line.id.toLowerCase().includes(filter.text)
      && Object.entries(filter.facts).every(([fact, wanted]) => !wanted || line[fact] === wanted)
      && (filter.low === null || (number !== null && number >= filter.low))
      && (filter.high === null || (number !== null && number <= filter.high));
  };
  const order = filter.reverse ? -1 : 1;
  const rows = index.scenes.map((line, number) => ({ line, number, key: value(line) })).filter((row) => passes(row.line));
  const compare = (a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
    return order * (a.key - b.key);
  };
  return rows.sort((a, b) => compare(a, b) || a.number - b.number).map((row) => row.number);
}

/** Write the list again. */
function tellList() {
  const list = get("list");
  const shown = shownScenes();
  state.shown = shown;
  list.replaceChildren(...shown.map(listRow));
  if (!shown.length) add(list, "li", "No scenario passes these filters.").className = "none";
  const all = index.scenes.length;
  get("count").textContent = shown.length === all ? `${all} scenario${all === 1 ? "" : "s"}` : `${shown.length} of ${all}`;
  get("range-name").textContent = sorting().label;
  get("range").hidden = sorting().name === "order";
  get("order").textContent = filter.reverse ? "↓" : "↑";
  markList();
}

/** The metric that a row tells: the one sorted by, or else the final error. */
function toldMetric() {
  const { name } = sorting();
  return index.metrics.includes(name) && name !== "MR6" ? name : "minFDE6";
}

function listRow(number) {
  const line = index.scenes[number];
  const item = document.createElement("li");
  const row = add(item, "button");
  row.type = "button";
  row.dataset.number = number;
  row.title = line.id;
  add(row, "span", line.id).className = "id";
  const told = add(row, "span");
  told.className = "value";
  const name = toldMetric();
  const values = line.metrics.map((each) => each?.[index.metrics.indexOf(name)] ?? null);
  const known = values.filter((value) => value !== null);
  values.forEach((value, m) => {
    if (m) told.append(" · ");
    const best = known.length > 1 && value === Math.min(...known) && known[0] !== known[1];
    add(told, "b", metricText(name, value)).className = best ? "better" : "";
  });
  const what = [line.manoeuvre, line.class.replaceAll("_", " "), line.city].filter((word) => word !== "unknown");
  add(row, "span", what.join(" · ")).className = "what";
  const misses = line.metrics.map((each) => each?.[index.metrics.indexOf("MR6")] === 1);
  const missed = misses.length > 1 ? ["A", "B"].filter((_, m) => misses[m]).join(" + ") : "";
  add(row, "span", misses.some(Boolean) ? `miss ${missed}`.trim() : "").className = "miss";
  return item;
}

/** Show which row is open. */
function markList() {
  for (const row of document.querySelectorAll("#list button")) {
    const open = Number(row.dataset.number) === state.number;
    row.setAttribute("aria-current", String(open));
    if (open) row.scrollIntoView({ block: "nearest" });
  }
}

/** Make the filters and let them work. */
function listenToList(chosen) {
  const bare = !index.models.length;
  for (const fact of index.facts) {
    const count = new Map();
    index.scenes.forEach((line) => count.set(line[fact], (count.get(line[fact]) ?? 0) + 1));
    const select = add(get("facts"), "select");
    select.setAttribute("aria-label", fact);
    select.id = `fact-${fact}`;
    add(select, "option", fact).value = "";
    for (const [value, number] of [...count].sort((a, b) => b[1] - a[1])) {
      add(select, "option", `${value.replaceAll("_", " ")} (${number})`).value = value;
    }
    select.addEventListener("change", () => { filter.facts[fact] = select.value; tellList(); });
  }
  SORTINGS.forEach((one) => { add(get("sort"), "option", one.label).value = one.label; });
  filter.sort = (bare ? SORTINGS.at(-1) : SORTINGS.find((one) => one.name === "minFDE6") ?? SORTINGS[0]).label;
  filter.reverse = !bare; // the worst first
  get("sort").value = filter.sort;
  get("sort").addEventListener("change", () => { filter.sort = get("sort").value; tellList(); });
  get("order").addEventListener("click", () => { filter.reverse = !filter.reverse; tellList(); });
  get("search").addEventListener("input", () => { filter.text = get("search").value.trim().toLowerCase(); tellList(); });
  for (const side of ["low", "high"]) {
    get(side).addEventListener("input", () => {
      filter[side] = get(side).value === "" ? null : get(side).valueAsNumber;
      tellList();
    });
  }
  get("filters").addEventListener("submit", (event) => event.preventDefault());
  get("list").addEventListener("click", (event) => {
    const row = event.target.closest("button");
    if (row) chosen(Number(row.dataset.number));
  });
  tellList();
}
