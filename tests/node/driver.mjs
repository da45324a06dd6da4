// The Node driver's guide, one example after the other: CRUD, bulk writes, aggregation, indexes,
// cursors, collations, GridFS, sessions and transactions, retryable writes, errors.
//
// Run by tests/node_test.py with the URI of a replica set of one. Prints one line a check.
import assert from "node:assert/strict";
import { check, finish } from "./check.mjs";
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  Binary, Decimal128, GridFSBucket, Long, MongoBulkWriteError, MongoClient, MongoServerError,
  ObjectId, Timestamp,
} from "mongodb";

const client = new MongoClient(process.argv[2]);
await client.connect();
const db = client.db("node_guide");
await db.dropDatabase();
const movies = db.collection("movies");

await check("insertOne and insertMany give ids", async () => {
  const one = await movies.insertOne({ title: "Well Done", year: 2004, genres: ["drama"] });
  assert(one.insertedId instanceof ObjectId);
  const many = await movies.insertMany(
    [{ title: "A", year: 1990 }, { title: "B", year: 2001, cast: [{ name: "X" }] }],
    { ordered: true });
  assert.equal(many.insertedCount, 2);
});

await check("findOne and find with sort, projection, skip and limit", async () => {
  const found = await movies.findOne({ title: "B" }, { projection: { _id: 0, title: 1 } });
  assert.deepEqual(found, { title: "B" });
  const titles = await movies.find({ year: { $gte: 1990 } }).sort({ year: -1 }).skip(1).limit(1)
    .project({ _id: 0, title: 1 }).toArray();
  assert.deepEqual(titles, [{ title: "B" }]);
});

await check("every type comes back as it was sent", async () => {
  const document = {
    _id: "types", long: Long.fromString("9007199254740993"), double: 1.5, int: 7, text: "ü€😀",
    decimal: Decimal128.fromString("1.10"), binary: new Binary(Buffer.from([0, 255])), when: new Date(5),
    none: null, nested: { a: [1, [2, { b: 3 }]] }, regex: /a.b/i, stamp: new Timestamp({ t: 4, i: 2 }),
    bool: false,
  };
  await movies.insertOne(document);
  const found = await movies.findOne({ _id: "types" }, { promoteLongs: false });
  assert.equal(found.long.toString(), "9007199254740993");
  assert.equal(found.decimal.toString(), "1.10");
  assert.equal(found.text, document.text);
  assert.deepEqual(found.when, document.when);
  assert.equal(String(found.regex), "/a.b/i");
  await movies.deleteOne({ _id: "types" });
});

await check("updateOne, updateMany, upsert, replaceOne", async () => {
  const one = await movies.updateOne({ title: "A" }, { $set: { plot: "a" }, $inc: { year: 1 } });
  assert.deepEqual([one.matchedCount, one.modifiedCount, one.upsertedId], [1, 1, null]);
  const many = await movies.updateMany({}, { $push: { tags: { $each: ["x", "y"], $slice: -1 } } });
  assert.equal(many.modifiedCount, 3);
  const upsert = await movies.updateOne({ title: "New" }, { $setOnInsert: { year: 2020 } }, { upsert: true });
  assert(upsert.upsertedId instanceof ObjectId);
  await movies.replaceOne({ title: "New" }, { title: "Newer" });
  assert.equal(await movies.countDocuments({ title: "Newer", year: { $exists: false } }), 1);
  const filtered = await db.collection("grades").insertOne({ grades: [80, 95, 102] });
  await db.collection("grades").updateOne({ _id: filtered.insertedId },
    { $set: { "grades.$[high]": 100 } }, { arrayFilters: [{ high: { $gt: 100 } }] });
  assert.deepEqual((await db.collection("grades").findOne()).grades, [80, 95, 100]);
});

await check("findOneAnd… give the document before or after", async () => {
  const before = await movies.findOneAndUpdate({ title: "A" }, { $set: { plot: "b" } });
  assert.equal(before.plot, "a");
  const after = await movies.findOneAndReplace({ title: "A" }, { title: "A", plot: "c" }, { returnDocument: "after" });
  assert.equal(after.plot, "c");
  const whole = await movies.findOneAndDelete({ title: "A" }, { includeResultMetadata: true });
  assert.equal(whole.value.plot, "c");
  assert.equal(await movies.findOneAndDelete({ title: "A" }), null);
});

await check("bulkWrite, ordered and not, tells what failed", async () => {
  const theaters = db.collection("theaters");
  const result = await theaters.bulkWrite([
    { insertOne: { document: { _id: 1, city: "x" } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { city: "y" } } } },
    { updateOne: { filter: { _id: 2 }, update: { $set: { city: "z" } }, upsert: true } },
    { deleteOne: { filter: { _id: 1 } } },
  ]);
  assert.deepEqual([result.insertedCount, result.modifiedCount, result.upsertedCount, result.deletedCount], [1, 1, 1, 1]);
  const error = await theaters.bulkWrite(
    [{ insertOne: { document: { _id: 2 } } }, { insertOne: { document: { _id: 3 } } }],
    { ordered: false }).catch((e) => e);
  assert(error instanceof MongoBulkWriteError);
  assert.equal(error.code, 11000);
  assert.equal(error.result.insertedCount, 1);
});

await check("duplicate keys and bad commands are MongoServerErrors with code and name", async () => {
  await movies.createIndex({ slug: 1 }, { unique: true, sparse: true });
  await movies.insertOne({ slug: "one" });
  const error = await movies.insertOne({ slug: "one" }).catch((e) => e);
  assert(error instanceof MongoServerError);
  assert.deepEqual([error.code, error.keyPattern, error.keyValue], [11000, { slug: 1 }, { slug: "one" }]);
  const unknown = await db.command({ nonsense: 1 }).catch((e) => e);
  assert.deepEqual([unknown.code, unknown.codeName], [59, "CommandNotFound"]);
});

await check("aggregation: group, lookup, unwind, facet, window", async () => {
  await db.collection("restaurants").insertMany([
    { name: "Sun", stars: 4, categories: ["Pizza", "Bakery"] }, { name: "Moon", stars: 3, categories: ["Bakery"] },
    { name: "Star", stars: 5, categories: ["Bakery"] },
  ]);
  await db.collection("owners").insertMany([{ of: "Sun", who: "Ann" }, { of: "Star", who: "Bob" }]);
  const grouped = await db.collection("restaurants").aggregate([
    { $match: { categories: "Bakery" } }, { $group: { _id: "$stars", count: { $sum: 1 } } }, { $sort: { _id: 1 } },
  ]).toArray();
  assert.deepEqual(grouped, [{ _id: 3, count: 1 }, { _id: 4, count: 1 }, { _id: 5, count: 1 }]);
  const joined = await db.collection("restaurants").aggregate([
    { $lookup: { from: "owners", localField: "name", foreignField: "of", as: "owner" } },
    { $unwind: { path: "$owner", preserveNullAndEmptyArrays: true } },
    { $setWindowFields: { sortBy: { stars: 1 }, output: { rank: { $rank: {} } } } },
    { $project: { _id: 0, name: 1, rank: 1, who: "$owner.who" } },
  ]).toArray();
  assert.deepEqual(joined, [{ name: "Moon", rank: 1 }, { name: "Sun", rank: 2, who: "Ann" }, { name: "Star", rank: 3, who: "Bob" }]);
  const [facets] = await db.collection("restaurants").aggregate([
    { $facet: { n: [{ $count: "n" }], best: [{ $sort: { stars: -1 } }, { $limit: 1 }] } },
  ]).toArray();
  assert.deepEqual([facets.n[0].n, facets.best[0].name], [3, "Star"]);
});

await check("distinct, countDocuments, estimatedDocumentCount", async () => {
  const restaurants = db.collection("restaurants");
  assert.deepEqual((await restaurants.distinct("categories")).sort(), ["Bakery", "Pizza"]);
  assert.equal(await restaurants.countDocuments({ stars: { $gt: 3 } }), 2);
  assert.equal(await restaurants.estimatedDocumentCount(), 3);
});

await check("indexes: compound, partial, TTL, wildcard, hidden; listed and dropped", async () => {
  const c = db.collection("indexed");
  await c.createIndexes([
    { key: { a: 1, b: -1 } }, { key: { c: 1 }, partialFilterExpression: { c: { $gt: 5 } } },
    { key: { at: 1 }, expireAfterSeconds: 3600 }, { key: { "$**": 1 }, name: "all" },
  ]);
  const names = (await c.indexes()).map((index) => index.name);
  assert.deepEqual(names, ["_id_", "a_1_b_-1", "c_1", "at_1", "all"]);
  await c.insertMany(Array.from({ length: 50 }, (_, i) => ({ a: i, x: { y: i } })));
  const plan = await c.find({ "x.y": 7 }).explain("executionStats");
  assert.equal(plan.executionStats.totalKeysExamined, 1);
  await c.dropIndex("all");
  assert.equal((await c.listIndexes().toArray()).length, 4);
});

await check("collation: case-insensitive find and index", async () => {
  const c = db.collection("names");
  await c.insertMany([{ n: "Zoë" }, { n: "zoe" }, { n: "ZOE" }]);
  assert.equal(await c.countDocuments({ n: "zoe" }, { collation: { locale: "en", strength: 2 } }), 2);
  assert.equal(await c.countDocuments({ n: "zoe" }, { collation: { locale: "en", strength: 1 } }), 3);
});

await check("a cursor goes on through many batches, and can be closed", async () => {
  const c = db.collection("many");
  await c.insertMany(Array.from({ length: 5000 }, (_, i) => ({ i })));
  let sum = 0;
  for await (const document of c.find({}, { batchSize: 100 })) sum += document.i;
  assert.equal(sum, (4999 * 5000) / 2);
  const cursor = c.find().batchSize(10);
  await cursor.next();
  await cursor.close();
  const stream = c.find().stream();
  let seen = 0;
  for await (const _ of stream) seen += 1;
  assert.equal(seen, 5000);
});

await check("GridFS: upload, list, download a part, rename, delete", async () => {
  const bucket = new GridFSBucket(db, { bucketName: "files", chunkSizeBytes: 100_000 });
  const bytes = randomBytes(1_234_567);
  const upload = bucket.openUploadStream("f.bin", { metadata: { kind: "test" } });
  await pipeline(Readable.from([bytes]), upload);
  const digest = createHash("sha256");
  for await (const chunk of bucket.openDownloadStreamByName("f.bin")) digest.update(chunk);
  assert.equal(digest.digest("hex"), createHash("sha256").update(bytes).digest("hex"));
  const part = [];
  for await (const chunk of bucket.openDownloadStream(upload.id, { start: 99_999, end: 200_001 })) part.push(chunk);
  assert(Buffer.concat(part).equals(bytes.subarray(99_999, 200_001)));
  await bucket.rename(upload.id, "g.bin");
  assert.equal((await bucket.find({ filename: "g.bin" }).toArray())[0].metadata.kind, "test");
  await bucket.delete(upload.id);
  assert.equal(await db.collection("files.chunks").countDocuments(), 0);
});

await check("transactions: committed, aborted, retried by withTransaction", async () => {
  const accounts = db.collection("accounts");
  await accounts.insertMany([{ _id: "a", sum: 10 }, { _id: "b", sum: 0 }]);
  await client.withSession(async (session) => session.withTransaction(async () => {
    await accounts.updateOne({ _id: "a" }, { $inc: { sum: -5 } }, { session });
    await accounts.updateOne({ _id: "b" }, { $inc: { sum: 5 } }, { session });
  }));
  const session = client.startSession();
  session.startTransaction({ readConcern: { level: "snapshot" }, writeConcern: { w: "majority" } });
  await accounts.updateOne({ _id: "a" }, { $inc: { sum: -5 } }, { session });
  assert.equal((await accounts.findOne({ _id: "a" })).sum, 5);
  await session.abortTransaction();
  await session.endSession();
  assert.deepEqual((await accounts.find().sort({ _id: 1 }).toArray()).map((d) => d.sum), [5, 5]);
});

await check("validators, capped and time-series collections, views", async () => {
  await db.createCollection("checked", { validator: { $jsonSchema: { required: ["name"] } } });
  const error = await db.collection("checked").insertOne({}).catch((e) => e);
  assert.equal(error.code, 121);
  assert(error.errInfo.details);
  await db.createCollection("log", { capped: true, size: 4096, max: 3 });
  await db.collection("log").insertMany([1, 2, 3, 4].map((_id) => ({ _id })));
  assert.deepEqual((await db.collection("log").find().toArray()).map((d) => d._id), [2, 3, 4]);
  await db.createCollection("weather", { timeseries: { timeField: "t", metaField: "m" } });
  await db.collection("weather").insertMany([{ t: new Date(), m: 1, v: 2 }, { t: new Date(0), m: 1, v: 3 }]);
  assert.equal(await db.collection("weather").countDocuments({ m: 1, t: { $lt: new Date(5) } }), 1);
  await db.createCollection("titles", { viewOn: "movies", pipeline: [{ $project: { title: 1 } }] });
  assert((await db.collection("titles").findOne({ title: "B" })).year === undefined);
  const kinds = Object.fromEntries((await db.listCollections().toArray()).map((c) => [c.name, c.type]));
  assert.deepEqual([kinds.weather, kinds.titles, kinds.log], ["timeseries", "view", "collection"]);
});

await check("a tailable cursor sees what arrives", async () => {
  const cursor = db.collection("log").find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 5000 });
  const seen = [];
  while (seen.length < 3) seen.push((await cursor.next())._id);
  const next = cursor.next();
  await db.collection("log").insertOne({ _id: 5 });
  assert.equal((await next)._id, 5);
  await cursor.close();
});

await check("client.bulkWrite where the server has it, else a clear error", async () => {
  const models = [{ namespace: "node_guide.cb", name: "insertOne", document: { a: 1 } }];
  const result = await client.bulkWrite(models).catch((e) => e);
  if (result instanceof Error) assert.match(result.message, /server version|not support/i);
  else assert.equal(result.insertedCount, 1);
});

await check("monitoring: hello, serverStatus, command events", async () => {
  const hello = await db.admin().command({ hello: 1 });
  assert(hello.isWritablePrimary);
  const events = [];
  const watched = new MongoClient(process.argv[2], { monitorCommands: true, compressors: ["zlib"] });
  watched.on("commandSucceeded", (event) => events.push(event.commandName));
  await watched.db("node_guide").command({ ping: 1 });
  await watched.close();
  assert(events.includes("ping"));
});

await db.dropDatabase();
await client.close();
finish();
