// The order of what the site's search finds: a reader's pages before those for people who check or change the program.
const LATER = /^(CHANGELOG|CONTRIBUTING|docs\/(accuracy|architecture|benchmarks|decisions|faults|leaks|nist|sdnist|small-tables|soak|sources|style|traps)\b)/;
var Scorer = {
  score: ([page, , , , points]) => (LATER.test(page) ? points / 2 : points),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
