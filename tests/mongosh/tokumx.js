// The helpers of packaging/tokumx.js, each by what the server did.
// Run by tests/tokumx_shell_test.py after that file; prints `tokumx.js: N passed, 0 failed` as its last line.

let passed = 0;

function same(what, found, expected) {
  const [a, b] = [found, expected].map((x) => EJSON.stringify(x, { relaxed: true }));
  if (a !== b) throw new Error(`${what}: found ${a}, expected ${b}`);
  passed++;
}

function holds(what, truth) {
  if (!truth) throw new Error(what);
  passed++;
}

function fails(what, codes, action) {
  try {
    action();
  } catch (error) {
    holds(`${what}: ${error.code} ${error.message}`, codes.includes(error.code));
    return;
  }
  throw new Error(`${what}: no error`);
}

db = db.getSiblingDB('helpers');
db.dropDatabase();

// Transactions.
db.foo.insertOne({ _id: 1 });
same('begin', db.beginTransaction(), { status: 'transaction began', ok: 1 });
db.foo.insertOne({ _id: 2 });
same('inside', db.foo.find().toArray(), [{ _id: 1 }, { _id: 2 }]);
fails('no second one', [16787], () => db.beginTransaction());
holds('its locks are shown', db.showLiveTransactions().transactions.some(
  (one) => one.rowLocks.some((lock) => lock.index === 'helpers.foo.$_id_')));
same('nobody waits', db.showPendingLockRequests().requests, []);
same('roll back', db.rollbackTransaction(), { status: 'transaction rolled back', ok: 1 });
same('undone', db.foo.countDocuments(), 1);
same('begin serializable', db.beginTransaction('serializable'), { status: 'transaction began', ok: 1 });
for (let i = 10; i < 30; i++) db.foo.insertOne({ _id: i });
same('commit', db.commitTransaction(), { status: 'transaction committed', ok: 1 });
same('done', db.foo.countDocuments(), 21);
fails('none to commit', [16788], () => db.commitTransaction());
fails('none to roll back', [16789], () => db.rollbackTransaction());
fails('no such level', [16739], () => db.beginTransaction('snapshot'));

// Parameters and figures.
same('getParameter', db.getParameter('checkpointPeriod').checkpointPeriod, 60);
same('setParameter', db.setParameter('checkpointPeriod', 120), { was: 60, ok: 1 });
same('set', db.getParameter('checkpointPeriod').checkpointPeriod, 120);
const checkpoints = db.engineStatus().CP_CHECKPOINT_COUNT;
same('checkpoint', db.checkpoint(), { ok: 1 });
holds('engineStatus', db.engineStatus().CP_CHECKPOINT_COUNT > checkpoints);

// Partitions.
db.createCollection('prices', { primaryKey: { a: 1, _id: 1 }, partitioned: true });
db.prices.insertMany([{ _id: 0, a: 500 }, { _id: 1, a: 1500 }]);
same('addPartition', db.prices.addPartition(), { ok: 1 });
same('addPartition with an end', db.prices.addPartition({ a: 1600 }), { ok: 1 });
db.prices.insertOne({ _id: 2, a: 1700 });
db.prices.addPartition({ a: 2000, _id: MaxKey() });
const found = db.prices.getPartitionInfo();
same('getPartitionInfo', found.partitions.map((one) => one._id), [0, 1, 2, 3]);
same('its ends', found.partitions.slice(0, 2).map((one) => one.max), [{ a: 1500, _id: 1 }, { a: 1600, _id: null }]);
same('dropPartition', db.prices.dropPartition(1), { ok: 1 });
same('one less', db.prices.getPartitionInfo().partitions.map((one) => one._id), [0, 2, 3]);
same('dropPartitionsLEQ', db.prices.dropPartitionsLEQ({ a: 2000, _id: MaxKey() }), { ok: 1 });
same('none of them', db.prices.getPartitionInfo().partitions.map((one) => one._id), [3]);
same('their documents', db.prices.countDocuments(), 0);

// Indexes.
same('ensureIndex', db.foo.ensureIndex({ n: 1 }, { clustering: true }).numIndexesAfter, 2);
holds('with its options', db.foo.getIndexes().some((index) => index.name === 'n_1' && index.clustering));
db.foo.ensureIndex({ a: 1, b: -1 });
holds('without', db.foo.getIndexes().some((index) => index.name === 'a_1_b_-1'));
fails('no such option', [197], () => db.foo.ensureIndex({ x: 1 }, { clusterin: true }));
db.foo.dropIndex('a_1_b_-1');
same('reIndex of all', db.foo.reIndex().nIndexes, 2);
const shape = db.foo.reIndex('n_1', { compression: 'zlib', fanout: 8 }).was;
same('reIndex says what was', [shape.compression, shape.fanout], ['zstd', 64]);
same('by its key', db.foo.reIndex({ n: 1 }, { fanout: 16 }).was.compression, 'zlib');
same('of each', Object.keys(db.foo.reIndex('*', { fanout: 4 }).was), ['_id_', 'n_1']);

// What the server has not: an error of its own.
for (const [name, action] of Object.entries({
  oplogPartitionInfo: () => rs.oplogPartitionInfo(),
  oplogRefsPartitionInfo: () => rs.oplogRefsPartitionInfo(),
  addPartition: () => rs.addPartition(),
  trimToTS: () => rs.trimToTS(new Date()),
  trimToGTID: () => rs.trimToGTID(GTID(1, 4)),
})) {
  fails(`rs.${name}`, [20, 26, 59, 238], action);
}

// Global transaction identifiers, as the manual shows them.
same('GTID', GTID(1, 4), BinData(0, 'AAAAAAAAAAEAAAAAAAAABA=='));
same('printGTID', BinData(0, 'AAAAAAAAAAEAAAAAAAAAAw==').printGTID(), 'GTID(1, 3)');
same('its halves', [GTID(7, 9).GTIDPri().toString(), GTID(Long('9007199254740993'), 9).GTIDPri().toString(),
  GTID(7, 9).GTIDSec().toString()], ['7', '9007199254740993', '9']);

// What mongosh has is there still.
same('mongosh', db.getCollection('foo').find({ _id: 1 }).toArray(), [{ _id: 1 }]);
holds('replica sets', typeof rs.status === 'function' && typeof rs.initiate === 'function');

db.dropDatabase();
print(`tokumx.js: ${passed} passed, 0 failed`);
