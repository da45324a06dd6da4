// What a client's code finds beside the language: BSON's types, and a few names of the shell's.
//
// The value of this file is what the server keeps for itself: how to make a BSON value
// (`make`), what a value is (`tag`), and what `emit` was given (`taken`). A client's code cannot
// reach these.
(() => {
  "use strict";
  const global = globalThis;
  const hidden = (object, name, value) =>
    Object.defineProperty(object, name, { value, enumerable: false });
  const ints = Symbol("ints");

  class ObjectId {
    constructor(text) {
      if (text === undefined) {
        text = "";
        for (let i = 0; i < 24; i++) text += Math.floor(Math.random() * 16).toString(16);
      }
      if (!/^[0-9a-fA-F]{24}$/.test(text)) throw new Error("invalid object id: length");
      hidden(this, "str", String(text).toLowerCase());
    }
    getTimestamp() { return new Date(parseInt(this.str.slice(0, 8), 16) * 1000); }
    equals(other) { return other instanceof ObjectId && other.str === this.str; }
    valueOf() { return this.str; }
    toString() { return `ObjectId("${this.str}")`; }
  }
  class NumberLong {
    constructor(value) {
      const whole = typeof value === "string" ? BigInt(value)
        : value instanceof NumberLong ? value.whole
        : typeof value === "bigint" ? value : BigInt(Math.trunc(Number(value ?? 0)));
      hidden(this, "whole", BigInt.asIntN(64, whole));
    }
    get top() { return Number(this.whole >> 32n); }
    get bottom() { return Number(this.whole & 0xffffffffn); }
    toNumber() { return Number(this.whole); }
    valueOf() { return Number(this.whole); }
    compare(other) {
      const that = new NumberLong(other).whole;
      return this.whole < that ? -1 : this.whole > that ? 1 : 0;
    }
    equals(other) { return this.compare(other) === 0; }
    toString() {
      const safe = this.whole <= 9007199254740991n && this.whole >= -9007199254740991n;
      return safe ? `NumberLong(${this.whole})` : `NumberLong("${this.whole}")`;
    }
  }
  class NumberInt {
    constructor(value) { hidden(this, "number", Number(value ?? 0) | 0); }
    toNumber() { return this.number; }
    valueOf() { return this.number; }
    toString() { return `NumberInt(${this.number})`; }
  }
  class NumberDecimal {
    constructor(value) { hidden(this, "text", String(value ?? "0")); }
    valueOf() { return Number(this.text); }
    toString() { return `NumberDecimal("${this.text}")`; }
  }
  class BinData {
    constructor(kind, base64) {
      hidden(this, "kind", kind);
      hidden(this, "text", base64);
    }
    get type() { return this.kind; }
    subtype() { return this.kind; }
    base64() { return this.text; }
    length() { return Math.floor(this.text.replace(/=+$/, "").length * 3 / 4); }
    hex() {
      let bits = 0, have = 0, out = "";
      const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      for (const digit of this.text.replace(/=+$/, "")) {
        bits = (bits << 6 | digits.indexOf(digit)) & 0xfff;
        have += 6;
        if (have >= 8) {
          have -= 8;
          out += (bits >> have & 0xff).toString(16).padStart(2, "0");
        }
      }
      return out;
    }
    toString() {
      if (this.kind !== 4) return `BinData(${this.kind},"${this.text}")`;
      return `UUID("${this.hex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")}")`;
    }
  }
  class Timestamp {
    constructor(time, increment) {
      hidden(this, "time", Number(time ?? 0) >>> 0);
      hidden(this, "increment", Number(increment ?? 0) >>> 0);
    }
    get t() { return this.time; }
    get i() { return this.increment; }
    getTime() { return this.time; }
    getInc() { return this.increment; }
    toString() { return `Timestamp(${this.time}, ${this.increment})`; }
  }
  class MinKey { toString() { return "MinKey"; } }
  class MaxKey { toString() { return "MaxKey"; } }
  class DBRef {
    constructor(ref, id, db) {
      this.$ref = ref;
      this.$id = id;
      if (db !== undefined) this.$db = db;
    }
  }

  const fromHex = (kind, text) => {
    const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let out = "", bits = 0, have = 0;
    for (const pair of text.match(/../g) ?? []) {
      bits = (bits << 8 | parseInt(pair, 16)) & 0xffff;
      have += 8;
      while (have >= 6) {
        have -= 6;
        out += digits[bits >> have & 63];
      }
    }
    if (have > 0) out += digits[bits << 6 - have & 63];
    return new BinData(kind, out + "=".repeat((4 - out.length % 4) % 4));
  };

  // Each may be called with and without `new`, as in the shell.
  const callable = (type) => new Proxy(type, { apply: (_, __, args) => new type(...args) });
  for (const type of [ObjectId, NumberLong, NumberInt, NumberDecimal, BinData, Timestamp, MinKey,
    MaxKey, DBRef]) {
    global[type.name] = callable(type);
  }
  global.ISODate = (text) => {
    const date = text === undefined ? new Date() : new Date(text);
    if (Number.isNaN(date.getTime())) throw new Error(`invalid ISO date: ${text}`);
    return date;
  };
  global.HexData = fromHex;
  global.UUID = (text) => fromHex(4, text.replace(/-/g, ""));
  global.MD5 = (text) => fromHex(5, text);
  global.print = () => undefined;
  global.isNumber = (value) => typeof value === "number" || value instanceof NumberLong;
  global.isString = (value) => typeof value === "string";
  global.isObject = (value) => typeof value === "object" && value !== null;
  hidden(Array, "contains", (list, value) => list.includes(value));
  hidden(Array, "sum", (list) => list.length ? list.reduce((a, b) => a + b) : null);
  hidden(Array, "avg", (list) => list.length ? Array.sum(list) / list.length : null);
  const tojson = (value) => {
    if (value === null || value === undefined) return String(value);
    if (typeof value === "string") return JSON.stringify(value);
    if (value instanceof Date) return `ISODate("${value.toISOString()}")`;
    if (Array.isArray(value)) return value.length ? `[ ${value.map(tojson).join(", ")} ]` : "[ ]";
    if (typeof value !== "object" || plain(value) === undefined) return value.toString();
    const fields = Object.keys(value).map((name) => `${JSON.stringify(name)} : ${tojson(value[name])}`);
    return fields.length ? `{ ${fields.join(", ")} }` : "{ }";
  };
  const plain = (value) => tag(value) === undefined || tag(value)[0] === "ints" ? true : undefined;
  global.tojson = tojson;
  global.tojsononeline = tojson;

  let emitted = [];
  global.emit = (key, value) => { emitted.push([key, value]); };
  const taken = () => {
    const all = emitted;
    emitted = [];
    return all;
  };

  const make = (kind, a, b) => {
    switch (kind) {
      case "oid": return new ObjectId(a);
      case "long": return new NumberLong(a);
      case "decimal": return new NumberDecimal(a);
      case "binary": return new BinData(a, b);
      case "timestamp": return new Timestamp(a, b);
      case "date": return new Date(a);
      case "regex": return new RegExp(a, b);
      case "min": return new MinKey();
      case "max": return new MaxKey();
      case "ints": hidden(a, ints, b); return a;
      default: return undefined;
    }
  };
  const tag = (value) => {
    if (typeof value === "function") return ["code", String(value)];
    if (value instanceof Date) return ["date", value.getTime()];
    if (value instanceof ObjectId) return ["oid", value.str];
    if (value instanceof NumberLong) return ["long", String(value.whole)];
    if (value instanceof NumberInt) return ["int", value.number];
    if (value instanceof NumberDecimal) return ["decimal", value.text];
    if (value instanceof BinData) return ["binary", value.kind, value.text];
    if (value instanceof Timestamp) return ["timestamp", value.time, value.increment];
    if (value instanceof RegExp) return ["regex", value.source, value.flags];
    if (value instanceof MinKey) return ["min"];
    if (value instanceof MaxKey) return ["max"];
    if (value instanceof Number || value instanceof String || value instanceof Boolean) {
      return ["primitive", value.valueOf()];
    }
    return value[ints] === undefined ? undefined : ["ints", value[ints]];
  };
  const compile = (source) => (0, eval)(source);
  return { make, tag, taken, compile };
})();
