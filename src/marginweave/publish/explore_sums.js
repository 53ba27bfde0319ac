"use strict";
// Sums over several values, means and quantiles: the formula of `marginweave query` (answers/least_squares.py, merged.py,
// quantities.py and rules.py), evaluated on the pooled tables and axes of the page. A query has weights of the codes of some
// axes, { codes, weights }; an axis that is left out weighs all records by 1. Conditions are pairs of an axis and its codes.

const FEWEST = 1e-6; // records of a value whose noisy count is not positive
const MOST_RULE_CELLS = 2 ** 20;
const NOTHING = 0.9; // of all that a number may be; a range with so much of it says nothing
const SMALL = 0.05; // of all records; a count known to be no larger is known well enough

// As numpy rounds: ties to even.
function rounded(number) {
  const below = Math.floor(number);
  if (number - below !== 0.5) return Math.round(number);
  return below % 2 === 0 ? below : below + 1;
}

function clipped(number, low, high) {
  return Math.min(Math.max(number, low), high);
}

function range(size) {
  return Array.from({ length: size }, (_, i) => i);
}

function weightsOf(codes) {
  return { codes, weights: codes.map(() => 1) };
}

// The queries of records that meet conditions; several conditions on one axis all hold.
function queryOf(conditions) {
  const query = new Map();
  for (const [axis, codes] of conditions) query.set(axis, query.has(axis) ? product(query.get(axis), weightsOf(codes)) : weightsOf(codes));
  return query;
}

function product(one, two) {
  const second = new Map(two.codes.map((code, i) => [code, two.weights[i]]));
  const places = range(one.codes.length).filter((i) => second.has(one.codes[i]));
  return { codes: places.map((i) => one.codes[i]), weights: places.map((i) => one.weights[i] * second.get(one.codes[i])) };
}

function weighted(query, axis, weights) {
  return new Map(query).set(axis, query.has(axis) ? product(query.get(axis), weights) : weights);
}

// Records that no rule allows.
class Rules {
  constructor(rules, allowed, sizes) {
    this.sizes = sizes;
    let start = 0;
    this.rules = rules.map((rule) => {
      if (rule.codes) return rule;
      const end = start + rule.shape.reduce((cells, size) => cells * size, 1);
      const own = { ...rule, allowed: allowed.subarray(start, end), alone: new Map() };
      start = end;
      return own;
    });
    this.about = sizes.map((_, axis) => this.rules.filter(({ attributes }) => attributes.includes(axis)));
  }

  // Whether a record can have one of the chosen codes on each axis, as far as each rule tells by itself.
  allow(chosen) {
    for (const codes of chosen.values()) if (codes.length === 0) return false;
    for (const axis of chosen.keys()) for (const rule of this.about[axis]) if (!this.allows(rule, chosen)) return false;
    return true;
  }

  allows(rule, chosen) {
    const axes = rule.attributes.filter((axis) => chosen.has(axis));
    const cells = rule.attributes.reduce((all, axis) => all * (chosen.get(axis)?.length ?? this.sizes[axis]), 1);
    if (!rule.codes && cells > MOST_RULE_CELLS) return true;
    if (axes.length > 1 || rule.codes) return this.allowsCodes(rule, chosen);
    return chosen.get(axes[0]).some((code) => {
      const key = `${axes[0]} ${code}`;
      if (!rule.alone.has(key)) rule.alone.set(key, this.allowsCodes(rule, new Map([[axes[0], [code]]])));
      return rule.alone.get(key);
    });
  }

  allowsCodes(rule, chosen) {
    const codes = rule.attributes.map((axis) => chosen.get(axis) ?? range(this.sizes[axis]));
    if (rule.codes) return !codes.every((own, i) => own.length === 1 && own[0] === rule.codes[i]);
    let cells = [0];
    codes.forEach((own, i) => {
      const kinds = new Set(own.map((code) => rule.kinds[i][code]));
      cells = cells.flatMap((cell) => [...kinds].map((kind) => cell * rule.shape[i] + kind));
    });
    return cells.some((cell) => rule.allowed[cell] > 0);
  }

  // The codes of an axis that a record can have together with chosen codes of the other axes.
  possible(axis, codes, chosen) {
    if (this.about[axis].length === 0) return codes;
    return codes.filter((code) => this.allow(new Map(chosen).set(axis, [code])));
  }
}

// Generalised least squares over all measured tables; `merged` of what it returns says that tables do not tell values apart.
class Squares {
  constructor({ squares, rules, sizes, reach, attributes }, arrays) {
    this.sizes = sizes;
    this.attributes = attributes;
    this.total = squares.total;
    this.laplace = squares.laplace;
    this.reaches = squares.reaches;
    this.ratio = reach;
    this.rules = new Rules(rules, arrays.allowed, sizes);
    this.readParts(squares.parts, arrays.blocks);
    this.full = squares.full;
    this.pools = new Map();
    let start = 0;
    for (const [parts, variance] of squares.pools) {
      const shape = parts.map((number) => this.parts[number].size);
      const end = start + shape.reduce((cells, size) => cells * size, 1);
      const key = parts.map((number) => this.parts[number].axis).sort((a, b) => a - b).join();
      const pool = { parts, variance, shape, sums: new Map([[2 ** parts.length - 1, arrays.pools.subarray(start, end)]]) };
      if (!this.pools.has(key)) this.pools.set(key, []);
      this.pools.get(key).push(pool);
      start = end;
    }
    this.poolOf = new Map([...this.pools.values()].flat().map((pool) => [pool.parts.join(), pool]));
    this.readAxes(squares.axes, arrays);
    this.counts = new Map();
  }

  readParts(axes, blocks) {
    let start = 0;
    this.parts = axes.map((axis) => {
      const own = blocks.subarray(start, (start += this.sizes[axis]));
      const size = own.reduce((most, block) => Math.max(most, block), -1) + 1;
      const codes = Array.from({ length: size }, () => []);
      own.forEach((block, code) => codes[block].push(code));
      return { axis, blocks: own, size, codes, merges: size < own.length };
    });
  }

  readAxes(axes, arrays) {
    let [start, place] = [0, 0];
    this.axes = axes.map(([size, solutions, known], axis) => {
      const end = start + this.sizes[axis];
      const [blocks, inside] = ["axis-blocks", "inside"].map((name) => arrays[name].subarray(start, end));
      const [counted, sums] = [new Float64Array(size), new Float64Array(size)];
      blocks.forEach((block, code) => { counted[block]++; sums[block] += inside[code]; });
      start = end;
      const take = (length) => arrays.axes.subarray(place, (place += length));
      const solved = range(solutions).map(() => ({ means: take(size), slopes: take(size), covariance: take(known ? (size * (size + 1)) / 2 : size) }));
      return { size, blocks, inside, counted, sums, known, variance: arrays["inside-variance"][axis], solved };
    });
  }

  // How far noise of a standard deviation goes, for each of k intervals that hold together; NaN where that is not known.
  reach(sigma, k = 1) {
    if (sigma === 0) return 0;
    const normal = this.reaches[k - 1] * sigma;
    if (!this.laplace) return normal;
    const level = 1 - 0.05 / k;
    const log = -2 * Math.asinh(1 / (Math.SQRT2 * sigma));
    const outside = Math.log(((1 - level) * (1 + Math.exp(log))) / 2);
    return Math.max(normal, 0, Math.ceil(outside / log - 1));
  }

  // What weights are on the blocks of a part; `fits` says whether the codes of each block weigh alike.
  onPart(number, weights) {
    const part = this.parts[number];
    if (!weights) return { ones: true, fits: true, mean: 1 };
    const blocks = new Map();
    const seen = new Map();
    let fits = true;
    weights.codes.forEach((code, i) => {
      const block = part.blocks[code];
      fits &&= !blocks.has(block) || blocks.get(block) === weights.weights[i];
      blocks.set(block, weights.weights[i]);
      seen.set(block, (seen.get(block) ?? 0) + 1);
    });
    for (const [block, weight] of blocks) fits &&= weight === 0 || seen.get(block) === part.codes[block].length;
    let [sum, square] = [0, 0];
    for (const weight of blocks.values()) [sum, square] = [sum + weight, square + weight * weight];
    return { blocks, fits, mean: sum / part.size, square, weights };
  }

  // Estimates of queries of the same axes, and the covariance of two of them; else why there are none.
  solve(queries) {
    const axes = [...new Set(queries.flatMap((query) => [...query.keys()]))].sort((a, b) => a - b);
    if (axes.length <= 1) return this.read(queries, axes, axes.map((axis) => this.full[axis]));
    const pools = this.pools.get(axes.join()) ?? [];
    const readings = pools.map(({ parts }) => this.read(queries, axes, parts)).filter((reading) => reading.measured);
    if (readings.length === 0) return { measured: false, merged: pools.length > 0 };
    if (readings.length === 1) return readings[0];
    const trace = ({ covariance }) => queries.reduce((sum, _, i) => sum + covariance(i, i), 0);
    return readings.reduce((best, reading) => (trace(reading) < trace(best) ? reading : best));
  }

  // The estimates of queries as they are read over the parts of a table.
  read(queries, axes, signature) {
    const onParts = queries.map((query) => signature.map((number) => this.onPart(number, query.get(this.parts[number].axis))));
    if (!onParts.every((parts) => parts.every(({ fits }) => fits))) return { measured: false, merged: true };
    const subsets = range(2 ** signature.length).slice(1);
    const terms = onParts.map((parts) => subsets.filter((inside) => parts.every((part, i) => !(inside >> i & 1) || !part.ones)).map((inside) => this.term(signature, parts, inside)));
    const slopes = terms.map((own, i) => own.reduce((sum, { slope }) => sum + slope, onParts[i].reduce((mean, part) => mean * part.mean, 1)));
    const values = terms.map((own, i) => own.reduce((sum, { estimate }) => sum + estimate, 0) + slopes[i] * this.total[0]);
    const covariance = (i, j) => {
      let sum = slopes[i] * slopes[j] * this.total[1];
      for (const one of terms[i]) {
        const two = terms[j].find(({ inside }) => inside === one.inside);
        if (two) sum += one.scale * two.scale * this.together(signature, one.inside, onParts[i], onParts[j]);
      }
      return sum;
    };
    return { measured: true, values, covariance };
  }

  // The part of a query in the product of centered weights of the places `inside`.
  term(signature, parts, inside) {
    const places = range(signature.length).filter((i) => inside >> i & 1);
    const scale = parts.reduce((mean, part, i) => (inside >> i & 1 ? mean : mean * part.mean), 1);
    if (places.length > 1) return { inside, scale, slope: 0, estimate: scale * this.residual(places.map((i) => signature[i]), places.map((i) => parts[i])) };
    const { weights, mean } = parts[places[0]];
    const [estimate, slope] = this.onAxis(this.parts[signature[places[0]]].axis, weights, signature.length > 1);
    return { inside, scale, slope: scale * (slope - mean), estimate: scale * estimate };
  }

  // The solution of an axis in questions about several axes, or about it alone.
  solution(axis, joint) {
    const { solved } = this.axes[axis];
    return joint ? solved[0] : solved.at(-1);
  }

  // Means of weights over the blocks of an axis.
  blockMeans(axis, { codes, weights }) {
    const { blocks, counted } = this.axes[axis];
    const means = new Map();
    codes.forEach((code, i) => means.set(blocks[code], (means.get(blocks[code]) ?? 0) + weights[i] / counted[blocks[code]]));
    return means;
  }

  // The estimate of a weighted sum of the counts of an axis if there were no records, and what each record adds to it.
  onAxis(axis, weights, joint) {
    const { inside, sums } = this.axes[axis];
    const { means, slopes } = this.solution(axis, joint);
    let [estimate, slope] = [0, 0];
    weights.codes.forEach((code, i) => { estimate += weights.weights[i] * inside[code]; });
    for (const [block, mean] of this.blockMeans(axis, weights)) {
      estimate += mean * (means[block] - sums[block]);
      slope += mean * slopes[block];
    }
    return [estimate, slope];
  }

  // The product of centered weights with a pooled table: each mean is taken out of the sums over its axis.
  residual(signature, parts) {
    const pool = this.poolOf.get(signature.join());
    let sum = 0;
    for (const kept of range(2 ** parts.length)) {
      const mean = parts.reduce((all, part, i) => (kept >> i & 1 ? all : all * -part.mean), 1);
      if (mean !== 0) sum += mean * this.dot(pool, kept, parts);
    }
    return sum;
  }

  dot(pool, kept, parts) {
    const counts = this.summed(pool, kept);
    let cells = [[0, 1]];
    for (const i of range(parts.length)) {
      if (!(kept >> i & 1)) continue;
      const blocks = [...parts[i].blocks];
      cells = cells.flatMap(([cell, weight]) => blocks.map(([block, own]) => [cell * pool.shape[i] + block, weight * own]));
    }
    return cells.reduce((sum, [cell, weight]) => sum + weight * counts[cell], 0);
  }

  // A pooled table, summed over the places that are not kept.
  summed(pool, kept) {
    if (!pool.sums.has(kept)) {
      const gone = range(pool.shape.length).find((i) => !(kept >> i & 1));
      const from = this.summed(pool, kept | (1 << gone));
      const inner = pool.shape.reduce((cells, size, i) => (i > gone && kept >> i & 1 ? cells * size : cells), 1);
      const size = pool.shape[gone];
      const sums = new Float64Array(from.length / size);
      from.forEach((count, cell) => { sums[Math.floor(cell / (inner * size)) * inner + (cell % inner)] += count; });
      pool.sums.set(kept, sums);
    }
    return pool.sums.get(kept);
  }

  // The covariance of the products of centered weights of two queries; NaN where the page has no covariances of an axis.
  together(signature, inside, one, two) {
    const places = range(signature.length).filter((i) => inside >> i & 1);
    if (places.length === 1) return this.onAxisTogether(this.parts[signature[places[0]]].axis, one[places[0]].weights, two[places[0]].weights, signature.length > 1);
    const numbers = places.map((i) => signature[i]);
    return places.reduce((covariance, place, i) => {
      let sum = -this.parts[numbers[i]].size * one[place].mean * two[place].mean;
      for (const [block, weight] of one[place].blocks) sum += weight * (two[place].blocks.get(block) ?? 0);
      return covariance * sum;
    }, this.poolOf.get(numbers.join()).variance);
  }

  onAxisTogether(axis, one, two, joint) {
    const { size, counted, known, variance } = this.axes[axis];
    const { covariance } = this.solution(axis, joint);
    const [first, second] = [one, two].map((weights) => this.blockMeans(axis, weights));
    const of = (a, b) => {
      if (!known) return a === b ? covariance[a] : NaN;
      const [low, high] = a < b ? [a, b] : [b, a];
      return covariance[(low * (2 * size - low + 1)) / 2 + high - low];
    };
    let [between, within] = [0, 0];
    for (const [a, x] of first) {
      if (x === 0) continue;
      for (const [b, y] of second) if (y !== 0) between += x * y * of(a, b);
      within -= counted[a] * x * (second.get(a) ?? 0);
    }
    const other = new Map(two.codes.map((code, i) => [code, two.weights[i]]));
    one.codes.forEach((code, i) => { within += one.weights[i] * (other.get(code) ?? 0); });
    return between + Math.max(within, one === two ? 0 : within) * variance;
  }

  // A count as it is shown and the ends of its interval, one of k that hold together.
  ends(estimate, variance, k) {
    const sigma = Math.sqrt(Math.max(variance, 0));
    const half = this.reach(sigma, k) + (sigma === 0 ? 0 : 0.5);
    const center = Math.max(estimate, 0);
    const shown = rounded(center);
    return [shown, clipped(Math.ceil(center - half - 1e-9), 0, shown), Math.max(Math.floor(center + half + 1e-9), shown)];
  }

  // The count of records that meet conditions; null where its columns were not measured together.
  count(query, k = 1) {
    const solved = this.solve([query]);
    if (!solved.measured) return solved.merged ? this.between(query, k) : null;
    let [estimate, variance] = [solved.values[0], solved.covariance(0, 0)];
    const chosen = this.chosen(query);
    const possible = new Map([...chosen].map(([axis, codes]) => [axis, this.rules.possible(axis, codes, chosen)]));
    if ([...chosen].some(([axis, codes]) => possible.get(axis).length < codes.length)) {
      const fewer = this.solve([new Map([...query].map(([axis, weights]) => [axis, product(weights, weightsOf(possible.get(axis)))]))]);
      if (fewer.measured && fewer.covariance(0, 0) < variance) [estimate, variance] = [fewer.values[0], fewer.covariance(0, 0)];
    }
    const [shown, low, high] = this.ends(estimate, variance, k);
    return { estimate: shown, low, high, variance };
  }

  chosen(query) {
    return new Map([...query].map(([axis, { codes, weights }]) => [axis, codes.filter((_, i) => weights[i] > 0)]));
  }

  // Estimates of the records of each code of an axis, from questions about it alone.
  codeCounts(axis) {
    if (!this.counts.has(axis)) this.counts.set(axis, this.solve(range(this.sizes[axis]).map((code) => new Map([[axis, weightsOf([code])]]))).values);
    return this.counts.get(axis);
  }

  // A count of values some of which were measured together with others (`count_between`).
  between(query, k) {
    const axes = [...query.keys()].sort((a, b) => a - b);
    const cells = ({ shape }) => shape.reduce((all, size) => all * size, 1);
    const finest = this.pools.get(axes.join()).reduce((best, pool) => (cells(pool) > cells(best) ? pool : best));
    const around = [new Map(), new Map(), new Map()];
    const sums = [0, 0, 0, 0];
    for (const number of finest.parts) {
      const { axis } = this.parts[number];
      const three = this.around(this.parts[number], query.get(axis).codes);
      three.forEach((weights, i) => around[i].set(axis, weights));
      const [least, most] = [three[0].codes, three[1].codes];
      const asked = new Set(query.get(axis).codes);
      const inner = new Set(least);
      const differences = [most.filter((code) => !asked.has(code)), [...asked].filter((code) => !inner.has(code))];
      const solved = this.solve(differences.map((codes) => new Map([[axis, weightsOf(codes)]])));
      differences.forEach((codes, i) => {
        sums[i] += solved.values[i];
        if (codes.length) sums[i + 2] += Math.sqrt(solved.covariance(i, i));
      });
    }
    const solved = this.solve(around);
    const [inner, outer, likely] = solved.values;
    const [innerSd, outerSd] = [0, 1].map((i) => Math.sqrt(Math.max(solved.covariance(i, i), 0)));
    const [removed, added, removedSd, addedSd] = sums;
    const bounds = [[inner, innerSd], [outer - removed, outerSd + removedSd], [outer, outerSd], [inner + added, innerSd + addedSd]];
    const ends = bounds.map(([bound, sd]) => this.ends(bound, sd ** 2, 2 * k));
    if (ends.flat().some(Number.isNaN)) return { estimate: rounded(Math.max(likely, 0)), low: NaN, high: NaN, merged: true };
    const smaller = ends[0][1] >= ends[1][1] ? ends[0] : ends[1];
    const larger = ends[2][2] <= ends[3][2] ? ends[2] : ends[3];
    let [low, high] = betweenBounds(smaller.slice(1), larger.slice(1));
    [low, high] = [Math.max(Math.floor(low), 0), Math.ceil(high)];
    return { estimate: rounded(clipped(likely, low, high)), low, high, merged: true };
  }

  // The weights of a block measured together, by the least, the largest and the likely weight of its codes.
  around(part, codes) {
    const counts = this.codeCounts(part.axis);
    const asked = new Set(codes);
    const three = range(3).map(() => ({ codes: [], weights: [] }));
    const add = (weights, block, weight) => part.codes[block].forEach((code) => { weights.codes.push(code); weights.weights.push(weight); });
    for (const block of new Set(codes.map((code) => part.blocks[code]))) {
      const of = part.codes[block].map((code) => Math.max(counts[code], FEWEST));
      const all = of.reduce((sum, count) => sum + count, 0);
      const likely = of.reduce((sum, count, i) => (asked.has(part.codes[block][i]) ? sum + count : sum), 0) / all;
      if (part.codes[block].every((code) => asked.has(code))) add(three[0], block, 1);
      add(three[1], block, 1);
      add(three[2], block, likely);
    }
    return three;
  }

  // The share that records have of a group: all ratios that noise allows (Fieller). Null where that bounds nothing, and undefined
  // where they were not measured by themselves.
  share(records, group, lowered) {
    const all = new Map(group);
    for (const [axis, weights] of records) all.set(axis, group.has(axis) ? product(group.get(axis), weights) : weights);
    if (!this.rules.allow(this.chosen(group))) return { unknown: true, none: true };
    if (!this.rules.allow(this.chosen(all))) return { estimate: 0, low: 0, high: 0 };
    const but = this.allBut(records, group);
    if (but?.length === 0) return { estimate: 1, low: 1, high: 1 };
    const solved = this.solve([all, group]);
    if (!solved.measured) return undefined;
    const [part, whole] = solved.values;
    const ends = this.ratioEnds(part, whole, solved.covariance(0, 0), solved.covariance(0, 1), solved.covariance(1, 1), 0, 1);
    const low = ends && lowered ? Math.max(ends[0] - lowered / Math.max(whole, 1), 0) : ends?.[0];
    return ends && { estimate: clipped(part / whole, ...ends), low, high: ends[1], but };
  }

  // By which gaps alone a record of a group can break a condition: none where rules forbid every such record; null where it
  // can by a value, also by another value of a set.
  allBut(records, group) {
    const chosen = this.chosen(group);
    const but = new Set();
    for (const [axis, codes] of this.chosen(records)) {
      const met = new Set(codes);
      const { labels, single, hidden } = this.attributes[axis];
      const breaking = (chosen.get(axis) ?? range(this.sizes[axis])).filter((code) => !met.has(code));
      const allowed = (some) => some.length > 0 && this.rules.allow(new Map(chosen).set(axis, some));
      if (!allowed(breaking)) continue;
      if (single || allowed(breaking.filter((code) => code < labels.length))) return null;
      but.add(hidden ? "allButUnreleased" : "allButGaps");
    }
    return [...but];
  }

  // The ends of the ratio of two numbers between limits (`ratio_interval`); null if it has none.
  ratioEnds(number, whole, variance, shared, spread, least, most) {
    const n = clipped(number, least * whole, most * whole);
    const squared = this.ratio ** 2;
    const a = whole * whole - squared * spread;
    if (whole <= 0 || a <= 0) return null;
    const b = -2 * n * whole + squared * 2 * shared;
    const root = Math.sqrt(Math.max(b * b - 4 * a * (n * n - squared * variance), 0));
    return [-b - root, root - b].map((end) => clipped(end / (2 * a), least, most));
  }

  // The length of the range that single columns leave a count.
  lengthByColumns(query) {
    const records = this.total[0];
    if (query.size < 2) return records;
    const counts = [...query].map(([axis, weights]) => this.solve([new Map([[axis, weights]])]).values[0]);
    const least = Math.max(counts.reduce((sum, count) => sum + count, 0) - (counts.length - 1) * records, 0);
    return Math.max(Math.min(...counts) - least, 1);
  }

  // Whether the range of a count, longer than what is small, says nothing, or no more than its single columns do.
  saysNothing(query, { low, high }) {
    const length = high - low;
    if (length >= NOTHING * this.total[0]) return true;
    return length >= NOTHING * this.lengthByColumns(query);
  }
}

// The ends of a number from those of what is no larger and what is no smaller (`between_bounds`).
function betweenBounds(smaller, larger) {
  if (smaller[0] <= larger[1]) return [smaller[0], larger[1]];
  return [larger[0] - Math.abs(smaller[1] - smaller[0]) / 2, smaller[1] + Math.abs(larger[1] - larger[0]) / 2];
}
