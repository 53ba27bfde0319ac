"use strict";
// Shows, for every value of every attribute, how many records have it together with what is selected: estimated from the
// synthetic records, beside the released count and its interval where that combination was released.

const TYPES = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float64: Float64Array };
const SHOWN = 12; // values of an attribute, unless all are asked for
const numberFormat = new Intl.NumberFormat("en");

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  let place = 4 + length;
  for (const [name, type, size] of header.arrays) {
    const end = place + size * TYPES[type].BYTES_PER_ELEMENT;
    arrays[name] = new TYPES[type](buffer.slice(place, end));
    place = end;
  }
  return { header, arrays };
}

class Release {
  constructor({ header, arrays }) {
    this.arrays = arrays;
    this.attributes = header.attributes;
    this.records = header.records;
    this.count = header.count;
    this.scale = header.records ? header.count[0] / header.records : 0;
    this.sets = header.sets.map((sets, i) => {
      const total = arrays[`counts-${i + 1}`].length;
      const ends = sets.map((_, s) => (s + 1 < sets.length ? sets[s + 1][1] : total));
      return new Map(sets.map(([columns, start], s) => [columns.join(), [start, ends[s]]]));
    });
  }

  // The released count of a combination of [attribute, value] pairs as [count, low, high], or null.
  released(pairs) {
    const length = pairs.length;
    if (length === 0) return this.count;
    if (length > this.sets.length) return null;
    const sorted = [...pairs].sort((a, b) => a[0] - b[0]);
    const range = this.sets[length - 1].get(sorted.map((pair) => pair[0]).join());
    if (range === undefined) return null;
    const values = this.arrays[`values-${length}`];
    let [low, high] = range;
    while (low < high) {
      const middle = (low + high) >> 1;
      let order = 0;
      for (let i = 0; i < length && order === 0; i++) order = values[middle * length + i] - sorted[i][1];
      if (order === 0) return this.interval(length, middle);
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return null;
  }

  interval(length, row) {
    return ["counts", "low", "high"].map((name) => this.arrays[`${name}-${length}`][row]);
  }

  // How many synthetic records have each value together with the selection, and how many have the selection itself. Of an
  // attribute with one value a record, what is selected of it is left out: its other values can then be compared.
  estimate(selection) {
    const fails = new Uint8Array(this.records); // conditions that a record does not meet
    const failed = new Int32Array(this.records).fill(-1); // the attribute of one of them
    for (const [attribute, value] of selection) {
      const codes = this.arrays[`codes-${attribute}`];
      const width = this.attributes[attribute].width;
      for (let row = 0; row < this.records; row++) {
        let met = false;
        for (let i = row * width; i < (row + 1) * width && !met; i++) met = codes[i] === value;
        if (met) continue;
        fails[row]++;
        failed[row] = attribute;
      }
    }
    const counts = this.attributes.map((about, attribute) => {
      const made = new Float64Array(about.labels.length + 1);
      const codes = this.arrays[`codes-${attribute}`];
      const free = !about.set;
      for (let row = 0; row < this.records; row++) {
        if (fails[row] > 1 || (fails[row] === 1 && !(free && failed[row] === attribute))) continue;
        const start = row * about.width;
        const empty = codes[start] === about.labels.length;
        if (empty) made[about.labels.length]++;
        for (let i = start; i < start + about.width; i++) if (codes[i] < about.labels.length) made[codes[i]]++;
      }
      return made.map((number) => number * this.scale);
    });
    const total = fails.reduce((sum, number) => sum + (number === 0), 0);
    return { counts, total: total * this.scale };
  }

  // Rows to show of one attribute, the most frequent first.
  rows(attribute, selection, made) {
    const about = this.attributes[attribute];
    const others = (value) => selection.filter(([a, v]) => a !== attribute || (about.set && v !== value));
    const rows = about.labels.map((label, value) => ({
      label: label === "" ? "(empty)" : label,
      value,
      estimate: made[value],
      released: this.released([...others(value), [attribute, value]]),
      selected: selection.some(([a, v]) => a === attribute && v === value),
    }));
    rows.sort((a, b) => b.estimate - a.estimate || (b.released?.[0] ?? -1) - (a.released?.[0] ?? -1) || a.value - b.value);
    const missing = made[about.labels.length];
    if (missing > 0) rows.push({ label: "(no value)", value: -1, estimate: missing, released: null, selected: false });
    return rows;
  }
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function shown(number) {
  return numberFormat.format(Math.round(number));
}

function released(counts) {
  return counts === null ? "not released" : `${shown(counts[0])} (${shown(counts[1])} to ${shown(counts[2])})`;
}

function bar(className, from, to, most) {
  const made = element("span", { className });
  made.style.left = `${Math.min(100, (100 * from) / most)}%`;
  made.style.width = `${Math.max(0, Math.min(100, (100 * to) / most) - Math.min(100, (100 * from) / most))}%`;
  return made;
}

function valueLine(row, most, toggle) {
  const track = element("span", { className: "track", ariaHidden: "true" }, bar("estimate", 0, row.estimate, most));
  if (row.released !== null) {
    const [count, low, high] = row.released;
    track.append(bar("reach", low, high, most), bar("point", count, count, most));
  }
  const numbers = element("span", { className: "numbers" });
  numbers.append(element("span", { className: "estimated" }, `≈ ${shown(row.estimate)}`));
  if (row.value >= 0) numbers.append(" · ", element("span", { className: "counted" }, released(row.released)));
  const parts = [element("span", { className: "label" }, row.label), numbers, track];
  if (row.value < 0) return element("li", {}, element("div", { className: "value" }, ...parts));
  const button = element("button", { type: "button", className: "value", onclick: toggle }, ...parts);
  button.setAttribute("aria-pressed", row.selected);
  return element("li", {}, button);
}

class Page {
  constructor(release) {
    this.release = release;
    this.selection = []; // [attribute, value] pairs, in the order of the clicks
    this.opened = new Set(); // attributes of which all values are shown
    document.getElementById("clear").addEventListener("click", () => this.select([]));
    this.show();
  }

  select(selection) {
    this.selection = selection;
    const focus = document.activeElement?.dataset?.key;
    this.show();
    if (focus) document.querySelector(`[data-key="${focus}"]`)?.focus();
  }

  toggle(attribute, value) {
    const about = this.release.attributes[attribute];
    const held = this.selection.some(([a, v]) => a === attribute && v === value);
    const kept = this.selection.filter(([a, v]) => a !== attribute || (about.set && v !== value));
    this.select(held ? kept : [...kept, [attribute, value]]);
  }

  show() {
    const { counts, total } = this.release.estimate(this.selection);
    const cards = this.release.attributes.map((about, attribute) => this.card(about, attribute, counts[attribute]));
    document.getElementById("attributes").replaceChildren(...cards);
    const named = this.selection.map(([a, v]) => `${this.release.attributes[a].name}: ${this.release.attributes[a].labels[v]}`);
    document.getElementById("selection").textContent = named.length ? named.join(", ") : "all records";
    document.getElementById("total").textContent = `≈ ${shown(total)}`;
    document.getElementById("total-released").textContent = released(this.release.released(this.selection));
    document.getElementById("clear").disabled = !named.length;
  }

  card(about, attribute, made) {
    const rows = this.release.rows(attribute, this.selection, made);
    const most = Math.max(1, ...rows.map((row) => Math.max(row.estimate, row.released?.[2] ?? 0)));
    const shownRows = this.opened.has(attribute) ? rows : rows.filter((row, i) => i < SHOWN || row.selected);
    const list = element("ul", {});
    for (const row of shownRows) {
      const line = valueLine(row, most, () => this.toggle(attribute, row.value));
      line.firstChild.dataset.key = `${attribute}-${row.value}`;
      list.append(line);
    }
    const heading = element("h2", { id: `attribute-${attribute}` }, about.name);
    const card = element("section", { className: "card" }, heading, list);
    card.setAttribute("aria-labelledby", heading.id);
    if (shownRows.length < rows.length) {
      const all = element("button", { type: "button", className: "all" }, `All ${shown(rows.length)} values`);
      all.addEventListener("click", () => (this.opened.add(attribute), this.show()));
      card.append(all);
    }
    return card;
  }
}

unpack(document.getElementById("data").textContent).then((data) => new Page(new Release(data)));
