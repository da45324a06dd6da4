// Mongoose's helpers for transactions and its plain writes on a set whose primary dies meanwhile.
//
// Run by tests/odm_failover_test.py with the URI of the set. Prints a line for every ten rounds; ends when its
// standard input does, with what it was told was written. Any error that reaches it ends it with 1, but for one
// that is the driver's own, with any server: where its monitor sees the primary die before the operation's
// connection does, the driver (`decorateCommandError`, a stale connection) gives the error without the label that
// would have it tried again. Then the program looks whether it was done; how often that was is said at the end.
import assert from "node:assert/strict";
import mongoose from "mongoose";

const { Schema } = mongoose;
await mongoose.connect(process.argv[2], { dbName: "failover", retryWrites: true, retryReads: true, w: "majority" });
const Account = mongoose.model("Account", new Schema({ _id: Number, coins: Number }));
const Entry = mongoose.model("Entry", new Schema({ round: Number, from: Number, to: Number }));
const Note = mongoose.model("Note", new Schema({ round: { type: Number, unique: true }, seen: Number }));
const ACCOUNTS = 10;
await Promise.all([Account.init(), Entry.init(), Note.init()]);
await Account.create(Array.from({ length: ACCOUNTS }, (_, i) => ({ _id: i, coins: 100 })));

let stop = false;
process.stdin.on("end", () => { stop = true; }).resume();

let unlabelled = 0;

async function through(done, operation) {
  try {
    return await operation();
  } catch (error) {
    const ofTheDriver = error instanceof mongoose.mongo.MongoNetworkError && error.errorLabels.length === 0;
    if (!ofTheDriver) throw error;
    unlabelled += 1;
    return (await done()) ? undefined : operation();
  }
}

async function move(round, from, to, session) {
  const giver = await Account.findById(from).session(session);
  giver.coins -= 1;
  await giver.save({ session });
  await Account.updateOne({ _id: to }, { $inc: { coins: 1 } }, { session });
  await Entry.create([{ round, from, to }], { session });
}

let round = 0;
while (!stop) {
  const [from, to] = [round % ACCOUNTS, (round + 3) % ACCOUNTS];
  // The two ways of Mongoose's guide: the connection's helper, and the driver's by a session of its own.
  const now = round;
  await through(() => Entry.exists({ round: now }), async () => {
    if (now % 2 === 0) {
      await mongoose.connection.transaction((session) => move(now, from, to, session));
    } else {
      const session = await mongoose.startSession();
      await session.withTransaction(() => move(now, from, to, session));
      await session.endSession();
    }
  });
  await through(() => Note.exists({ round: now }), () => Note.create({ round: now }));
  await through(() => Note.exists({ round: now, seen: 1 }),
    () => Note.findOneAndUpdate({ round: now }, { $inc: { seen: 1 } }));
  const total = () => Account.aggregate([{ $group: { _id: null, coins: { $sum: "$coins" } } }]);
  const sum = await through(() => false, total);
  assert.equal(sum[0].coins, ACCOUNTS * 100);
  round += 1;
  if (round % 10 === 0) console.log(`${round} rounds`);
}
await mongoose.disconnect();
console.log(`done ${round}`);
console.error(`${unlabelled} errors of the driver without a label`);
