// Charts as SVG, and what is saved: CSV, SVG and PNG of what is shown.

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A histogram of bins, whose areas are counts, or lines of dates with the bands of their ranges.
function drawChart(card, numbers, others, share) {
  const { about } = card;
  const size = about.labels.length;
  const bins = numbers.filter(({ value }) => value < size);
  const pick = (number) => (share ? number.share : number.count);
  const line = about.kind !== "number";
  const counted = about.edges ? about.edges.length - 1 : size;
  const used = bins.slice(0, counted);
  const edges = about.edges && !line ? about.edges : Array.from({ length: used.length + 1 }, (_, i) => i);
  const [from, to] = [edges[0], edges.at(-1)];
  const x = (edge) => (300 * (edge - from)) / (to - from || 1);
  const per = line ? () => 1 : (i) => (edges[i + 1] - edges[i]) / (to - from || 1);
  const series = [others && used.map(({ value }) => pick(others.get(value))), used.map(pick)].filter(Boolean);
  const top = Math.max(1e-9, ...series.flatMap((own) => own.map((one, i) => Math.max(one.estimate, line ? one.high ?? 0 : 0) / per(i))));
  const y = (one, i) => 76 - (72 * Math.min(Math.max(one, 0) / per(i), top)) / top;
  const drawn = svg("svg", { viewBox: "0 0 300 78", preserveAspectRatio: "none" });
  series.forEach((own, which) => {
    const name = which === series.length - 1 ? "first" : "second";
    if (line) {
      const middle = (i) => x(i + 0.5);
      const ends = own.every((one) => one.measured);
      if (ends) {
        const upper = own.map((one, i) => `${middle(i)},${y(one.high, i)}`);
        const lower = own.map((one, i) => `${middle(i)},${y(one.low, i)}`).reverse();
        drawn.append(svg("polygon", { class: `band ${name}`, points: [...upper, ...lower].join(" ") }));
      }
      drawn.append(svg("polyline", { class: `line ${name}`, points: own.map((one, i) => `${middle(i)},${y(one.estimate, i)}`).join(" ") }));
    } else if (name === "first") {
      own.forEach((one, i) => drawn.append(svg("rect", { class: `bin ${one.measured ? "" : "soft-bar"}`, x: x(edges[i]), width: Math.max(0.5, x(edges[i + 1]) - x(edges[i]) - 0.6), y: y(one.estimate, i), height: 76 - y(one.estimate, i) })));
    } else {
      const steps = own.map((one, i) => `${x(edges[i])},${y(one.estimate, i)} ${x(edges[i + 1])},${y(one.estimate, i)}`);
      drawn.append(svg("polyline", { class: "line second", points: steps.join(" ") }));
    }
  });
  if (!line && series.length > 1) drawn.append(drawn.firstChild); // the outline over the bars
  drawn.append(svg("line", { class: "axis", x1: 0, x2: 300, y1: 76.5, y2: 76.5 }));
  return drawn;
}

// A cell; of a text that a spreadsheet would take for a formula with a ' before it.
function quoted(value) {
  const formula = typeof value === "string" && /^[=+\-@\t\r]/.test(value) && isNaN(value);
  const text = `${formula ? "'" : ""}${value ?? ""}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(lines) {
  return lines.map((line) => `${line.map(quoted).join(",")}\r\n`).join("");
}

function named(page, conditions) {
  const names = conditions.map(([attribute, values]) => `${page.release.attributes[attribute].name}: ${page.release.words(attribute, values)}`);
  return names.join("; ") || TEXT.everybody;
}

// The columns of a number from its count on: the least and most that it can be, how it was made, and of which release it is.
function facts(page, { count, share }) {
  const { dataset, level } = page.release.about;
  return [
    Math.round(count.estimate), count.low, count.high ?? count.most, share.unknown ? "" : share.estimate.toFixed(5), share.low?.toFixed(5),
    share.high?.toFixed(5), count.measured || count.unsure ? TEXT.sourceMeasured : TEXT.sourceRecords, [cautionOf({ count, share }, true), allButWords(share), share.unknown ? inWords(share, true) : ""].filter(Boolean).join("; "), dataset, byId("data").dataset.release, level,
    [page.release.countedWords(count.conditions), page.release.clampedWords(count.conditions)].filter(Boolean).join("; "),
  ];
}

function csvLines(card) {
  const { page, attribute } = card;
  const selections = [page.first, page.other].filter(Boolean);
  return selections.flatMap((selected) => selected.of(attribute).map((number) => [
    card.about.name, page.release.label(attribute, number.value), named(page, selected.others(attribute)), ...facts(page, number),
  ]));
}

const HEAD = ["Column", "Value", "Among", "Count", "Low", "High", "Share", "ShareLow", "ShareHigh", "Source", "Note", "Dataset", "Release", "Level", "Counted"];

function head() {
  return HEAD.map((name) => TEXT[`head${name}`]);
}

function saveAll(page) {
  const cards = page.cards.filter((card) => !card.root.hidden);
  download(page, "all", "csv", new Blob([csv([head(), ...cards.flatMap(csvLines)])], { type: "text/csv" }));
}

function download(page, name, kind, blob) {
  const safe = `${page.release.about.dataset}-${name}`.replace(/[^\p{L}\p{N}_-]+/gu, "_");
  const link = element("a", { href: URL.createObjectURL(blob), download: `${safe}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

async function savePicture(page, name, kind, picture) {
  const text = new XMLSerializer().serializeToString(picture);
  if (kind === "svg") return download(page, name, kind, new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * picture.getAttribute("width"), height: 2 * picture.getAttribute("height") });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob((blob) => done(download(page, name, kind, blob)), "image/png"));
}

function label(x, y, text, more = {}) {
  return svg("text", { x, y, "font-family": "system-ui, sans-serif", "font-size": 12, fill: "#1b1b1b", ...more }, text);
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function frame(page, title, width, height, lines) {
  const drawn = svg("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` }, svg("rect", { width, height, fill: "#fff" }));
  drawn.append(label(10, 22, shortened(title, 90), { "font-size": 15, "font-weight": 600 }));
  lines.forEach((text, i) => drawn.append(label(10, height - 10 - 16 * (lines.length - 1 - i), text, { "font-size": 11, fill: "#565656" })));
  return drawn;
}

function sourceLine(page) {
  const { dataset, level } = page.release.about;
  return say("source", { dataset, release: byId("data").dataset.release, level: 100 * level, selection: named(page, page.first.conditions) });
}

async function saveCard(card, kind) {
  const { page, about, shown } = card;
  if (kind === "csv") return download(page, about.name, kind, new Blob([csv([head(), ...csvLines(card)])], { type: "text/csv" }));
  const share = page.state.unit === "share";
  const numbers = shown.map((number) => ({ ...number, one: share ? number.share : number.count }));
  const most = Math.max(share ? 0.01 : 1, ...numbers.map(({ one }) => Math.max(one.estimate, one.high ?? 0)));
  const drawn = frame(page, about.name, 700, 60 + 22 * numbers.length, [sourceLine(page)]);
  numbers.forEach(({ value, one, count }, i) => {
    const y = 36 + 22 * i;
    const x = (number) => 190 + (240 * number) / most;
    drawn.append(label(182, y + 13, shortened(page.release.label(card.attribute, value), 28), { "text-anchor": "end" }));
    drawn.append(svg("rect", { x: 190, y: y + 2, width: x(one.estimate) - 190, height: 15, fill: one.measured ? "#6aaed6" : "#e9c98a" }));
    if (one.measured) drawn.append(svg("rect", { x: x(one.low), y: y + 8.5, width: Math.max(1, x(one.high) - x(one.low)), height: 2, fill: "#1b1b1b" }));
    drawn.append(label(440, y + 13, [inWords(one, share), cautionOf({ count, share: one }, share)].filter(Boolean).join(", ")));
  });
  return savePicture(page, about.name, kind, drawn);
}

async function savePair(pair, kind) {
  const { page, content } = pair;
  const { rows, columns, lines, values, share, most } = content;
  const { attributes } = page.release;
  const title = say("pairOf", { rows: attributes[rows].name, columns: attributes[columns].name });
  const among = named(page, page.first.conditions);
  const name = page.first.conditions.length ? `${title}, ${among}` : title;
  if (kind === "csv") {
    const found = lines.flatMap(({ value, numbers }) => numbers.map((number) => [
      page.release.label(rows, value), page.release.label(columns, number.value), among, ...facts(page, number),
    ]));
    const top = [attributes[rows].name, attributes[columns].name, ...head().slice(2)];
    return download(page, name, kind, new Blob([csv([top, ...found])], { type: "text/csv" }));
  }
  const drawn = frame(page, title, Math.max(640, 180 + 84 * values.length), 136 + 36 * lines.length, [sourceLine(page), TEXT.pictureKey]);
  values.forEach((value, i) => drawn.append(label(172 + 84 * i, 50, shortened(page.release.label(columns, value), 12), { "text-anchor": "middle" })));
  lines.forEach(({ value, numbers }, j) => {
    drawn.append(label(122, 76 + 36 * j, shortened(page.release.label(rows, value), 18), { "text-anchor": "end" }));
    numbers.forEach((number, i) => {
      const one = share ? number.share : number.count;
      drawn.append(svg("rect", { x: 130 + 84 * i, y: 60 + 36 * j, width: 83, height: 35, fill: "#0072b2", "fill-opacity": (0.04 + (0.5 * Math.max(0, one.estimate)) / most).toFixed(3) }));
      const format = share ? percent : whole;
      const text = one.unknown ? "–" : (one.measured ? "" : "≈ ") + format.format(one.estimate) + (cautionOf(number, share) ? " *" : "");
      drawn.append(label(172 + 84 * i, 74 + 36 * j, text, { "text-anchor": "middle" }));
      if (one.measured && !one.unknown) drawn.append(label(172 + 84 * i, 89 + 36 * j, `${format.format(one.low)} – ${format.format(one.high)}`, { "text-anchor": "middle", "font-size": 10 }));
    });
  });
  return savePicture(page, name, kind, drawn);
}

function saveAverages({ page, content }) {
  const { lines, by, number, average } = content;
  const { attributes } = page.release;
  const { dataset, level } = page.release.about;
  const selections = [page.first, page.other].filter(Boolean);
  const rows = lines.flatMap(({ value, answers }) => answers.map((answer, i) => {
    const aside = selections[i].conditions.filter(([attribute]) => value === null || attribute !== Number(by));
    const { estimate, low, high } = answer.unknown ? {} : answer;
    const note = answer.unknown || !Number.isFinite(low) || !Number.isFinite(high) ? averageInWords(answer, page.average.format) : leastWords(answer, page.average.format);
    return [value === null ? TEXT.averageAll : page.release.label(Number(by), value), named(page, aside), estimate, Number.isFinite(low) ? low : "", Number.isFinite(high) ? high : "", answer.measured ? TEXT.sourceMeasured : answer.unknown ? "" : TEXT.sourceRecords, answer.unknown || answer.measured ? note : "", dataset, byId("data").dataset.release, level, [page.release.countedWords([...answer.conditions, [Number(number), []]]), page.release.clampedWords(answer.conditions), attributes[number].clamped.says].filter(Boolean).join("; ")];
  }));
  const name = `${TEXT[average]} ${attributes[number].name}`;
  const top = [by === "" ? TEXT.headValue : attributes[by].name, TEXT.headAmong, name, TEXT.headLow, TEXT.headHigh, TEXT.headSource, TEXT.headNote, TEXT.headDataset, TEXT.headRelease, TEXT.headLevel, TEXT.headCounted];
  return download(page, name, "csv", new Blob([csv([top, ...rows])], { type: "text/csv" }));
}

unpack(document.getElementById("data").textContent).then((data) => new Page(new Release(data)));
