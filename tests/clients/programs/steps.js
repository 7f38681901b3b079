// What steps.py is for Python: runs named steps, prints what became of each.
const assert = require("assert");

exports.equal = (found, wanted) => assert.deepStrictEqual(found, wanted);

exports.fails = async (code, work) => {
  try {
    await work();
  } catch (error) {
    const found = error.code ?? error.cause?.code ?? error.parent?.code;
    assert.strictEqual(found, code, `${found} instead of ${code}: ${error.message}`);
    return;
  }
  assert.fail(`no error ${code}`);
};

exports.run = async (steps) => {
  for (const [name, work] of Object.entries(steps)) {
    try {
      let timer;
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error("not within 60 s")), 60000);
      });
      await Promise.race([work(), late]);
      clearTimeout(timer);
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`failed ${name}: ${String(error.message ?? error).replace(/\s+/g, " ").slice(0, 300)}`);
    }
  }
  process.exit(0);
};
