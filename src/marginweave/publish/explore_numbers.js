// Means and quantiles of a column of numbers, as `marginweave query` computes them (answers/quantities.py).

class Numbers {
  constructor(squares, axis, ends) {
    this.squares = squares;
    this.axis = axis;
    this.ends = ends.map((pair) => pair && [pair[0] ?? -Infinity, pair[1] ?? Infinity]);
  }

  // The codes that are numbers, in order.
  get codes() {
    return range(this.ends.length).filter((code) => this.ends[code]).sort((a, b) => this.ends[a][0] - this.ends[b][0] || a - b);
  }

  get limits() {
    const pairs = this.ends.filter(Boolean);
    return [Math.min(...pairs.map(([low]) => low)), Math.max(...pairs.map(([, high]) => high))];
  }

  get bounded() {
    return this.limits.every(Number.isFinite);
  }

  middle(code) {
    return (this.ends[code][0] + this.ends[code][1]) / 2;
  }

  with(ends) {
    return Object.assign(Object.create(Numbers.prototype), this, { ends });
  }

  // The mean, or the quantile below which a share q of the records is, of records that meet a query; null where these columns
  // were not measured together.
  answer(query, q) {
    const { rules } = this.squares;
    const chosen = this.squares.chosen(query);
    const none = { unknown: true, none: true };
    if (!rules.allow(chosen)) return none;
    const possible = rules.possible(this.axis, chosen.get(this.axis) ?? range(this.ends.length), chosen);
    if (!possible.some((code) => this.ends[code])) return none;
    const numbers = this.among(possible);
    if (q === undefined && !numbers.bounded) return { unknown: true, open: true };
    const answer = q === undefined ? numbers.mean(query) : numbers.quantile(query, q);
    if (!answer || answer.unknown) return answer;
    if (Number.isNaN(answer.low) || Number.isNaN(answer.high)) return { unknown: true, elsewhere: true };
    const [least, most] = this.limits;
    if (Number.isFinite(most - least) && answer.high - answer.low >= NOTHING * (most - least)) return { unknown: true };
    if (answer.low === -Infinity && answer.high === Infinity) return { unknown: true };
    return { ...answer, measured: true, least: q === undefined && answer.low <= least ? least : undefined };
  }

  // The numbers of possible codes, where tables tell these from the others; else all numbers.
  among(possible) {
    const weights = weightsOf(possible);
    const told = this.squares.parts.every((part, number) => part.axis !== this.axis || this.squares.onPart(number, weights).fits);
    if (!told) return this;
    const inside = new Set(possible);
    return this.with(this.ends.map((pair, code) => (inside.has(code) ? pair : null)));
  }

  mean(query) {
    const solved = this.solveMean(query);
    if (solved.measured) return solved.answer;
    for (const part of this.squares.parts) {
      if (part.axis !== this.axis || !part.merges) continue;
      const merged = this.merged(part);
      if (!merged.codes.length || !merged.bounded) continue;
      const again = merged.solveMean(query);
      if (again.measured) return again.answer;
    }
    return solved.merged ? this.meanBetween(query) : null;
  }

  // Numbers of codes of which those of a block cannot be told apart.
  merged(part) {
    const ends = [];
    for (const codes of part.codes) {
      const pairs = codes.map((code) => this.ends[code]);
      const both = pairs.every(Boolean) ? [Math.min(...pairs.map(([low]) => low)), Math.max(...pairs.map(([, high]) => high))] : null;
      for (const code of codes) ends[code] = both;
    }
    return this.with(ends);
  }

  // The mean is between that of lower ends and that of upper ends, each with its noise.
  solveMean(query) {
    const { codes, limits, squares } = this;
    const vectors = [(code) => this.ends[code][0], (code) => this.ends[code][1], (code) => this.middle(code), (code) => this.ends[code][0] ** 2, (code) => this.ends[code][1] ** 2, () => 1];
    const solved = squares.solve(vectors.map((vector) => weighted(query, this.axis, { codes, weights: codes.map(vector) })));
    if (!solved.measured) return solved;
    const { values, covariance } = solved;
    const ends = [0, 1].map((i) => squares.ratioEnds(values[i], values[5], covariance(i, i), covariance(i, 5), covariance(5, 5), ...limits));
    if (ends.includes(null)) return { measured: true, answer: { unknown: true, few: true } };
    const [low, high] = betweenBounds(...ends).map((end) => clipped(end, ...limits));
    return { measured: true, answer: { estimate: clipped(values[2] / values[5], low, high), low, high } };
  }

  // The mean by intervals of the counts of each value, where records were measured together with others.
  meanBetween(query) {
    const { codes, squares } = this;
    const k = codes.length + 1;
    if (2 * k > squares.reaches.length) return { unknown: true, elsewhere: true };
    const counts = codes.map((code) => squares.count(weighted(query, this.axis, weightsOf([code])), k));
    const total = squares.count(weighted(query, this.axis, weightsOf(codes)), k);
    if ([...counts, total].some(({ low }) => Number.isNaN(low))) return { unknown: true, elsewhere: true };
    if (total.low <= 0) return { unknown: true, few: true };
    const low = -largestMean(codes.map((code) => -this.ends[code][0]), counts, total.low);
    const high = largestMean(codes.map((code) => this.ends[code][1]), counts, total.low);
    const records = counts.reduce((sum, { estimate }) => sum + estimate, 0);
    const middle = records ? counts.reduce((sum, { estimate }, i) => sum + estimate * this.middle(codes[i]), 0) / records : (low + high) / 2;
    return { estimate: clipped(middle, low, high), low, high };
  }

  quantile(query, q) {
    const { codes, squares } = this;
    const queries = [...codes.map((_, i) => codes.slice(0, i + 1)), codes].map((up) => weighted(query, this.axis, weightsOf(up)));
    const solved = squares.solve(queries);
    if (!solved.measured) return solved.merged ? this.quantileBetween(queries, q) : null;
    const last = codes.length;
    const [values, total] = [solved.values.slice(0, last), solved.values[last]];
    const spread = solved.covariance(last, last);
    if (total <= squares.reach(Math.sqrt(Math.max(spread, 0)))) return { unknown: true, few: true };
    const below = values.map((value) => value - q * total);
    const half = values.map((_, i) => squares.reach(Math.sqrt(Math.max(solved.covariance(i, i) - 2 * q * solved.covariance(i, last) + q * q * spread, 0))));
    if (half.some(Number.isNaN)) return { unknown: true, elsewhere: true };
    below[last - 1] = Math.max(below[last - 1], 0);
    return this.quantileAmong(codes.map((_, i) => below[i] + half[i] >= 0 && (i === 0 || below[i - 1] - half[i - 1] <= 0)), values, q);
  }

  quantileBetween(queries, q) {
    const counts = queries.map((query) => this.squares.count(query, 2));
    if (counts.some(({ low }) => Number.isNaN(low))) return { unknown: true, elsewhere: true };
    const total = counts.pop();
    if (total.low <= 0) return { unknown: true, few: true };
    const last = counts.length - 1;
    const chosen = counts.map(({ high }, i) => (i === last || high >= q * total.low) && (i === 0 || counts[i - 1].low <= q * total.high));
    return this.quantileAmong(chosen, counts.map(({ estimate }) => estimate), q);
  }

  // The quantile among the values that may be it, by counts up to each value.
  quantileAmong(chosen, counts, q) {
    const { codes } = this;
    if (!chosen.includes(true)) return { unknown: true, few: true };
    let most = 0;
    const up = counts.map((count) => (most = Math.max(most, count, 0)));
    const wanted = q * most;
    const place = Math.min(up.findIndex((count) => count >= wanted), codes.length - 1);
    const below = place ? up[place - 1] : 0;
    const part = up[place] > below ? (wanted - below) / (up[place] - below) : 0.5;
    const [low, high] = [this.ends[codes[chosen.indexOf(true)]][0], this.ends[codes[chosen.lastIndexOf(true)]][1]];
    const [start, end] = this.ends[codes[place]];
    const estimate = Number.isFinite(end - start) ? clipped(start + part * (end - start), low, high) : null;
    return { estimate, low, high };
  }

  // The mean or the quantile of synthetic records, by how many have each code.
  ofRecords(made, q) {
    const codes = this.codes.filter((code) => made[code] > 0);
    const records = codes.reduce((sum, code) => sum + made[code], 0);
    if (records === 0) return { unknown: true, few: true };
    if (q === undefined) {
      const mean = codes.reduce((sum, code) => sum + made[code] * this.middle(code), 0) / records;
      return Number.isFinite(mean) ? { estimate: mean } : { unknown: true, open: true };
    }
    let sum = 0;
    const up = codes.map((code) => (sum += made[code]));
    const place = up.findIndex((count) => count >= q * records);
    const [start, end] = this.ends[codes[place]];
    const below = place ? up[place - 1] : 0;
    const estimate = start + ((q * records - below) / (up[place] - below)) * (end - start);
    return Number.isFinite(estimate) ? { estimate } : { unknown: true, open: true };
  }
}

// The largest mean of at least so many records, by intervals of the number of records of each value.
function largestMean(values, counts, least) {
  let total = counts.reduce((sum, { low }, i) => sum + low * values[i], 0);
  let records = counts.reduce((sum, { low }) => sum + low, 0);
  for (const place of range(values.length).sort((a, b) => values[b] - values[a] || a - b)) {
    let added = counts[place].high - counts[place].low;
    if (records > 0 && values[place] * records <= total) added = Math.min(added, Math.max(least - records, 0));
    total += values[place] * added;
    records += added;
  }
  return records ? total / records : Math.max(...values);
}
