// The helpers of TokuMX's shell, for mongosh:
//
//   mongosh "mongodb://127.0.0.1:27017/shop?maxPoolSize=1&retryWrites=false" --shell tokumx.js
//
// What is always true:
// 1. A helper sends the command that TokuMX's own helper sent, and gives back the server's reply. What the server
//    refuses is an error; nothing is answered here.
// 2. A transaction belongs to a connection, and mongosh has many, so that a statement could get outside of it. None is
//    begun where the connection string does not hold mongosh to one (maxPoolSize=1), or where writes are repeated by
//    number (retryWrites), which the server refuses inside. When the connection is lost, the transaction is undone and
//    mongosh opens another one by itself: the commit then says that there is no transaction.
// 3. What mongosh has is not changed, but for reIndex and ensureIndex, which take what TokuMX's took. (createIndex of
//    mongosh leaves out what it does not know, such as clustering and compression, without a word.)

(() => {
  const databases = Object.getPrototypeOf(db);
  const collections = Object.getPrototypeOf(db.getCollection('tokumx'));
  const binaries = Object.getPrototypeOf(BinData(0, ''));

  // The options of the connection string, their names in small letters.
  function connectionOptions(database) {
    const uri = database.getMongo().getURI();
    const from = uri.indexOf('?');
    const pairs = from < 0 ? [] : uri.slice(from + 1).split('&');
    return Object.fromEntries(pairs.map((pair) => {
      const [name, value = ''] = pair.split('=');
      return [name.toLowerCase(), value.toLowerCase()];
    }));
  }

  function needOneConnection(database) {
    const options = connectionOptions(database);
    const missing = [];
    if (options.maxpoolsize !== '1') missing.push('maxPoolSize=1');
    if (options.retrywrites !== 'false') missing.push('retryWrites=false');
    if (missing.length) {
      throw new Error('a transaction belongs to one connection: start mongosh with a connection string that ends in ' +
        '?maxPoolSize=1&retryWrites=false (it lacks ' + missing.join(' and ') + ')');
    }
  }

  // Of the command that takes a collection's name, what is not given left out.
  function onCollection(collection, command, options) {
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    return collection.getDB().runCommand({ [command]: collection.getName(), ...Object.fromEntries(given) });
  }

  function onOplog(name) {
    return db.getSiblingDB('local').runCommand({ getPartitionInfo: name });
  }

  Object.assign(databases, {
    beginTransaction(isolation) {
      needOneConnection(this);
      return this.runCommand(isolation === undefined ? { beginTransaction: 1 } : { beginTransaction: 1, isolation });
    },
    commitTransaction() {
      return this.runCommand({ commitTransaction: 1 });
    },
    rollbackTransaction() {
      return this.runCommand({ rollbackTransaction: 1 });
    },
    showLiveTransactions() {
      return this.runCommand({ showLiveTransactions: 1 });
    },
    showPendingLockRequests() {
      return this.runCommand({ showPendingLockRequests: 1 });
    },
    getParameter(name) {
      return this.adminCommand({ getParameter: 1, [name]: 1 });
    },
    setParameter(name, value) {
      return this.adminCommand({ setParameter: 1, [name]: value });
    },
    engineStatus() {
      return this.adminCommand({ engineStatus: 1 });
    },
    checkpoint() {
      return this.adminCommand({ checkpoint: 1 });
    },
  });

  Object.assign(collections, {
    addPartition(newMax) {
      return onCollection(this, 'addPartition', { newMax });
    },
    dropPartition(id) {
      return onCollection(this, 'dropPartition', { id });
    },
    dropPartitionsLEQ(max) {
      return onCollection(this, 'dropPartition', { max });
    },
    getPartitionInfo() {
      return onCollection(this, 'getPartitionInfo', {});
    },
    reIndex(index, options) {
      return onCollection(this, 'reIndex', { index, options });
    },
    ensureIndex(key, options = {}) {
      if (typeof options !== 'object' || options === null) throw new Error('the options of an index are a document');
      const name = Object.entries(key).flat().join('_');
      return onCollection(this, 'createIndexes', { indexes: [{ name, ...options, key }] });
    },
  });

  // Not `rs` itself, which is another one after each `use`.
  Object.assign(Object.getPrototypeOf(rs), {
    oplogPartitionInfo() {
      return onOplog('oplog.rs');
    },
    oplogRefsPartitionInfo() {
      return onOplog('oplog.refs');
    },
    addPartition() {
      return db.adminCommand({ replAddPartition: 1 });
    },
    trimToTS(ts) {
      return db.adminCommand({ replTrimOplog: 1, ts });
    },
    trimToGTID(gtid) {
      return db.adminCommand({ replTrimOplog: 1, gtid });
    },
  });

  // A term and a number in it, in two times eight bytes from the highest on.
  function half(binary, from) {
    const bytes = Array.from(binary.buffer).slice(from, from + 8);
    if (binary.length() !== 16) throw new Error('a GTID has 16 bytes');
    return bytes.reduce((number, byte) => number * 256n + BigInt(byte), 0n);
  }

  globalThis.GTID = function GTID(primary, secondary) {
    const bytes = Buffer.alloc(16);
    bytes.writeBigUInt64BE(BigInt(primary.toString()), 0);
    bytes.writeBigUInt64BE(BigInt(secondary.toString()), 8);
    return BinData(0, bytes.toString('base64'));
  };
  Object.assign(binaries, {
    GTIDPri() {
      return Long.fromString(half(this, 0).toString());
    },
    GTIDSec() {
      return Long.fromString(half(this, 8).toString());
    },
    printGTID() {
      return 'GTID(' + half(this, 0) + ', ' + half(this, 8) + ')';
    },
  });
})();
