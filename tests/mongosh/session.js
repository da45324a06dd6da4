// A user's first hour in mongosh: every line must do what the manual says, none may surprise.
// Run by tests/mongosh_session.py; prints `mongosh: N passed, 0 failed` as its last line.

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

function fails(what, code, action) {
  try {
    action();
  } catch (error) {
    same(what, error.code, code);
    return;
  }
  throw new Error(`${what}: no error`);
}

db = db.getSiblingDB('shell');
db.dropDatabase();

// insert and find
same('insertOne', db.plants.insertOne({ _id: 1, name: 'fern', height: 40 }).acknowledged, true);
same('insertMany', Object.keys(db.plants.insertMany([
  { _id: 2, name: 'moss', height: 2, where: ['wood', 'wall'] },
  { _id: 3, name: 'oak', height: 3000, leaf: { shape: 'lobed', count: Long('200000') } },
  { _id: 4, name: 'reed', height: 250.5, seen: ISODate('2026-01-02T03:04:05Z') },
]).insertedIds).length, 3);
same('findOne', db.plants.findOne({ name: 'fern' }), { _id: 1, name: 'fern', height: 40 });
same('find, sort, project', db.plants.find({ height: { $gt: 10 } }, { _id: 0, name: 1 })
  .sort({ height: -1 }).toArray(), [{ name: 'oak' }, { name: 'reed' }, { name: 'fern' }]);
same('dotted path', db.plants.find({ 'leaf.shape': /^lob/ }).count(), 1);
same('array', db.plants.countDocuments({ where: 'wall' }), 1);
same('skip, limit', db.plants.find().sort({ _id: 1 }).skip(1).limit(2).toArray().map((d) => d._id), [2, 3]);
same('distinct', db.plants.distinct('where').sort(), ['wall', 'wood']);
fails('duplicate key', 11000, () => db.plants.insertOne({ _id: 1 }));

// update and delete
same('updateOne', db.plants.updateOne({ _id: 1 }, { $inc: { height: 2 }, $push: { where: 'wood' } })
  .modifiedCount, 1);
same('updateMany', db.plants.updateMany({}, { $set: { checked: true } }).modifiedCount, 4);
same('upsert', db.plants.updateOne({ name: 'ivy' }, { $set: { height: 900 } }, { upsert: true })
  .upsertedCount, 1);
same('arrayFilters', db.plants.updateOne({ _id: 2 }, { $set: { 'where.$[w]': 'roof' } },
  { arrayFilters: [{ w: 'wall' }] }).modifiedCount, 1);
same('pipeline update', db.plants.findOneAndUpdate({ _id: 4 },
  [{ $set: { metres: { $divide: ['$height', 100] } } }], { returnDocument: 'after' }).metres, 2.505);
same('replaceOne', db.plants.replaceOne({ _id: 3 }, { name: 'elm' }).modifiedCount, 1);
same('deleteOne', db.plants.deleteOne({ name: 'ivy' }).deletedCount, 1);
same('bulkWrite', db.plants.bulkWrite([
  { insertOne: { document: { _id: 9 } } },
  { updateOne: { filter: { _id: 9 }, update: { $set: { a: 1 } } } },
  { deleteOne: { filter: { _id: 9 } } },
]).deletedCount, 1);

// indexes and explain
same('createIndex', db.plants.createIndex({ height: 1, name: -1 }), 'height_1_name_-1');
same('unique index', db.plants.createIndex({ name: 1 }, { unique: true }), 'name_1');
fails('unique violation', 11000, () => db.plants.insertOne({ name: 'moss' }));
same('getIndexes', db.plants.getIndexes().map((i) => i.name).sort(),
  ['_id_', 'height_1_name_-1', 'name_1']);
const plan = db.plants.find({ height: { $gte: 2 } }).explain().queryPlanner.winningPlan;
holds('explain names the index', JSON.stringify(plan).includes('height_1_name_-1'));
const stats = db.plants.find({ name: 'moss' }).explain('executionStats').executionStats;
same('executionStats', [stats.nReturned, stats.totalKeysExamined, stats.totalDocsExamined], [1, 1, 1]);
holds('aggregate explain', db.plants.explain().aggregate([{ $match: { name: 'moss' } }]).ok === 1);
same('hint', db.plants.find({ height: 2 }).hint('height_1_name_-1').toArray().length, 1);
fails('bad hint', 2, () => db.plants.find().hint('nothing').toArray());
same('dropIndex', db.plants.dropIndex('name_1').ok, 1);

// aggregate
db.orders.insertMany([...Array(200).keys()].map((i) => (
  { _id: i, item: ['a', 'b', 'c'][i % 3], n: i, plant: (i % 4) + 1 })));
same('$group', db.orders.aggregate([
  { $match: { n: { $lt: 9 } } },
  { $group: { _id: '$item', total: { $sum: '$n' }, most: { $max: '$n' } } },
  { $sort: { _id: 1 } },
]).toArray(), [
  { _id: 'a', total: 9, most: 6 }, { _id: 'b', total: 12, most: 7 }, { _id: 'c', total: 15, most: 8 },
]);
same('$lookup', db.orders.aggregate([
  { $match: { _id: 1 } },
  { $lookup: { from: 'plants', localField: 'plant', foreignField: '_id', as: 'of' } },
  { $unwind: '$of' }, { $project: { _id: 0, name: '$of.name' } },
]).toArray(), [{ name: 'moss' }]);
same('$facet', db.orders.aggregate([{ $facet: {
  count: [{ $count: 'n' }], top: [{ $sort: { n: -1 } }, { $limit: 1 }, { $project: { n: 1 } }],
} }]).toArray(), [{ count: [{ n: 200 }], top: [{ _id: 199, n: 199 }] }]);
same('$sortByCount', db.orders.aggregate([{ $sortByCount: '$item' }, { $limit: 1 }]).toArray(),
  [{ _id: 'a', count: 67 }].map((d) => d));
same('$out', db.orders.aggregate([{ $match: { n: { $gte: 190 } } }, { $out: 'late' }]).toArray(), []);
same('$out wrote', db.late.countDocuments(), 10);
same('$merge', db.orders.aggregate([{ $match: { n: 0 } }, { $merge: 'late' }]).toArray(), []);
same('$merge wrote', db.late.countDocuments(), 11);
same('$sample', db.orders.aggregate([{ $sample: { size: 3 } }]).toArray().length, 3);

// a cursor over many batches
const cursor = db.orders.find().sort({ _id: 1 }).batchSize(7);
let seen = 0;
while (cursor.hasNext()) same(`batch document ${seen}`, cursor.next()._id, seen++);
same('whole cursor', seen, 200);

// what a user looks at
holds('show dbs', db.adminCommand({ listDatabases: 1 }).databases.some((d) => d.name === 'shell'));
same('show collections', db.getCollectionNames().sort(), ['late', 'orders', 'plants']);
same('collection stats', db.orders.stats().count, 200);
same('db.stats', [db.stats().objects >= 200, db.stats().collections], [true, 3]);
holds('serverStatus', db.serverStatus().opcounters.insert > 0);
holds('hostInfo', db.hostInfo().ok === 1);
holds('version', /^8\.0\./.test(db.version()));
holds('currentOp', Array.isArray(db.currentOp().inprog));
holds('validate', db.orders.validate({ full: true }).valid);
holds('getLog', db.adminCommand({ getLog: 'startupWarnings' }).ok === 1);
holds('hello', db.hello().isWritablePrimary === true);
holds('isMaster', db.isMaster().ismaster === true);
same('estimatedDocumentCount', db.orders.estimatedDocumentCount(), 200);
same('renameCollection', db.late.renameCollection('early').ok, 1);
same('drop', db.early.drop(), true);
fails('unknown command', 59, () => db.runCommand({ noSuchThing: 1 }).ok);
fails('unknown operator', 2, () => db.orders.find({ n: { $near2: 1 } }).toArray());
fails('unknown stage', 40324, () => db.orders.aggregate([{ $nothing: 1 }]).toArray());
same('dropDatabase', db.dropDatabase().ok, 1);
print(`mongosh: ${passed} passed, 0 failed`);
