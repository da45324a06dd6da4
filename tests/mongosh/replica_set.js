// The helpers of mongosh for replica sets, on a set of three that is there, with two empty servers that may join it.
// Run by tests/mongosh_set_test.py, which sets `hosts` (three members, two to be added); its last line is `N passed, 0 failed`.

let passed = 0;

function holds(what, truth) {
  if (!truth) throw new Error(what);
  passed++;
}

function until(what, truth) {
  for (let n = 0; n < 600; n++) {
    try {
      if (truth()) {
        passed++;
        return;
      }
    } catch (error) {
      if (!/primary|closed|ECONNREFUSED/i.test(String(error))) throw error;
    }
    sleep(50);
  }
  throw new Error(`${what}: ${EJSON.stringify(rs.status())}`);
}

const states = () => Object.fromEntries(rs.status().members.map((member) => [member.name, member.stateStr]));
const primary = () => db.hello().primary;
const direct = (host) => new Mongo(`mongodb://${host}/?directConnection=true`).getDB('admin');
const [learner, arbiter] = hosts.slice(3);

// What it says of itself.
holds('status', rs.status().ok === 1 && rs.status().members.length === 3);
holds('conf', rs.conf().members.map((member) => member.host).join() === hosts.slice(0, 3).join());
holds('config is conf', EJSON.stringify(rs.config()) === EJSON.stringify(rs.conf()));
holds('hello', hosts.includes(rs.hello().primary) && rs.isMaster().ismaster);
db.getSiblingDB('shop').orders.insertOne({ _id: 1 });
holds('printReplicationInfo', JSON.stringify(rs.printReplicationInfo()).includes('oplog first event time'));
holds('getReplicationInfo', db.getReplicationInfo().timeDiff >= 0);
const told = JSON.stringify(rs.printSecondaryReplicationInfo());
const followers = hosts.slice(0, 3).filter((host) => host !== primary());
holds('printSecondaryReplicationInfo', followers.every((host) => told.includes(host)) && !told.includes(primary()));

// `local.system.replset` is the configuration: one document on every member, which nobody writes to.
for (const host of hosts.slice(0, 3)) {
  const local = direct(host).getSiblingDB('local');
  local.getMongo().setReadPref('secondaryPreferred');
  const stored = local.system.replset;
  holds('it is rs.conf()', EJSON.stringify(stored.findOne()) === EJSON.stringify(rs.conf()));
  holds('there is one', stored.countDocuments({}) === 1 && stored.estimatedDocumentCount() === 1);
  holds('it is counted with a filter', stored.countDocuments({ _id: 'no such set' }) === 0);
  holds('it is listed', local.getCollectionNames().includes('system.replset'));
  const stats = local.runCommand({ collStats: 'system.replset' });
  holds('its size', stats.count === 1 && stats.size > 0);
  for (const write of [() => stored.insertOne({}), () => stored.deleteMany({}), () => stored.drop()]) {
    let refused = false;
    try {
      write();
    } catch (error) {
      refused = true;
    }
    holds('nobody writes to it', refused && stored.countDocuments({}) === 1);
  }
  // What this server does not keep there is not there.
  for (const absent of ['startup_log', 'replset.minvalid', 'replset.initialSyncId', 'replset.election']) {
    holds(`${absent} is absent`, local[absent].countDocuments({}) === 0 && !local.getCollectionNames().includes(absent));
  }
  const log = local.oplog.rs.stats();
  const { capped, size, maxSize } = log;
  holds(`the size of the oplog: ${EJSON.stringify({ capped, size, maxSize })}`, capped && size > 0 && maxSize >= size);
}

// Members come and go.
holds('add', rs.add(learner).ok === 1);
until('it is a secondary', () => states()[learner] === 'SECONDARY');
holds('its documents', direct(learner).getMongo().setReadPref('secondaryPreferred') === undefined);
until('they are there', () => {
  const there = direct(learner);
  there.getMongo().setReadPref('secondaryPreferred');
  return there.getSiblingDB('shop').orders.countDocuments({}) === 1;
});
until('remove', () => rs.remove(learner).ok === 1);
until('it is gone', () => states()[learner] === undefined && rs.conf().members.length === 3);
until('addArb', () => rs.addArb(arbiter).ok === 1);
until('it is an arbiter', () => states()[arbiter] === 'ARBITER');
until('the arbiter is removed', () => rs.remove(arbiter).ok === 1);

// Who leads.
const other = hosts.slice(0, 3).find((host) => host !== primary());
const configuration = rs.conf();
configuration.members.find((member) => member.host === other).priority = 3;
holds('reconfig', rs.reconfig(configuration).ok === 1);
until('it leads', () => primary() === other);
const level = rs.conf();
level.members.forEach((member) => { member.priority = 1; });
until('reconfig again', () => rs.reconfig(level).ok === 1);
const frozen = hosts.slice(0, 3).find((host) => host !== primary());
holds('freeze', direct(frozen).adminCommand({ replSetFreeze: 60 }).ok === 1);
const before = primary();
holds('stepDown', rs.stepDown(30).ok === 1);
until('another one leads, and not the frozen one', () => primary() && primary() !== before && primary() !== frozen);
holds('freeze ends', direct(frozen).adminCommand({ replSetFreeze: 0 }).ok === 1);
holds('syncFrom', typeof rs.syncFrom === 'function');
holds('secondaryOk', rs.secondaryOk() === undefined);

print(`replica_set.js: ${passed} passed, 0 failed`);
