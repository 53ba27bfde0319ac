// The page: one block for each column, brought up to date in place. What is outside the window waits until there is time.

const MOST_SHOWN = 12; // values of a column with many, the most frequent ones, unless all are asked for
const FEW = 40; // bins of a number or date are shown up to so many
const STEP = 200; // values more with each click
const NO_VALUE = /^\W*$|^N$|\b(n\/?a|nan|null|unknown|missing|not (applicable|available|in universe|known|reported|stated))\b/i; // nobody asks for it
const CLEAR = 0.6; // an example that differs more says nothing new
const PAIR = 40; // values of each column in a table of two
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

function say(key, values = {}) {
  return TEXT[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

function element(tag, properties = {}, ...children) {
  const { data = {}, attributes = {}, ...own } = properties;
  const made = Object.assign(document.createElement(tag), own);
  Object.assign(made.dataset, data);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

function later(work) {
  if (window.requestIdleCallback) requestIdleCallback(work, { timeout: 200 });
  else setTimeout(() => work({ timeRemaining: () => 10 }), 1);
}

// A count or share in words: with its range where it was measured.
function inWords(number, share) {
  const format = share ? percent : whole;
  if (number.unknown) return number.none ? TEXT.noRecord : number.elsewhere ? TEXT.elsewhere : TEXT.noShare;
  if (number.unsure) return say("unsure", { number: format.format(number.estimate) });
  if (!number.measured) {
    const most = share || number.most === undefined ? "" : ` ${say("upTo", { number: format.format(number.most) })}`;
    return say("about", { number: format.format(number.estimate) }) + most;
  }
  const [estimate, low, high] = [number.estimate, number.low, number.high].map((end) => format.format(end));
  return say("range", { number: estimate, low, high });
}

// A mean or a quantile in words, with so many decimals as the length of the range of its column needs.
function averageInWords(number, format) {
  if (number.unknown) return number.none ? TEXT.noRecord : number.open ? TEXT.openBins : number.few ? TEXT.noShare : number.elsewhere ? TEXT.elsewhere : TEXT.anything;
  if (!number.measured) return say("about", { number: format.format(number.estimate) });
  const [low, high] = [number.low, number.high].map((end) => (Number.isFinite(end) ? format.format(end) : null));
  const ends = high === null ? say("atLeast", { low }) : low === null ? say("atMost", { high }) : say("ends", { low, high });
  if (number.estimate === null) return ends;
  return [`${format.format(number.estimate)} (${ends})`, leastWords(number, format)].filter(Boolean).join("; ");
}

// Whether a mean may be as little as a mean can be.
function leastWords({ least }, format) {
  return least === undefined ? "" : say("averageLeast", { least: format.format(least) });
}

function formatOf([least, most]) {
  const span = most - least;
  const digits = Number.isFinite(span) && span > 0 ? Math.min(8, Math.max(0, 3 - Math.ceil(Math.log10(span)))) : 1;
  return new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// What to know before a count is quoted; nothing of one from synthetic records. As in the report, one is too small to be quoted
// where the standard deviation of its noise is above a quarter of it.
function caution({ measured, nothing, estimate, low, high, variance = ((high - low) / 3.92) ** 2 }) {
  if (!measured || high <= 0) return "";
  if (nothing) return TEXT.anything;
  return low <= 0 ? TEXT.zero : estimate < 4 * Math.sqrt(variance) ? TEXT.small : "";
}

// The same of a count or of its share: a share may be nothing where the count is known to be some.
function cautionOf({ count, share }, isShare) {
  const weak = caution(count);
  return weak || (isShare && share.measured && share.low <= 0 && share.high > 0 ? TEXT.zero : "");
}

// By which gaps alone some record is not in a share.
function allButWords({ but }) {
  return (but ?? []).map((key) => TEXT[key]).join("; ");
}

// Says, where it happens, why the count of a part can be above that of the whole.
function larger(counts, whole) {
  return counts.some(({ count }) => count.measured && whole.measured && count.estimate > whole.estimate) ? TEXT.partLarger : "";
}

// What a link keeps: everything that was chosen. Pairs are numbers of column and value, or of column and the ends of a run of values.
const KEYS = { a: "pairs", b: "pairs", unit: "text", order: "text", compare: "text", edit: "text", sources: "text", q: "text", rows: "text", columns: "text", number: "text", by: "text", average: "text", at: "text" };
const START = { a: [], b: [], unit: "count", order: "natural", compare: "none", edit: "a", sources: "", q: "", rows: "", columns: "", number: "", by: "", average: "mean", at: "" };
const CHOICES = { unit: ["count", "share"], order: ["natural", "size"], compare: ["none", "all", "second"], edit: ["a", "b"], average: ["mean", "median"], sources: ["", "1"] };

const PLACES = ["a", "b", "rows", "columns", "number", "by", "at"];

// What a link's places are numbers of: a 32-bit hash (FNV-1a) of all names and values.
function fingerprint({ attributes }) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(JSON.stringify(attributes.map(({ name, labels }) => [name, labels]))))
    hash = Math.imul(hash ^ byte, 0x01000193);
  return (hash >>> 0).toString(16);
}

function toHash(state, release) {
  const parts = new URLSearchParams();
  for (const [key, kind] of Object.entries(KEYS)) {
    const value = kind === "pairs" ? release.conditions(state[key]).flatMap(runs).join("-") : state[key];
    if (value !== "" && value !== START[key]) parts.set(key, value);
  }
  if (PLACES.some((key) => parts.has(key))) parts.set("of", release.fingerprint);
  return parts.toString();
}

// The values of a condition as a link has them, "3.5" or, for a run, "3.5_9".
function runs([attribute, values]) {
  const starts = values.filter((value, i) => i === 0 || value !== values[i - 1] + 1);
  const ends = values.filter((value, i) => values[i + 1] !== value + 1);
  return starts.map((start, i) => `${attribute}.${start === ends[i] ? start : `${start}_${ends[i]}`}`);
}

// The pairs of a link's part; null where there is no such column or value.
function readPairs(text, release) {
  const parts = text.split("-").map((part) => /^(\d+)\.(\d+)(?:_(\d+))?$/.exec(part)?.slice(1).map((number) => (number === undefined ? undefined : Number(number))));
  if (!parts.every((part) => part && part[0] < release.attributes.length)) return null;
  const pairs = [];
  for (const [attribute, first, last = first] of parts) {
    const values = new Set(release.values(attribute));
    if (last < first || !values.has(first) || !values.has(last)) return null;
    for (let value = first; value <= last; value++) if (values.has(value)) pairs.push([attribute, value]);
  }
  return pairs;
}

// The state of a link; of one with places of other columns or values, or that do not exist, nothing is selected. `strange` has
// the parts that mean nothing to this page.
function fromHash(hash, release) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...START };
  const exists = (place) => /^\d+$/.test(place) && Number(place) < release.attributes.length;
  let foreign = parts.has("of") && parts.get("of") !== release.fingerprint;
  for (const [key, kind] of Object.entries(KEYS)) {
    const value = parts.get(key);
    if (!value) continue;
    state[key] = kind === "text" ? value : readPairs(value, release) ?? START[key];
    if (PLACES.includes(key)) foreign ||= kind === "text" ? !exists(value) : state[key] === START[key];
  }
  if (state.number !== "" && !foreign) foreign = !release.attributes[state.number].numbers;
  const strange = [...parts.keys()].filter((key) => key !== "of" && !(key in KEYS));
  for (const [key, allowed] of Object.entries(CHOICES)) {
    if (allowed.includes(state[key])) continue;
    strange.push(`${key}=${state[key]}`);
    state[key] = START[key];
  }
  if (foreign) for (const key of PLACES) state[key] = START[key];
  return { ...state, foreign, strange };
}

// A block of one column.
class Card {
  constructor(page, attribute) {
    this.page = page;
    this.attribute = attribute;
    this.about = page.release.attributes[attribute];
    this.limit = MOST_SHOWN;
    this.lines = new Map();
    this.drawn = 0; // the page's version that it shows
    const heading = element("h2", { id: `attribute-${attribute}`, tabIndex: -1 }, this.about.name);
    const save = element("button", { type: "button", className: "quiet save", textContent: TEXT.save, ariaLabel: say("saveColumn", { column: this.about.name }) });
    save.addEventListener("click", () => this.offer(save));
    this.head = element("div", { className: "head" }, heading, ...(this.about.set ? [] : [this.severalButton()]), save);
    this.ordered = this.about.binned;
    this.chart = this.ordered ? element("div", { className: "chart", ariaHidden: "true" }) : null;
    this.list = element("ul", { className: "values" });
    this.note = element("p", { className: "soft small" });
    this.more = element("button", { type: "button", className: "all" });
    this.more.addEventListener("click", () => this.grow());
    this.root = element("section", { className: "card", attributes: { "aria-labelledby": heading.id } }, this.head);
    this.among = element("p", { className: "soft small among", hidden: true });
    this.run = element("p", { className: "small run", hidden: true });
    for (const words of [this.about.about, this.about.clamped.says, this.about.left_out]) if (words) this.root.append(element("p", { className: "soft small" }, words));
    const counted = page.release.countedWords([[attribute, []]]);
    if (counted !== page.release.countedWords([])) this.root.append(element("p", { className: "soft small" }, say("bounded", { counted })));
    this.root.append(this.run, this.among);
    if (this.chart) this.root.append(this.chart);
    this.root.append(this.list, this.note, this.more);
    this.root.card = this;
  }

  // Whether a click adds a value to those chosen in this column; so it is where a link has chosen several.
  get isSeveral() {
    return this.several ?? this.page.valuesOf(this.attribute).length > 1;
  }

  severalButton() {
    this.toggle = element("button", { type: "button", className: "quiet", textContent: TEXT.several, ariaLabel: say("severalOf", { column: this.about.name }), title: TEXT.severalHelp });
    this.toggle.addEventListener("click", () => {
      this.several = !this.isSeveral;
      this.update();
    });
    return this.toggle;
  }

  // Of an ordered column, the ends of the values that are chosen.
  showRun() {
    if (!this.toggle) return;
    this.toggle.setAttribute("aria-pressed", this.isSeveral);
    this.run.hidden = !this.isSeveral;
    if (this.run.hidden) return;
    if (!this.run.firstChild) this.run.append(...(this.about.ordered ? this.ends() : [TEXT.severalHelp]));
    if (!this.about.ordered) return;
    const values = this.page.valuesOf(this.attribute);
    const isRun = values.length > 0 && values.at(-1) < this.about.ordered && values.at(-1) - values[0] === values.length - 1;
    const [first, last] = [isRun ? values[0] : 0, isRun ? values.at(-1) : -1];
    this.from.value = first === 0 ? "" : String(first); // open ends
    this.to.value = !isRun || last === this.about.ordered - 1 ? "" : String(last);
  }

  ends() {
    const { release } = this.page;
    const values = release.values(this.attribute).filter((value) => value < this.about.ordered);
    const options = () => [element("option", { value: "" }, "–"), ...values.map((value) => element("option", { value: String(value) }, release.label(this.attribute, value)))];
    for (const end of ["from", "to"]) {
      const words = { from: TEXT.fromOf, to: TEXT.toOf }[end];
      this[end] = element("select", { ariaLabel: words.replace("{column}", () => this.about.name) }, ...options());
      this[end].addEventListener("change", () => this.choose(end, values));
    }
    return [`${TEXT.from} `, this.from, ` ${TEXT.to} `, this.to];
  }

  // The values between both ends; where one is open, to the end of the column.
  choose(changed, values) {
    let [from, to] = [this.from.value === "" ? values[0] : Number(this.from.value), this.to.value === "" ? values.at(-1) : Number(this.to.value)];
    if (from > to) [from, to] = changed === "from" ? [from, from] : [to, to];
    const none = this.from.value === "" && this.to.value === "";
    this.page.choose(this.attribute, none ? [] : values.filter((value) => value >= from && value <= to));
  }

  offer(button) {
    const kinds = ["csv", "svg", "png"].map((kind) =>
      element("button", { type: "button", className: "quiet save", textContent: TEXT[kind], ariaLabel: `${say("saveColumn", { column: this.about.name })}: ${TEXT[kind]}`, onclick: () => saveCard(this, kind) }));
    button.replaceWith(...kinds);
    kinds[0].focus();
  }

  grow() {
    const all = this.page.release.values(this.attribute).length;
    this.limit = this.limit >= all ? MOST_SHOWN : Math.min(all, this.limit === MOST_SHOWN && all <= STEP ? all : this.limit + STEP);
    this.update();
  }

  // The values to show, in order, and how many there are: they stay where they are, whatever is selected, unless sorted by size.
  order() {
    const { state, release, first } = this.page;
    const all = release.values(this.attribute);
    const wanted = state.q && !this.named ? all.filter((value) => this.matches(value)) : all;
    const most = Math.max(this.limit, this.ordered && wanted.length <= FEW ? FEW : 0);
    if (wanted.length <= most && state.order === "natural") return [wanted, wanted.length];
    const bySize = (selected) => {
      const size = new Map(wanted.map((value) => [value, selected.one(this.attribute, value).count.estimate]));
      return [...wanted].sort((x, y) => size.get(y) - size.get(x) || x - y);
    };
    const chosen = (value) => this.page.chosen(this.attribute, value);
    if (state.order === "size") return [bySize(first).filter((value, i) => i < most || chosen(value)), wanted.length];
    const key = `${most} ${this.named ? "" : state.q}`;
    if (this.kept?.key !== key) this.kept = { key, values: new Set(bySize(release.everybody).slice(0, most)) };
    return [wanted.filter((value) => this.kept.values.has(value) || chosen(value)), wanted.length];
  }

  matches(value) {
    this.lower ??= this.about.labels.map((label) => label.toLowerCase());
    return (this.lower[value] ?? this.about.gap ?? TEXT.missing).includes(this.page.state.q.toLowerCase());
  }

  // Whether the search leaves it: by its name, its description, or one of its values.
  found() {
    const words = this.page.state.q.toLowerCase();
    this.named = `${this.about.name} ${this.about.about ?? ""}`.toLowerCase().includes(words);
    return this.named || this.about.labels.some((_, value) => this.matches(value));
  }

  update() {
    const { page, attribute } = this;
    const share = page.state.unit === "share";
    const [values, all] = this.order();
    const shown = page.first.of(attribute, values);
    const others = page.other && new Map(page.other.of(attribute, values).map((number) => [number.value, number]));
    const pick = (number) => (share ? number.share : number.count);
    const reach = ({ estimate, high }) => Math.max(estimate, high ?? 0);
    const apart = others && share ? page.first.difference(attribute, page.other) : {};
    this.differs = !apart.measured || apart.low > 0; // else one of its values may be told apart by chance
    let most = share ? 0 : 1;
    for (const number of shown) most = Math.max(most, reach(pick(number)), others ? reach(pick(others.get(number.value))) : 0);
    this.shown = shown;
    const lines = shown.map((number, i) => {
      if (!this.lines.has(number.value)) this.lines.set(number.value, new Line(this, number.value));
      const line = this.lines.get(number.value);
      const [above, one] = page.state.order === "size" && i > 0 ? [pick(shown[i - 1]), pick(number)] : [{}, {}];
      line.show(number, others?.get(number.value), most || 1, share, above.measured && one.measured && one.high >= above.low);
      return line.root;
    });
    if (lines.length !== this.list.children.length || lines.some((line, i) => this.list.children[i] !== line)) this.list.replaceChildren(...lines);
    if (lines.length && !lines.some((line) => line.firstChild.tabIndex === 0)) lines[0].firstChild.tabIndex = 0;
    if (this.chart) this.chart.replaceChildren(drawChart(this, page.first.of(attribute), page.other && new Map(page.other.of(attribute).map((number) => [number.value, number])), share));
    this.showRun();
    this.among.hidden = !page.first.pairs.some(([own]) => own === attribute) || this.about.set;
    if (!this.among.hidden) this.among.textContent = say(share ? "amongShares" : "among", { selection: named(page, page.first.others(attribute)) });
    const rest = all - shown.length;
    this.more.hidden = rest === 0 && this.limit === MOST_SHOWN;
    this.more.textContent = rest === 0 ? TEXT.fewer : this.limit === MOST_SHOWN && all <= STEP ? say("values", { number: whole.format(all) }) : say("more", { number: whole.format(Math.min(STEP, rest)) });
    const cut = rest > 0 ? say("most", { shown: whole.format(shown.length), number: whole.format(all) }) : "";
    const above = larger(shown, page.first.whole(attribute)) || (others ? larger([...others.values()], page.other.whole(attribute)) : "");
    this.note.textContent = [cut, above].filter(Boolean).join(" ");
    this.note.hidden = !this.note.textContent;
    this.drawn = page.version;
  }
}

// A row of one value.
class Line {
  constructor(card, value) {
    const { page, attribute } = card;
    this.card = card;
    this.page = page;
    this.key = [attribute, value];
    this.estimate = element("span", { className: "bar first" });
    this.reach = element("span", { className: "reach" });
    this.track = element("span", { className: "track", ariaHidden: "true" }, this.estimate, this.reach);
    this.numbers = element("span", { className: "numbers" });
    this.first = element("span");
    this.hint = element("span", { className: "visually-hidden" });
    this.weak = element("span", { className: "weak" });
    this.numbers.append(this.first, this.hint, this.weak);
    this.button = element("button", { type: "button", className: "value", tabIndex: -1, data: { key: `${attribute}-${value}` } });
    this.button.append(element("span", { className: "label" }, page.release.label(attribute, value)), this.numbers, this.track);
    this.button.addEventListener("click", (event) => page.toggle(attribute, value, event));
    this.root = element("li", {}, this.button);
  }

  show(number, other, most, share, tied) {
    const one = share ? number.share : number.count;
    const { state } = this.page;
    this.first.textContent = inWords(one, share);
    this.first.className = one.measured ? "counted" : "estimated";
    this.hint.textContent = one.measured || one.unknown ? "" : `, ${TEXT.screenRecords}`;
    this.button.setAttribute("aria-pressed", this.page.holds(state.edit, ...this.key));
    this.button.classList.toggle("in-a", this.page.holds("a", ...this.key));
    this.button.classList.toggle("in-b", state.compare === "second" && this.page.holds("b", ...this.key));
    place(this.estimate, 0, one.estimate, most);
    this.estimate.classList.toggle("soft-bar", !one.measured);
    this.reach.hidden = !one.measured;
    if (one.measured) place(this.reach, one.low, one.high, most);
    const weak = cautionOf(number, share);
    this.weak.textContent = [weak, share ? allButWords(one) : "", tied ? TEXT.tied : ""].filter(Boolean).join("; ");
    this.compared({ ...one, weak }, other && { ...(share ? other.share : other.count), weak: cautionOf(other, share) }, most, share);
    this.extra("sources", state.sources && this.sources(number), this.button);
  }

  compared(one, other, most, share) {
    if (!other) {
      this.second?.remove();
      this.secondReach?.remove();
      this.extra("second", "", this.numbers);
      this.extra("differs", "", this.numbers);
      this.track.classList.remove("two");
      this.second = null;
      return;
    }
    if (!this.second) {
      this.second = element("span", { className: "bar second" });
      this.secondReach = element("span", { className: "reach second" });
      this.track.append(this.second, this.secondReach);
      this.track.classList.add("two");
    }
    place(this.second, 0, other.estimate, most);
    this.secondReach.hidden = !other.measured;
    if (other.measured) place(this.secondReach, other.low, other.high, most);
    const whose = this.page.state.compare === "all" ? TEXT.all : TEXT.b;
    this.extra("second", `${whose}: ${inWords(other, share)}${other.weak && `, ${other.weak}`}`, this.numbers);
    const sure = share && this.card.differs && [one, other].every(({ measured, weak }) => measured && !weak);
    const apart = sure && (one.low > other.high ? "higher" : one.high < other.low ? "lower" : "");
    this.extra("differs", apart && say(apart, { whose }), this.numbers);
    if (apart) this.differsPart.title = TEXT.keyApart;
  }

  sources({ count }) {
    const measured = count.measured ? say("measured", { range: inWords(count, false) }) : this.page.release.tuples ? TEXT.notReleased : TEXT.notMeasured;
    return `${measured} · ${say("fromRecords", { number: whole.format(count.made) })}`;
  }

  extra(className, text, parent) {
    const there = this[`${className}Part`];
    if (!text) {
      if (there) there.remove();
      this[`${className}Part`] = null;
    } else if (there) there.textContent = text;
    else parent.append((this[`${className}Part`] = element("span", { className }, text)));
  }
}

function place(bar, from, to, most) {
  const [start, end] = [from, to].map((x) => Math.min(100, Math.max(0, (100 * x) / most)));
  bar.style.left = `${start}%`;
  bar.style.width = `${end - start}%`;
}

class Page {
  constructor(release) {
    this.release = release;
    release.fingerprint = fingerprint(release);
    this.version = 0;
    this.cache = new Map();
    this.cards = release.attributes.map((_, attribute) => new Card(this, attribute));
    this.near = new Set();
    byId("attributes").replaceChildren(...this.cards.map((card) => card.root));
    this.watch = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "300px" });
    for (const card of this.cards) this.watch.observe(card.root);
    this.pair = new Pair(this);
    this.average = new Average(this);
    byId("guide").open = !location.hash;
    this.connect();
    this.read();
  }

  connect() {
    for (const name of ["unit", "order", "compare", "edit"])
      for (const input of document.getElementsByName(name)) input.addEventListener("change", () => this.change({ [name]: input.value }));
    byId("sources").addEventListener("change", (event) => this.change({ sources: event.target.checked ? "1" : "" }));
    byId("search").addEventListener("input", (event) => this.change({ q: event.target.value.trim() }));
    byId("clear").addEventListener("click", () => this.change({ a: [], b: [] }));
    byId("link").addEventListener("click", () => this.copyLink());
    byId("save-all").addEventListener("click", () => saveAll(this));
    byId("example").addEventListener("click", () => this.example());
    addEventListener("hashchange", () => this.read());
    addEventListener("keydown", (event) => this.key(event));
    byId("attributes").addEventListener("focusin", (event) => this.rove(event.target));
  }

  read() {
    const { at, foreign, strange, ...state } = fromHash(location.hash, this.release);
    this.state = state;
    byId("said").textContent = foreign ? TEXT.otherLink : strange.length ? say("strangeLink", { parts: strange.join(", ") }) : "";
    this.show();
    if (at !== "") this.goTo(Number(at));
  }

  change(changes) {
    const [state, before] = [{ ...this.state, ...changes }, this.selection()];
    if (changes.compare && changes.compare !== "none" && this.state.compare === "none") state.unit = "share";
    if (state.compare !== "second") state.edit = "a";
    else if (changes.compare) state.edit = "b"; // what a reader chooses next is the other one
    this.state = state;
    byId("said").textContent = "";
    if (this.selection() !== before) this.address("", "pushState"); // the browser's Back takes it back
    this.show();
  }

  selection() {
    return [this.state.a.join(";"), this.state.b.join(";")].join(" ");
  }

  // The address keeps the state; a link that is copied also the first column in sight, once a reader has gone down to one.
  address(at = "", how = "replaceState") {
    const hash = toHash({ ...this.state, at }, this.release);
    history[how](null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  // The values that are chosen of a column in the selection that clicks change, in order.
  valuesOf(attribute) {
    return this.state[this.state.edit].filter(([a]) => a === attribute).map(([, value]) => value).sort((x, y) => x - y);
  }

  // Chooses these values of a column, in the place of others.
  choose(attribute, values) {
    const which = this.state.edit;
    const own = this.state[which];
    const place = own.findIndex(([a]) => a === attribute);
    const others = own.filter(([a]) => a !== attribute);
    const before = place < 0 ? others.length : own.slice(0, place).filter(([a]) => a !== attribute).length;
    this.change({ [which]: [...others.slice(0, before), ...values.map((value) => [attribute, value]), ...others.slice(before)] });
  }

  // A click takes a value in the place of the others of its column; it adds or removes one where several are wanted, of a set, or
  // with Control; with Shift it adds all from the last chosen one on.
  toggle(attribute, value, { shiftKey = false, ctrlKey = false, metaKey = false } = {}) {
    const values = this.valuesOf(attribute);
    const { set } = this.release.attributes[attribute];
    const { shown, isSeveral } = this.cards[attribute];
    if (shiftKey && !set && values.length) {
      const order = shown.map((number) => number.value);
      const ends = [order.indexOf(this.last?.[0] === attribute ? this.last[1] : values.at(-1)), order.indexOf(value)].sort((x, y) => x - y);
      return this.choose(attribute, [...new Set([...values, ...order.slice(Math.max(ends[0], 0), ends[1] + 1)])].sort((x, y) => x - y));
    }
    this.last = [attribute, value];
    const adds = set || isSeveral || ctrlKey || metaKey;
    const others = adds ? values.filter((v) => v !== value) : [];
    const isHeld = values.includes(value) && (adds || values.length === 1);
    this.choose(attribute, isHeld ? others : set ? [...others, value] : [...others, value].sort((x, y) => x - y));
  }

  holds(which, attribute, value) {
    return this.state[which].some(([a, v]) => a === attribute && v === value);
  }

  chosen(attribute, value) {
    return this.holds("a", attribute, value) || (this.state.compare === "second" && this.holds("b", attribute, value));
  }

  // The numbers of a selection, kept for a few of the last ones.
  selected(pairs) {
    if (pairs.length === 0) return this.release.everybody;
    const key = pairs.join(";");
    const found = this.cache.get(key) ?? new Selected(this.release, pairs);
    this.cache.delete(key);
    this.cache.set(key, found);
    if (this.cache.size > 8) this.cache.delete(this.cache.keys().next().value);
    return found;
  }

  show() {
    const { state } = this;
    this.version++;
    this.first = this.selected(state.a);
    this.other = { none: null, all: this.release.everybody, second: this.selected(state.b) }[state.compare];
    document.body.dataset.compare = state.compare;
    this.controls();
    this.status();
    byId("attributes").setAttribute("aria-busy", "true");
    let left = 0;
    for (const card of this.cards) {
      card.root.hidden = state.q !== "" && !card.found();
      left += !card.root.hidden;
    }
    byId("found").textContent = state.q === "" ? "" : left === 0 ? TEXT.nothing : say(left === 1 ? "foundOne" : "found", { number: left });
    const near = this.near.size ? this.near : new Set(this.cards.slice(0, 12));
    for (const card of near) if (!card.root.hidden) card.update();
    this.rest();
  }

  // Brings the other blocks up to date when there is time.
  rest() {
    const { version } = this;
    later((deadline) => {
      if (version !== this.version) return;
      const waiting = this.cards.filter((card) => !card.root.hidden && card.drawn !== version);
      for (const card of waiting) {
        card.update(); // one at least
        if (deadline.timeRemaining() < 2) return this.rest();
      }
      this.related();
      this.pair.show();
      this.average.show();
      this.address();
      byId("attributes").setAttribute("aria-busy", "false");
    });
  }

  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.near.add(target.card);
      else this.near.delete(target.card);
      if (isIntersecting && target.card.drawn !== this.version && !target.hidden) target.card.update();
    }
  }

  controls() {
    for (const name of ["unit", "order", "compare", "edit"])
      for (const input of document.getElementsByName(name)) input.checked = input.value === this.state[name];
    byId("sources").checked = this.state.sources !== "";
    if (byId("search").value.trim() !== this.state.q) byId("search").value = this.state.q;
    byId("editing").hidden = this.state.compare !== "second";
    byId("key-second").hidden = this.state.compare === "none";
    byId("clear").disabled = this.state.a.length + this.state.b.length === 0;
  }

  status() {
    const whose = { a: this.first, b: this.other };
    for (const which of ["a", "b"]) {
      const shown = which === "a" || this.state.compare !== "none";
      byId(`line-${which}`).hidden = !shown;
      if (!shown) continue;
      const chips = whose[which].conditions.map(([attribute, values]) => {
        const text = `${this.release.attributes[attribute].name}: ${this.release.words(attribute, values)}`;
        const remove = () => this.change({ [which]: this.state[which].filter(([a, v]) => a !== attribute || !values.includes(v)) });
        return element("button", { type: "button", className: `chip ${which}`, onclick: remove, ariaLabel: say("remove", { value: text }) }, `${text} `, element("span", { ariaHidden: "true" }, "×"));
      });
      byId(`selection-${which}`).replaceChildren(...(chips.length ? chips : [TEXT.everybody]));
      const { conditions } = whose[which];
      const counted = [this.release.countedWords(conditions), this.release.clampedWords(conditions)].filter(Boolean).join("; ");
      byId(`counted-${which}`).textContent = counted && ` (${counted})`;
      const total = whose[which].total();
      byId(`total-${which}`).textContent = [inWords(total, false), caution(total)].filter(Boolean).join(", ");
    }
  }

  related() {
    const place = byId("related");
    place.hidden = this.state.a.length === 0;
    if (place.hidden) return;
    const second = this.state.compare === "second" && this.state.b.length > 0;
    byId("related-whom").textContent = second ? TEXT.relatedOther : TEXT.related;
    const whom = second ? this.other : this.release.everybody;
    const found = this.first.related(6, whom);
    for (const [id, known] of [["related-list", true], ["related-made", false]]) {
      const chips = found.filter(({ measured }) => Boolean(measured) === known).map((one) => {
        const words = inWords({ ...one, estimate: one.difference }, true);
        const button = element("button", { type: "button", className: "chip" }, `${this.release.attributes[one.attribute].name} `, element("b", {}, words));
        button.addEventListener("click", () => this.goTo(one.attribute));
        return button;
      });
      byId(id).parentElement.hidden = !known && chips.length === 0;
      byId(id).replaceChildren(...(chips.length ? chips : [this.together(whom) ? TEXT.relatedNone : TEXT.relatedApart]));
    }
  }

  // Whether some column that was not chosen was measured together with what was.
  together(whom) {
    const both = [this.first, whom];
    const measured = (attribute) => both.every((selected) => selected.of(attribute).some(({ count }) => count.measured));
    const chosen = new Set(both.flatMap(({ pairs }) => pairs.map(([attribute]) => attribute)));
    return this.release.attributes.some((_, attribute) => !chosen.has(attribute) && measured(attribute));
  }

  goTo(attribute) {
    if (this.cards[attribute].root.hidden) this.change({ q: "" });
    const heading = byId(`attribute-${attribute}`);
    heading.scrollIntoView({ block: "center" });
    heading.focus({ preventScroll: true });
  }

  // The value, the most frequent one of its column that says something, whose records differ most from everybody in another column, without those
  // columns that nearly follow from each other.
  example() {
    let best = { difference: -1 };
    for (let attribute = 0; attribute < Math.min(30, this.cards.length); attribute++) {
      const { labels } = this.release.attributes[attribute];
      const made = this.release.everybody.made(attribute).slice(0, -1).map((number, v) => (NO_VALUE.test(labels[v]) ? -1 : number));
      const value = made.indexOf(Math.max(...made));
      if (!(made[value] > 0)) continue;
      const first = this.selected([[attribute, value]]).related(this.cards.length).find(({ difference }) => difference < CLEAR);
      if (first && first.difference > best.difference) best = { ...first, pair: [attribute, value] };
    }
    if (!best.pair) return;
    this.change({ a: [best.pair], b: [], compare: "all", unit: "share", q: "" });
    const [attribute, value] = best.pair;
    const text = `${this.release.attributes[attribute].name}: ${this.release.label(attribute, value)}`;
    byId("said").textContent = say("exampleSays", { value: text, column: this.release.attributes[best.attribute].name });
    this.goTo(best.attribute);
  }

  async copyLink() {
    const inSight = ({ root }) => !root.hidden && root.getBoundingClientRect().bottom > innerHeight / 4;
    const at = byId("attributes").getBoundingClientRect().top < 0 ? this.cards.findIndex(inSight) : -1;
    this.address(at < 0 ? "" : String(at));
    try {
      await navigator.clipboard.writeText(location.href);
      byId("said").textContent = TEXT.linked;
    } catch {
      byId("said").textContent = TEXT.linkSelf;
    }
  }

  key(event) {
    const writing = event.target.matches("input[type=search], select");
    if (event.key === "/" && !writing) {
      event.preventDefault();
      byId("search").focus();
    } else if (event.key === "Escape") {
      if (writing) this.change({ q: "" });
      else this.change({ [this.state.edit]: [] });
    } else if (["ArrowUp", "ArrowDown", "Home", "End"].includes(event.key) && event.target.classList.contains("value")) {
      event.preventDefault();
      const all = [...event.target.closest("ul").querySelectorAll(".value")];
      const now = all.indexOf(event.target);
      const next = { ArrowUp: now - 1, ArrowDown: now + 1, Home: 0, End: all.length - 1 }[event.key];
      all[next]?.focus();
    }
  }

  // One stop of the Tab key for each list of values.
  rove(target) {
    if (!target.classList.contains("value")) return;
    for (const other of target.closest("ul").querySelectorAll('.value[tabindex="0"]')) other.tabIndex = -1;
    target.tabIndex = 0;
  }
}

// The table of two columns, coloured by its numbers.
class Pair {
  constructor(page) {
    this.page = page;
    for (const which of ["rows", "columns"]) {
      const select = byId(`pair-${which}`);
      select.append(element("option", { value: "" }, "–"), ...page.release.attributes.map((about, i) => element("option", { value: String(i) }, about.name)));
      select.addEventListener("change", () => page.change({ [which]: select.value }));
    }
    for (const kind of ["csv", "svg", "png"]) byId(`pair-${kind}`).addEventListener("click", () => this.content && savePair(this, kind));
  }

  show() {
    const { page } = this;
    const { rows, columns, unit } = page.state;
    byId("pair-rows").value = rows;
    byId("pair-columns").value = columns;
    this.content = null;
    const ready = rows !== "" && columns !== "" && rows !== columns;
    byId("pair-view").hidden = !ready;
    if (!ready) return;
    byId("pair").open = true;
    const share = unit === "share";
    const everybody = page.release.everybody;
    const [first, second] = [rows, columns].map((a) => {
      const all = everybody.of(Number(a));
      const kept = new Set([...all].sort((x, y) => y.count.estimate - x.count.estimate).slice(0, PAIR).map(({ value }) => value));
      return [...kept].sort((x, y) => x - y);
    });
    const table = page.first.table(Number(rows), Number(columns)).filter(({ value }) => first.includes(value));
    const kept = table.map((line) => ({ ...line, numbers: line.numbers.filter(({ value }) => second.includes(value)) }));
    this.content = { rows: Number(rows), columns: Number(columns), share, lines: kept, values: second };
    const pick = ({ count, share: part }) => (share ? part : count);
    const most = Math.max(...kept.flatMap(({ numbers }) => numbers.map((number) => pick(number).estimate)), share ? 0.01 : 1);
    this.content.most = most;
    const { label, attributes } = { label: page.release.label.bind(page.release), attributes: page.release.attributes };
    const caption = say("pairOf", { rows: attributes[rows].name, columns: attributes[columns].name });
    const head = element("tr", {}, element("td"), ...second.map((value) => element("th", { scope: "col" }, label(Number(columns), value))));
    const body = kept.map(({ value, numbers }) =>
      element("tr", {}, element("th", { scope: "row" }, label(Number(rows), value)), ...numbers.map((number) => {
        const one = pick(number);
        const weak = cautionOf(number, share);
        const title = [inWords(one, share), weak].filter(Boolean).join(", ");
        const cell = element("td", { title, className: `${one.measured ? "counted" : "estimated"} ${weak && (weak === TEXT.zero ? "zero" : "small-count")}` });
        cell.append((one.unknown ? "–" : (one.measured ? "" : "≈ ") + (share ? percent : whole).format(one.estimate)));
        if (one.measured) cell.append(element("span", { className: "ends" }, `${(share ? percent : whole).format(one.low)} – ${(share ? percent : whole).format(one.high)}`));
        cell.style.setProperty("--heat", (Math.max(0, one.estimate) / most).toFixed(3));
        return cell;
      })));
    byId("pair-table").replaceChildren(element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
    const cut = Math.max(page.release.values(Number(rows)).length, page.release.values(Number(columns)).length) > PAIR;
    byId("pair-note").textContent = [TEXT.pairHelp, share ? TEXT.pairShare : "", cut ? say("pairCut", { shown: PAIR }) : "", kept.map((line) => larger(line.numbers, line.whole)).find(Boolean)].filter(Boolean).join(" ");
  }
}

// The mean or the median of a column of numbers by the values of another column.
class Average {
  constructor(page) {
    this.page = page;
    const { attributes } = page.release;
    const option = (about, i) => element("option", { value: String(i) }, about.name);
    const places = range(attributes.length);
    const withNumbers = places.filter((i) => attributes[i].numbers);
    byId("average").hidden = withNumbers.length === 0;
    byId("average-number").append(element("option", { value: "" }, "–"), ...withNumbers.map((i) => option(attributes[i], i)));
    byId("average-by").append(element("option", { value: "" }, TEXT.averageAll), ...places.map((i) => option(attributes[i], i)));
    for (const [id, key] of [["number", "number"], ["by", "by"], ["kind", "average"]])
      byId(`average-${id}`).addEventListener("change", (event) => page.change({ [key]: event.target.value }));
    byId("average-csv").addEventListener("click", () => this.content && saveAverages(this));
  }

  // Lines of a value and its records, of each selection.
  lines() {
    const { page } = this;
    const { number, by, average } = page.state;
    const q = average === "median" ? 0.5 : undefined;
    const groups = (selected) => (by === "" || by === number ? [[null, selected]] : selected.divided(Number(by)));
    const selections = [page.first, page.other].filter(Boolean).map(groups);
    return selections[0].map(([value], i) => ({ value, answers: selections.map((own) => ({ ...own[i][1].average(Number(number), q), conditions: own[i][1].conditions })) }));
  }

  show() {
    const { page } = this;
    const { number, by, average, compare } = page.state;
    byId("average-number").value = number;
    byId("average-by").value = by;
    byId("average-kind").value = average;
    this.content = null;
    byId("average-view").hidden = number === "";
    if (number === "") return;
    byId("average").open = true;
    const { release } = page;
    const about = release.attributes[number];
    const limits = about.numbers.filter(Boolean).flat().filter((end) => end !== null);
    const isValue = average === "median" && about.numbers.every((ends) => !ends || ends[0] === ends[1]); // and no place in a bin
    this.format = isValue ? new Intl.NumberFormat("en", { maximumFractionDigits: 8 }) : formatOf([Math.min(...limits), Math.max(...limits)]);
    const lines = this.lines();
    this.content = { lines, by, number, average };
    const ends = lines.flatMap(({ answers }) => answers).filter(({ unknown }) => !unknown).flatMap(({ estimate, low, high }) => [estimate, low, high]).filter(Number.isFinite);
    this.ends = [Math.min(...ends), Math.max(...ends)];
    const whose = compare === "none" ? [""] : [TEXT.a, compare === "all" ? TEXT.all : TEXT.b];
    const byName = by === "" || by === number ? "" : release.attributes[by].name;
    const title = say(byName ? "averageTitle" : "averageOne", { average: TEXT[average], number: about.name, by: byName });
    const top = element("tr", {}, element("th", { scope: "col" }, byName), ...whose.map((name) => element("th", { scope: "col" }, [TEXT[average], name].filter(Boolean).join(", "))));
    const body = lines.map(({ value, answers }) => element("tr", {}, element("th", { scope: "row" }, value === null ? TEXT.averageAll : release.label(Number(by), value)), ...answers.map((answer) => this.cell(answer))));
    byId("average-table").replaceChildren(element("caption", {}, title), element("thead", {}, top), element("tbody", {}, ...body));
    const counted = release.countedWords([...page.first.conditions, [Number(number), []], ...(byName ? [[Number(by), []]] : [])]);
    const aside = page.first.pairs.some(([attribute]) => byName && attribute === Number(by)) ? say("averageAside", { column: byName }) : "";
    const sources = release.tuples ? TEXT.averageTuples : TEXT.averageHelp;
    const asked = byName ? [...page.first.conditions, [Number(by), release.values(Number(by))]] : page.first.conditions;
    const chosen = release.clampedWords(asked.filter(([attribute]) => attribute !== Number(number)));
    byId("average-note").textContent = [sources, about.clamped.says, chosen && say("averageChosen", { words: chosen }), aside, counted && `${say("averageCounted", { counted })}`, about.left_out && say("averageLeft", { words: about.left_out })].filter(Boolean).join(" ");
  }

  // A cell: the number in words, over a line with its range.
  cell(answer) {
    const words = averageInWords(answer, this.format);
    const cell = element("td", { className: answer.unknown ? "" : answer.measured ? "counted" : "estimated" }, element("span", {}, words));
    if (answer.unknown) return cell;
    if (!answer.measured) cell.append(element("span", { className: "visually-hidden" }, `, ${TEXT.screenRecords}`));
    const [least, most] = this.ends;
    const [low, high] = answer.measured ? [Math.max(answer.low, least), Math.min(answer.high, most)] : [answer.estimate, answer.estimate];
    const track = element("span", { className: "track", ariaHidden: "true" });
    const span = most - least || 1;
    if (answer.measured) {
      const reach = element("span", { className: "reach" });
      place(reach, low - least, high - least, span);
      track.append(reach);
    }
    if (Number.isFinite(answer.estimate)) {
      const dot = element("span", { className: answer.measured ? "dot" : "dot soft-bar" });
      dot.style.left = `${(100 * (answer.estimate - least)) / span}%`;
      track.append(dot);
    }
    cell.append(track);
    return cell;
  }
}
