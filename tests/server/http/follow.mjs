// Follows a query and writes, for each change of the copy, a line of JSON. Ends with its input.
//
//     node follow.mjs SCRIPT URL QUERY OPTIONS

const [script, url, query, options] = process.argv.slice(2);
const { live } = await import(script);

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const copy = live(query, {
  url,
  ...JSON.parse(options),
  onChange: (found, { time, reset, changes }) =>
    say({ time: String(time), rows: found.values(), reset, changes: changes.length }),
  onError: (error) => say({ error: error.message, code: error.code ?? null }),
});
copy.ready.then(
  (found) => say({ ready: found.columns, first: found.get(1) ?? null }),
  (error) => say({ failed: error.code ?? error.message }),
);
process.stdin.on("end", () => {
  say({ size: copy.size, following: copy.following });
  copy.close();
});
process.stdin.resume();
