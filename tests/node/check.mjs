// Checks, a line each, and how a script of them ends.

let failed = 0;

export async function check(name, work) {
  try {
    await work();
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${error.stack}`);
  }
}

export function finish() {
  console.log(failed === 0 ? "0 failed" : `${failed} FAILED`);
  process.exit(failed === 0 ? 0 : 1);
}
