// What a release says about a selection of values: estimates with intervals where they were measured, and the synthetic
// records where they were not. A selection is a list of [attribute, value] pairs; of a set records hold all of its values, of
// another column one of them. Its conditions have the chosen values of each column, [attribute, values].

const TYPES = {
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  float32: Float32Array, float64: Float64Array,
};

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

// Released k-tuples: each count as it was measured, with its interval.
class Tuples {
  constructor({ header, arrays }) {
    this.arrays = arrays;
    this.count = header.count;
    this.bounds = header.bounds;
    this.excluded = header.excluded;
    this.leftOut = header.left_out;
    this.sizes = header.attributes.map(({ labels }) => labels.length);
    this.sets = header.sets.map((sets, i) => {
      const total = arrays[`counts-${i + 1}`].length;
      const ends = sets.map((_, s) => (s + 1 < sets.length ? sets[s + 1][1] : total));
      return new Map(sets.map(([columns, start], s) => [columns.join(), [start, ends[s]]]));
    });
  }

  // The count of sorted pairs, or null; 0, exactly, of what rules allow no record to have.
  find(pairs) {
    if (this.holds(this.excluded, pairs)) return this.number(0, 0, 0, 0, 0);
    const length = pairs.length;
    if (length === 0) return this.number(...this.count);
    if (length > this.sets.length) return null;
    const range = this.sets[length - 1].get(pairs.map((pair) => pair[0]).join());
    if (range === undefined) return null;
    const values = this.arrays[`values-${length}`];
    let [low, high] = range;
    while (low < high) {
      const middle = (low + high) >> 1;
      let order = 0;
      for (let i = 0; i < length && order === 0; i++) order = values[middle * length + i] - pairs[i][1];
      if (order === 0) return this.number(...["counts", "low", "high", "below", "above"].map((name) => this.arrays[`${name}-${length}`][middle]));
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return null;
  }

  // Whether sorted pairs have all of one of some combinations.
  holds(combinations, pairs) {
    const held = ([attribute, codes]) => pairs.some(([a, value]) => a === attribute && codes.includes(value));
    return combinations.some((combination) => combination.every(held));
  }

  // The most that sorted pairs can have which were not published: what the threshold of their length leaves open, or that of a part
  // where one was not published, as they were not drawn then. Missing values, two values of a set and what `leftOut` has are never counted.
  most(pairs) {
    const counted = pairs.every(([attribute, value], i) => value < this.sizes[attribute] && attribute !== pairs[i - 1]?.[0]);
    if (!counted || pairs.length > this.bounds.length || this.holds(this.leftOut, pairs)) return Infinity;
    const parts = pairs.length > 1 ? pairs.map((_, left) => pairs.filter((_, i) => i !== left)) : [];
    const open = parts.filter((part) => this.find(part) === null);
    return open.length ? Math.min(...open.map((part) => this.most(part))) : this.bounds[pairs.length - 1];
  }

  number(estimate, low, high, below, above) {
    return { estimate, low, high, below, above };
  }

  // The number of records, for the scale of the synthetic ones.
  get total() {
    return this.count[0];
  }

  // Several values of a column were not counted together.
  sum() {
    return null;
  }

  share(part, whole) {
    return part.measured && whole.measured ? between(part, whole) : undefined;
  }

  saysNothing() {
    return false;
  }

  average() {
    return null;
  }
}

// A share from the ends of two counts that hold together (below, above), as `_share_between` of `query` has it where how both
// vary together is not known; null where the number of records may be nothing.
function between(part, whole) {
  if (whole.below <= 0 || whole.estimate <= 0) return null;
  const [low, high] = [Math.min(part.below / whole.above, 1), Math.min(part.above / whole.below, 1)];
  return { estimate: Math.min(Math.max(part.estimate / whole.estimate, low), high), low, high, merged: part.merged || whole.merged };
}

// Measured tables: estimates of each cell from all of them, and of sums of cells.
class Tables {
  constructor({ header, arrays }) {
    this.header = header;
    this.arrays = arrays;
    this.sizes = header.sizes;
    this.tables = new Map(header.tables.map(([columns, start]) => [columns.join(), start]));
  }

  // What sums are computed from, once they are asked for.
  get squares() {
    this.solved ??= new Squares(this.header, this.arrays);
    return this.solved;
  }

  get total() {
    return this.header.squares.total[0];
  }

  most() {
    return Infinity;
  }

  excluded(conditions) {
    if (this.header.rules.length === 0 || conditions.length === 0 || !this.counted(conditions)) return false;
    return !this.squares.rules.allow(new Map(conditions));
  }

  // Whether tables have all of these values: synthetic records may have gaps that were not counted.
  counted(conditions) {
    return conditions.every(([attribute, values]) => values.every((value) => value < this.sizes[attribute]));
  }

  // The estimate of sorted pairs, or null; 0, exactly, of what rules allow no record to have.
  find(pairs) {
    if (this.excluded(pairs.map(([attribute, value]) => [attribute, [value]]))) return { estimate: 0, low: 0, high: 0, below: 0, above: 0, variance: 0 };
    const start = this.tables.get(pairs.map((pair) => pair[0]).join());
    if (start === undefined) return null;
    const length = pairs.length;
    let cell = 0;
    for (const [attribute, value] of pairs) {
      if (value >= this.sizes[attribute]) return null;
      cell = cell * this.sizes[attribute] + value;
    }
    const of = (name) => this.arrays[`${name}-${length}`][start + cell];
    const [estimate, variance] = [of("estimate"), of("variance")];
    const lowered = this.lowered(pairs.map(([attribute, value]) => [attribute, [value]]));
    const [low, below] = ["low", "below"].map((name) => (lowered ? Math.max(estimate - of(name) - lowered, 0) : estimate - of(name)));
    const [high, above] = ["high", "above"].map((name) => estimate + of(name));
    // with other values: between two ends, and how it varies is not known; what a rule excludes is 0, exactly
    const merged = variance === 0 && length > 0 && high > 0;
    return { estimate, low, high, below, above, merged, variance: merged ? undefined : variance };
  }

  // The count of records that have one of several values, or null.
  sum(conditions) {
    if (this.excluded(conditions)) return { estimate: 0, low: 0, high: 0, variance: 0 };
    if (!this.counted(conditions)) return null;
    return this.counts(conditions, 1);
  }

  // A count with the ends of one of k intervals that hold together.
  counts(conditions, k) {
    const count = this.squares.count(queryOf(conditions), k);
    const lowered = this.lowered(conditions);
    return count && lowered ? { ...count, low: Math.max(count.low - lowered, 0) } : count;
  }

  // How many records lower a low end is that is of cells not as declared: nobody asks for them where few are.
  lowered(conditions) {
    const { attributes } = this.header;
    const alone = ([attribute, values]) => values.length === 1 && values[0] === this.sizes[attribute] - 1;
    return Math.max(0, ...conditions.filter(alone).map(([attribute]) => attributes[attribute].lowered));
  }

  // All ratios that noise allows, as `marginweave query --share` gives them; null where that bounds nothing, and undefined where
  // neither tables nor rules have it.
  share(part, whole) {
    if (!this.counted(part.conditions)) return undefined;
    const [records, group] = [part, whole].map(({ conditions }) => queryOf(conditions));
    const share = this.squares.share(records, group, this.lowered(whole.conditions) ? 0 : this.lowered(part.conditions));
    if (share !== undefined || !part.measured || !whole.measured) return share;
    const ends = between(this.joint(part), this.joint(whole));
    return ends && { ...ends, but: this.squares.allBut(records, group) };
  }

  // A count with the ends of one of two intervals that hold together. A count between bounds is the likely one as far as these
  // ends allow it, so it goes with them.
  joint(count) {
    if (count.below !== undefined && !count.merged) return count;
    const { estimate, low, high } = this.counts(count.conditions, 2);
    return { ...count, estimate, below: low, above: high };
  }

  saysNothing(conditions, count) {
    if (count.high - count.low <= SMALL * this.total) return false;
    return this.squares.saysNothing(queryOf(conditions), count);
  }

  // The mean, or a quantile, of the numbers of a column of records that meet conditions; null where it was not measured.
  average(conditions, attribute, q) {
    if (!this.counted(conditions)) return null;
    const { numbers } = this.header.attributes[attribute];
    return new Numbers(this.squares, attribute, numbers).answer(queryOf(conditions), q);
  }
}

const LISTED = 4; // values of a column that are named one by one

class Release {
  constructor(data) {
    const { header, arrays } = data;
    this.arrays = arrays;
    this.about = header;
    this.attributes = header.attributes;
    this.records = header.records;
    this.counts = header.tables ? new Tables(data) : new Tuples(data);
    this.tuples = !header.tables;
    this.scale = header.records ? this.counts.total / header.records : 0;
    this.everybody = new Selected(this, []);
  }

  // The chosen values of each column, in the order in which columns were chosen; of a set one by one.
  conditions(pairs) {
    const conditions = [];
    for (const [attribute, value] of pairs) {
      const values = this.attributes[attribute].set ? undefined : conditions.find(([a]) => a === attribute)?.[1];
      if (values) values.push(value);
      else conditions.push([attribute, [value]]);
    }
    for (const [, values] of conditions) values.sort((x, y) => x - y);
    return conditions;
  }

  // A count of what meets conditions: as it was measured, or of so many synthetic records, and at most what is possible.
  number(conditions, made) {
    const sorted = [...conditions].sort(([a], [b]) => a - b);
    const single = sorted.every(([, values]) => values.length === 1);
    const pairs = single ? sorted.map(([attribute, [value]]) => [attribute, value]) : null;
    const [count, scaled] = [single ? this.counts.find(pairs) : this.counts.sum(sorted), made * this.scale];
    if (count !== null && Number.isNaN(count.low)) return { estimate: count.estimate, unsure: true, made: scaled, conditions: sorted };
    if (count !== null) return { ...count, nothing: this.counts.saysNothing(sorted, count), measured: true, made: scaled, conditions: sorted };
    const most = single ? this.counts.most(pairs) : Infinity;
    return { estimate: Math.min(scaled, most), most: most < Infinity ? most : undefined, made: scaled, conditions: sorted };
  }

  // Words for what counts of these conditions are of, where that is not the whole table as it is; else an empty text.
  countedWords(conditions) {
    const { all, columns, cut, imputed, filled, repaired, mended, and, resized, lengths, combinations } = this.about.counted;
    const asked = new Set(conditions.map(([attribute]) => columns[attribute]));
    const among = (changed, words) => {
      const names = changed.filter((column) => asked.has(column));
      return names.length ? words.replace("{columns}", () => names.join(", ")) : "";
    };
    const parts = [all, ...Object.entries(cut).filter(([column]) => asked.has(column)).map(([, words]) => words), among(imputed, filled), among(repaired, mended)];
    const both = (words) => words.filter(Boolean).reduce((first, second) => (first ? and.replace("{first}", () => first).replace("{second}", () => second) : second), "");
    const part = both(parts);
    const table = resized ? (part ? resized[1].replace("{part}", () => part) : resized[0]) : part;
    return both([table, lengths.includes(conditions.length) ? combinations : ""]);
  }

  // What values beyond bounds count as, where it decides who is chosen: the bin at a bound has those beyond it, unless it ends a run
  // that has no end there, such as 60 and more.
  clampedWords(conditions) {
    const words = conditions.flatMap(([attribute, values]) => {
      const { clamped, ordered, numbers } = this.attributes[attribute];
      const isRun = values.length > 1 && values.at(-1) < ordered && values.at(-1) - values[0] === values.length - 1 && numbers?.[values[0]];
      return clamped.ends.filter(([code]) => code === null || (values.includes(code) && !isRun)).map(([, says]) => says);
    });
    return words.join("; ");
  }

  // The code of the last gap of an attribute: of cells that are not as declared where these were counted.
  last(attribute) {
    const { labels, gaps } = this.attributes[attribute];
    return labels.length + gaps - 1;
  }

  // What can be chosen of an attribute: its values, and its gaps where these were measured or some record has them; not where
  // noise may be all that was counted of cells that are not as declared.
  values(attribute) {
    const about = this.attributes[attribute];
    if (about.shown === undefined) {
      const size = about.labels.length;
      const found = Array.from({ length: about.gaps }, (_, i) => size + i).filter((value) => !(about.undeclared === "noise" && value === this.last(attribute)));
      const counted = (value) => this.everybody.made(attribute)[value] > 0 || (this.counts.sizes?.[attribute] ?? 0) > value;
      about.shown = [...Array(size).keys(), ...(about.set ? [] : found.filter(counted))];
    }
    return about.shown;
  }

  label(attribute, value) {
    const { labels, undeclared, gap } = this.attributes[attribute];
    if (value >= labels.length) return undeclared === "found" && value === this.last(attribute) ? TEXT.undeclared : gap ?? TEXT.missing;
    return labels[value] === "" ? TEXT.empty : labels[value];
  }

  // Some values of an attribute in words: a run of ordered ones by its ends.
  words(attribute, values) {
    const { ordered, numbers } = this.attributes[attribute];
    const [first, last] = [values[0], values.at(-1)];
    if (values.length === 1) return this.label(attribute, first);
    if (last < ordered && last - first === values.length - 1) {
      if (!numbers?.[first] || !numbers[last]) return say("fromTo", { low: this.label(attribute, first), high: this.label(attribute, last) });
      const [low, high] = [numbers[first][0], numbers[last][1]];
      if (first === 0 || low === null) return say("orLess", { high });
      return last < ordered - 1 && high !== null ? say("fromTo", { low, high }) : say("andMore", { low });
    }
    const names = values.slice(0, LISTED).map((value) => this.label(attribute, value));
    if (values.length > LISTED) names.push(say("others", { number: values.length - LISTED }));
    return names.slice(0, -1).join(", ") + say("or", { last: names.at(-1) });
  }
}

// The records with some values, and all numbers about them.
class Selected {
  constructor(release, pairs) {
    this.release = release;
    this.pairs = pairs;
    this.conditions = release.conditions(pairs);
    this.cache = new Map();
  }

  // The records with other conditions; what was computed of these is kept.
  with(conditions) {
    return Object.assign(Object.create(Selected.prototype), this, { conditions, cache: this.cache });
  }

  // What remains of the selection for the values of an attribute: those of one with one value a record can be compared.
  others(attribute) {
    return this.release.attributes[attribute].set ? this.conditions : this.conditions.filter(([a]) => a !== attribute);
  }

  // The numbers of the records that meet all conditions; null for all records.
  rows(conditions) {
    if (conditions.length === 0) return null;
    const key = `rows ${conditions.join(";")}`;
    if (!this.cache.has(key)) {
      const before = this.rows(conditions.slice(0, -1));
      const [attribute, values] = conditions.at(-1);
      const codes = this.release.arrays[`codes-${attribute}`];
      const { width } = this.release.attributes[attribute];
      const wanted = new Uint8Array(this.release.last(attribute) + 1);
      for (const value of values) wanted[value] = 1;
      const size = before === null ? this.release.records : before.length;
      const kept = new Uint32Array(size);
      let length = 0;
      for (let i = 0; i < size; i++) {
        const row = before === null ? i : before[i];
        let met = wanted[codes[row * width]];
        for (let j = 1; j < width && !met; j++) met = wanted[codes[row * width + j]];
        if (met) kept[length++] = row;
      }
      this.cache.set(key, kept.subarray(0, length));
    }
    return this.cache.get(key);
  }

  // How many synthetic records have each value of an attribute, its gaps last.
  made(attribute) {
    const key = `made ${attribute}`;
    if (!this.cache.has(key)) this.cache.set(key, this.madeAmong(attribute, this.rows(this.others(attribute))));
    return this.cache.get(key);
  }

  // How many of some rows have each value of an attribute: each value of a set, and its gap where there is none.
  madeAmong(attribute, rows) {
    const { labels, gaps, width } = this.release.attributes[attribute];
    const codes = this.release.arrays[`codes-${attribute}`];
    const made = new Float64Array(labels.length + gaps);
    const size = rows === null ? this.release.records : rows.length;
    for (let i = 0; i < size; i++) {
      const start = (rows === null ? i : rows[i]) * width;
      made[codes[start]]++;
      for (let j = start + 1; j < start + width; j++) if (codes[j] < labels.length) made[codes[j]]++;
    }
    return made;
  }

  total(conditions = this.conditions) {
    const rows = this.rows(conditions);
    return this.release.number(conditions, rows === null ? this.release.records : rows.length);
  }

  // Count and share of a value among these records.
  one(attribute, value) {
    const key = `${attribute} ${value}`;
    let found = this.cache.get(key);
    if (found === undefined) {
      const others = this.others(attribute);
      const held = others.some(([a, [v]]) => a === attribute && v === value); // a set's value that is selected itself
      const count = this.release.number(held ? others : [...others, [attribute, [value]]], this.made(attribute)[value]);
      found = this.withShare(value, count, () => this.whole(attribute));
      this.cache.set(key, found);
    }
    return found;
  }

  // A count with its share, which is computed when it is asked for.
  withShare(value, count, whole) {
    let share;
    const shareOf = () => this.share(count, whole());
    return { value, count, get share() { return (share ??= shareOf()); } };
  }

  of(attribute, values = this.release.values(attribute)) {
    return values.map((value) => this.one(attribute, value));
  }

  // The records that the shares of an attribute are of.
  whole(attribute) {
    const key = this.release.attributes[attribute].set || this.conditions.every(([a]) => a !== attribute) ? "whole" : `whole ${attribute}`;
    if (!this.cache.has(key)) this.cache.set(key, this.total(this.others(attribute)));
    return this.cache.get(key);
  }

  share(count, whole) {
    if (whole.measured && whole.high === 0 && !whole.variance) return { unknown: true, none: true, estimate: 0 }; // by a rule
    const found = this.release.counts.share(count, whole);
    if (found === null || found?.high - found?.low >= NOTHING) return { unknown: true, estimate: 0 };
    if (found?.unknown || Number.isNaN(found?.low)) return { unknown: true, none: found.none, elsewhere: !found.none, estimate: 0 };
    if (found !== undefined) return { ...found, measured: true };
    return whole.made > 0 ? { estimate: (count.most === undefined ? count.made : count.estimate) / whole.made } : { unknown: true, estimate: 0 };
  }

  // How much an attribute differs from that of everybody: the share of records that would need another value. With the range
  // that noise leaves where all shares are measured; else in the synthetic records, less what chance makes of so few of them.
  difference(attribute, other = this.release.everybody) {
    const { release } = this;
    const known = release.attributes[attribute].set ? null : this.apart(attribute, other);
    if (known) return known;
    const mine = this.made(attribute);
    const all = other.made(attribute);
    const [own, every] = [mine, all].map((made) => made.reduce((sum, number) => sum + number, 0));
    if (own === 0 || every === 0) return { difference: 0 };
    let found = 0;
    let chance = 0;
    const spread = Math.max(1 / own + (other === release.everybody ? -1 : 1) / every, 0); // everybody has these records, too
    for (let value = 0; value < mine.length; value++) {
      const share = all[value] / every;
      found += Math.abs(mine[value] / own - share);
      chance += Math.sqrt((2 * share * (1 - share) * spread) / Math.PI);
    }
    return { difference: Math.max(0, (found - 1.5 * chance) / 2) };
  }

  // The difference d of measured shares, half the sum of |x| over values, null where one is not measured, or not alone. It is off by
  // at most half the sum e of |noise|, whose median is no more than its mean, the sum of sd sqrt(2 / pi), and which exceeds that
  // by 1.645 of the largest sd of a signed sum of the noise in at most 5 % (Gaussian concentration); noise of shares adds up to 0.
  apart(attribute, other) {
    let [difference, sum, squares] = [0, 0, 0];
    const values = this.release.values(attribute);
    for (const value of values) {
      const both = [this, other].map((selected) => selected.one(attribute, value).share);
      if (!both.every((share) => share.measured && !share.merged)) return null;
      const variance = both.reduce((all, { estimate, low, high }) => all + (Math.max(high - estimate, estimate - low) / 1.96) ** 2, 0);
      difference += Math.abs(both[0].estimate - both[1].estimate) / 2;
      sum += Math.sqrt(variance);
      squares += variance;
    }
    const signed = Math.sqrt((squares * values.length) / Math.max(values.length - 1, 1));
    const reach = Math.min(1.96 * sum, Math.sqrt(2 / Math.PI) * sum + 1.645 * signed) / 2;
    const [low, high] = [Math.max(0, difference - reach), Math.min(1, difference + reach)];
    return { difference: Math.min(difference, 1), low: Math.min(low, 1), high, measured: true };
  }

  // The attributes that differ most from another selection, without those that were chosen and those whose difference may be
  // nothing: first those with a range.
  related(most, other = this.release.everybody) {
    const chosen = new Set([...this.pairs, ...other.pairs].map(([attribute]) => attribute));
    const found = this.release.attributes
      .map((_, attribute) => ({ attribute, ...(chosen.has(attribute) ? { difference: 0 } : this.difference(attribute, other)) }))
      .filter(({ difference, low }) => (low ?? difference - 0.005) >= 0.0005) // what is shown as 0.0 % may be nothing
      .sort((a, b) => b.difference - a.difference || a.attribute - b.attribute);
    return [true, false].flatMap((known) => found.filter(({ measured }) => Boolean(measured) === known).slice(0, most));
  }

  // These records divided by the values of an attribute; what was chosen of it, and of `aside`, is left aside.
  divided(attribute, aside = attribute) {
    const conditions = this.conditions.filter(([a]) => a !== attribute && a !== aside);
    return this.release.values(attribute).map((value) => [value, this.with([...conditions, [attribute, [value]]])]);
  }

  // The table of two attributes: for each value of the first the numbers of the values of the second among those that have it.
  table(first, second) {
    return this.divided(first, second).map(([value, own]) => {
      const made = own.madeAmong(second, own.rows(own.conditions));
      const whole = own.total();
      const numbers = this.release.values(second).map((other) => this.withShare(other, this.release.number([...own.conditions, [second, [other]]], made[other]), () => whole));
      return { value, whole, numbers };
    });
  }

  // The mean or the quantile of a column of numbers: as it was measured, or of the synthetic records.
  average(attribute, q) {
    const { counts, attributes } = this.release;
    const measured = counts.average(this.conditions, attribute, q);
    if (measured) return measured;
    const numbers = new Numbers(null, attribute, attributes[attribute].numbers);
    return numbers.ofRecords(this.madeAmong(attribute, this.rows(this.conditions)), q);
  }
}
