// Mongoose's guide, one example after the other: schemas, validation, population, middleware,
// virtuals, discriminators, queries, aggregation, transactions, timestamps, indexes.
//
// Run by tests/node_test.py with the URI of a replica set of one. Prints one line a check.
import assert from "node:assert/strict";
import { check, finish } from "./check.mjs";
import mongoose from "mongoose";

const { Schema } = mongoose;
await mongoose.connect(process.argv[2], { dbName: "mongoose_guide" });
await mongoose.connection.dropDatabase();

await check("the first page: kittens", async () => {
  const kittySchema = new Schema({ name: String });
  kittySchema.methods.speak = function speak() {
    return this.name ? `Meow name is ${this.name}` : "I don't have a name";
  };
  const Kitten = mongoose.model("Kitten", kittySchema);
  const fluffy = new Kitten({ name: "fluffy" });
  await fluffy.save();
  assert.equal((await Kitten.find({ name: /^fluff/ }))[0].speak(), "Meow name is fluffy");
});

const blogSchema = new Schema({
  title: { type: String, required: true, unique: true }, body: String,
  comments: [{ body: String, date: Date }], meta: { votes: { type: Number, min: 0 }, favs: Number },
  tags: { type: [String], index: true },
}, { timestamps: true, optimisticConcurrency: true });
blogSchema.virtual("shout").get(function shout() { return this.title.toUpperCase(); });
blogSchema.statics.titled = function titled(title) { return this.findOne({ title }); };
blogSchema.query.tagged = function tagged(tag) { return this.where({ tags: tag }); };
const seen = [];
blogSchema.pre("save", function before() { seen.push(`save ${this.title}`); });
blogSchema.post("findOneAndUpdate", (document) => { seen.push(`updated ${document.title}`); });
const Blog = mongoose.model("Blog", blogSchema);

await check("indexes are made by the model, and a unique one holds", async () => {
  await Blog.init();
  await Blog.create({ title: "one", tags: ["a", "b"], meta: { votes: 1 } });
  const error = await Blog.create({ title: "one" }).catch((e) => e);
  assert.equal(error.code, 11000);
  const names = Object.keys(await Blog.collection.indexInformation());
  assert.deepEqual(names.sort(), ["_id_", "tags_1", "title_1"]);
  assert.deepEqual(await Blog.syncIndexes(), []);
});

await check("validation fails before the server is asked", async () => {
  const error = await Blog.create({ meta: { votes: -1 } }).catch((e) => e);
  assert(error.errors.title && error.errors["meta.votes"]);
});

await check("arrays of subdocuments: push, id, pull", async () => {
  const blog = await Blog.titled("one");
  blog.comments.push({ body: "first", date: new Date() }, { body: "second" });
  await blog.save();
  blog.comments.id(blog.comments[0]._id).body = "changed";
  blog.comments.pull(blog.comments[1]._id);
  await blog.save();
  const stored = await Blog.findById(blog._id).lean();
  assert.deepEqual(stored.comments.map((c) => c.body), ["changed"]);
  assert(stored.updatedAt >= stored.createdAt);
  assert.equal(blog.shout, "ONE");
});

await check("two writers of one document: the second is told", async () => {
  const [a, b] = [await Blog.titled("one"), await Blog.titled("one")];
  a.body = "a"; await a.save();
  b.body = "b";
  const error = await b.save().catch((e) => e);
  assert.equal(error.name, "VersionError");
});

await check("query helpers, chaining, cursors, counting, exists", async () => {
  await Blog.insertMany(Array.from({ length: 20 }, (_, i) => ({ title: `t${i}`, tags: [i % 2 ? "odd" : "even"], meta: { votes: i } })));
  assert.equal((await Blog.find().tagged("odd")).length, 10);
  const some = await Blog.find().where("meta.votes").gt(3).lt(9).sort("-meta.votes").limit(2).select("title -_id").lean();
  assert.deepEqual(some, [{ title: "t8" }, { title: "t7" }]);
  let n = 0;
  for await (const _ of Blog.find().cursor({ batchSize: 3 })) n += 1;
  assert.equal(n, 21);
  assert.equal(await Blog.countDocuments({ tags: "even" }), 10);
  assert(await Blog.exists({ title: "t3" }));
  assert.equal(await Blog.exists({ title: "none" }), null);
});

await check("findOneAndUpdate, updateMany, upsert, deleteMany; middleware ran", async () => {
  const updated = await Blog.findOneAndUpdate({ title: "t1" }, { $inc: { "meta.votes": 100 } }, { new: true });
  assert.equal(updated.meta.votes, 101);
  const many = await Blog.updateMany({ tags: "odd" }, { $addToSet: { tags: "new" } });
  assert.equal(many.modifiedCount, 10);
  const upserted = await Blog.findOneAndUpdate({ title: "up" }, { body: "x" }, { upsert: true, new: true, setDefaultsOnInsert: true });
  assert.equal(upserted.title, "up");
  assert.equal((await Blog.deleteMany({ tags: "even" })).deletedCount, 10);
  assert(seen.includes("save one") && seen.includes("updated t1"));
});

await check("population, nested and of arrays", async () => {
  const Person = mongoose.model("Person", new Schema({ name: String, age: Number, stories: [{ type: Schema.Types.ObjectId, ref: "Story" }] }));
  const Story = mongoose.model("Story", new Schema({ author: { type: Schema.Types.ObjectId, ref: "Person" }, title: String, fans: [{ type: Schema.Types.ObjectId, ref: "Person" }] }));
  const author = await Person.create({ name: "Ian Fleming", age: 50 });
  const fan = await Person.create({ name: "Fan" });
  const story = await Story.create({ title: "Casino Royale", author: author._id, fans: [author._id, fan._id] });
  author.stories.push(story); await author.save();
  const found = await Story.findOne({ title: "Casino Royale" }).populate("author").populate({ path: "fans", match: { age: { $exists: false } }, select: "name -_id" });
  assert.equal(found.author.name, "Ian Fleming");
  assert.deepEqual(found.fans.map((f) => f.name), ["Fan"]);
  const deep = await Person.findOne({ name: "Ian Fleming" }).populate({ path: "stories", populate: { path: "fans" } });
  assert.equal(deep.stories[0].fans.length, 2);
});

await check("discriminators share a collection", async () => {
  const Event = mongoose.model("Event", new Schema({ time: Date }, { discriminatorKey: "kind" }));
  const Clicked = Event.discriminator("ClickedLink", new Schema({ url: String }));
  await Event.create({ time: new Date() });
  await Clicked.create({ time: new Date(), url: "u" });
  assert.equal(await Event.countDocuments(), 2);
  assert.equal((await Clicked.find())[0].url, "u");
});

await check("maps, decimals, buffers, mixed, uuid", async () => {
  const Kinds = mongoose.model("Kinds", new Schema({
    map: { type: Map, of: Number }, price: Schema.Types.Decimal128, bytes: Buffer, any: Schema.Types.Mixed,
    uuid: Schema.Types.UUID, big: BigInt,
  }));
  const uuid = "7a2b3c4d-1111-4222-8333-444455556666";
  await Kinds.create({ map: { a: 1 }, price: "1.50", bytes: Buffer.from("x"), any: { deep: [1] }, uuid, big: 9007199254740993n });
  const found = await Kinds.findOne();
  assert.equal(found.map.get("a"), 1);
  assert.equal(found.price.toString(), "1.50");
  assert.equal(found.big, 9007199254740993n);
  assert.equal(found.uuid.toString(), uuid);
  found.any.deep.push(2); found.markModified("any"); found.map.set("b", 2); await found.save();
  assert.deepEqual((await Kinds.findOne().lean()).any, { deep: [1, 2] });
});

await check("aggregation, bulkWrite, bulkSave, explain", async () => {
  const grouped = await Blog.aggregate().unwind("tags").group({ _id: "$tags", n: { $sum: 1 } }).sort({ _id: 1 });
  assert.deepEqual(grouped.map((g) => g._id), ["a", "b", "new", "odd"]);
  const result = await Blog.bulkWrite([
    { insertOne: { document: { title: "bulk" } } }, { updateOne: { filter: { title: "bulk" }, update: { body: "x" } } },
  ]);
  assert.deepEqual([result.insertedCount, result.modifiedCount], [1, 1]);
  const documents = await Blog.find({ tags: "odd" });
  documents.forEach((d) => { d.body = "saved"; });
  await Blog.bulkSave(documents);
  assert.equal(await Blog.countDocuments({ body: "saved" }), 10);
  const plan = await Blog.find({ title: "bulk" }).explain();
  assert(JSON.stringify(plan).includes("title_1"));
});

await check("transactions: session.withTransaction and connection.transaction", async () => {
  const Customer = mongoose.model("Customer", new Schema({ name: String }));
  await Customer.createCollection();
  const session = await mongoose.startSession();
  const error = await session.withTransaction(async () => {
    await Customer.create([{ name: "Test" }], { session });
    assert.equal(await Customer.findOne({ name: "Test" }), null);
    assert(await Customer.findOne({ name: "Test" }).session(session));
    throw new Error("undo");
  }).catch((e) => e);
  assert.equal(error.message, "undo");
  await session.endSession();
  assert.equal(await Customer.countDocuments(), 0);
  await mongoose.connection.transaction(async (s) => {
    const c = new Customer({ name: "Kept" });
    await c.save({ session: s });
  });
  assert.equal(await Customer.countDocuments(), 1);
});

await check("capped, time-series and collated schemas", async () => {
  const Log = mongoose.model("Log", new Schema({ n: Number }, { capped: { size: 4096, max: 2 } }));
  // The model makes its collection by itself, and an insert must not be faster.
  await Log.init();
  await Log.create([{ n: 1 }, { n: 2 }, { n: 3 }], { ordered: true });
  assert.equal(await Log.countDocuments(), 2);
  const Stock = mongoose.model("Stock", new Schema({ symbol: String, timestamp: Date, price: Number },
    { timeseries: { timeField: "timestamp", metaField: "symbol", granularity: "seconds" }, autoCreate: false }));
  await Stock.createCollection();
  await Stock.create({ symbol: "X", timestamp: new Date(), price: 1 });
  assert.equal(await Stock.countDocuments({ symbol: "X" }), 1);
  const Word = mongoose.model("Word", new Schema({ w: String }, { collation: { locale: "en", strength: 1 } }));
  await Word.init();
  await Word.create([{ w: "Été" }, { w: "ete" }]);
  assert.equal((await Word.find({ w: "ETE" })).length, 2);
});

await mongoose.connection.dropDatabase();
await mongoose.disconnect();
finish();
