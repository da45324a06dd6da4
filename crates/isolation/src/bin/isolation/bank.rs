//! Money moves between accounts, in transactions that also write a line of a ledger, while the
//! server is killed. At every look the sum is the first sum; at the end each acknowledged transfer
//! is in the ledger, and the ledger explains every balance.

use crate::server::{Server, ServerOptions, now, rest};
use crate::transaction::{Acknowledged, Running, Way};
use anyhow::{Context, Result, anyhow, bail, ensure};
use isolation::TxnOutcome;
use mongodb::bson::{Document, doc};
use mongodb::sync::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ACCOUNTS: i64 = 100;
const FIRST_BALANCE: i64 = 1000;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: ServerOptions,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[arg(long, default_value_t = 32)]
    threads: u32,
    #[arg(long, value_enum, default_value = "session")]
    way: Way,
}

#[derive(clap::Args)]
pub(crate) struct CostOptions {
    #[command(flatten)]
    server: ServerOptions,
    #[arg(long, default_value_t = 20_000)]
    transactions: u64,
    #[arg(long, value_enum, default_value = "session")]
    way: Way,
    #[arg(long, value_enum, default_value = "visible")]
    acknowledged: Acknowledged,
    /// How many clients at once, each on documents of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=ACCOUNTS as u64))]
    clients: u64,
}

/// What became of a transfer.
#[derive(PartialEq, Eq)]
enum Transfer {
    Done,
    Unknown,
    /// Nothing happened; poor, in conflict, or the server was away.
    Refused,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let server = Server::start(&options.server, options.way.needs_replica_set())?;
    open_accounts(&server.client("directConnection=true&journal=true")?)?;
    let (stop, number) = (AtomicBool::new(false), AtomicU64::new(0));
    let (done, looks, kills) = std::thread::scope(|scope| -> Result<_> {
        let killer = scope.spawn(|| server.torment(&stop));
        let looker = scope.spawn(|| look(&server, options.way, &stop));
        let spawn = |_| {
            scope.spawn(|| -> Result<Vec<i64>> {
                let client = server.client(options.way.parameters())?;
                let mut done = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let id = number.fetch_add(1, Ordering::Relaxed) as i64;
                    if transfer(&client, options.way, id) == Transfer::Done {
                        done.push(id);
                    }
                }
                Ok(done)
            })
        };
        let clients: Vec<_> = (0..options.threads).map(spawn).collect();
        let started = now();
        while started.elapsed() < Duration::from_secs(options.seconds)
            && !killer.is_finished()
            && !looker.is_finished()
        {
            rest(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for client in clients {
            done.extend(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        let looks = looker.join().map_err(|_| anyhow!("the looker panicked"))??;
        let kills = killer.join().map_err(|_| anyhow!("the killer panicked"))??;
        Ok((done, looks, kills))
    })?;
    let client = server.client(options.way.parameters())?;
    let unsure = audit(&client, options.way, &done)?;
    server.validate(&["accounts", "ledger"])?;
    println!(
        "bank: {} transfers acknowledged, {unsure} more happened unheard of, {looks} looks at the sum, \
         {kills} kills: the sum never changed, nothing acknowledged is lost",
        done.len()
    );
    Ok(())
}

fn open_accounts(client: &Client) -> Result<()> {
    let accounts = (0..ACCOUNTS).map(|id| doc! { "_id": id, "balance": FIRST_BALANCE });
    client.database("test").collection::<Document>("accounts").insert_many(accounts).run()?;
    Ok(())
}

fn transfer(client: &Client, way: Way, id: i64) -> Transfer {
    let from = rand::random_range(0..ACCOUNTS);
    let to = (from + rand::random_range(1..ACCOUNTS)) % ACCOUNTS;
    let amount = rand::random_range(1..100);
    let Ok(mut running) = Running::begin(client, way) else {
        rest(Duration::from_millis(10));
        return Transfer::Refused;
    };
    let statements = |running: &mut Running| -> Result<bool> {
        let payer = running.find("accounts", from)?.context("an account is gone")?;
        if payer.get_i64("balance")? < amount {
            return Ok(false);
        }
        running.upsert("accounts", from, doc! { "$inc": { "balance": -amount } })?;
        running.upsert("accounts", to, doc! { "$inc": { "balance": amount } })?;
        let line = doc! { "$set": { "from": from, "to": to, "amount": amount } };
        running.upsert("ledger", id, line)?;
        Ok(true)
    };
    if !matches!(statements(&mut running), Ok(true)) {
        running.abort();
        return Transfer::Refused;
    }
    match running.commit().0 {
        TxnOutcome::Committed => Transfer::Done,
        TxnOutcome::Unknown => Transfer::Unknown,
        TxnOutcome::Aborted => Transfer::Refused,
    }
}

/// Adds up all balances again and again; returns how often.
fn look(server: &Server, way: Way, stop: &AtomicBool) -> Result<u64> {
    let client = server.client(way.parameters())?;
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut running) = Running::begin(&client, way) else { continue };
        let Ok(accounts) = running.all("accounts") else {
            running.abort();
            continue;
        };
        if running.commit().0 == TxnOutcome::Committed {
            check_sum(&accounts)?;
            looks += 1;
        }
        rest(Duration::from_millis(20));
    }
    Ok(looks)
}

fn check_sum(accounts: &[Document]) -> Result<()> {
    let sum: i64 = accounts.iter().filter_map(|account| account.get_i64("balance").ok()).sum();
    ensure!(accounts.len() as i64 == ACCOUNTS, "{} accounts", accounts.len());
    ensure!(sum == ACCOUNTS * FIRST_BALANCE, "the sum is {sum}");
    Ok(())
}

/// Accounts against the ledger, the ledger against what was acknowledged; returns how many transfers
/// happened that nobody was told of.
fn audit(client: &Client, way: Way, acknowledged: &[i64]) -> Result<usize> {
    let mut running = Running::begin(client, way)?;
    let (accounts, ledger) = (running.all("accounts")?, running.all("ledger")?);
    running.commit();
    check_sum(&accounts)?;
    let mut balances: BTreeMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, FIRST_BALANCE)).collect();
    let mut written = BTreeSet::new();
    for line in &ledger {
        written.insert(line.get_i64("_id")?);
        let amount = line.get_i64("amount")?;
        *balances.entry(line.get_i64("from")?).or_default() -= amount;
        *balances.entry(line.get_i64("to")?).or_default() += amount;
    }
    if let Some(lost) = acknowledged.iter().find(|id| !written.contains(id)) {
        bail!("transfer {lost} was acknowledged and is lost");
    }
    for account in &accounts {
        let (id, balance) = (account.get_i64("_id")?, account.get_i64("balance")?);
        let expected = balances.get(&id).copied().unwrap_or_default();
        ensure!(expected == balance, "account {id} has {balance}, its ledger says {expected}");
        ensure!(balance >= 0, "account {id} is overdrawn: {balance}");
    }
    Ok(written.len() - acknowledged.len())
}

pub(crate) fn cost(options: &CostOptions) -> Result<()> {
    let server = Server::start(&options.server, options.way.needs_replica_set())?;
    open_accounts(&server.client("directConnection=true")?)?;
    let spend = |each: u64| spend_together(options, &server, each);
    let each = options.transactions / options.clients;
    spend(each / 10)?;
    let (before, started) = (server.cpu_micros()?, now());
    spend(each)?;
    let (used, done) = (server.cpu_micros()? - before, (each * options.clients) as f64);
    println!(
        "begin, two updates, commit ({:?}, {:?}): {:.1} us of server CPU, {:.0} a second from {} clients",
        options.way,
        options.acknowledged,
        used as f64 / done,
        done / started.elapsed().as_secs_f64(),
        options.clients
    );
    Ok(())
}

fn spend_together(options: &CostOptions, server: &Server, each: u64) -> Result<()> {
    std::thread::scope(|scope| {
        let spawn = |of| scope.spawn(move || spend_alone(options, server, of, each));
        let clients: Vec<_> = (0..options.clients).map(spawn).collect();
        for client in clients {
            client.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(())
    })
}

/// The transactions of one client, on the accounts that leave the remainder `of` by the number of clients.
fn spend_alone(options: &CostOptions, server: &Server, of: u64, transactions: u64) -> Result<()> {
    // The concern is the transaction's, not the connection's.
    let client = server.client("directConnection=true&maxPoolSize=1")?;
    for _ in 0..transactions {
        let mut running = Running::begin_with(&client, options.way, options.acknowledged)?;
        for _ in 0..2 {
            let id =
                rand::random_range(0..ACCOUNTS as u64 / options.clients) * options.clients + of;
            running.upsert("accounts", id as i64, doc! { "$inc": { "balance": 1 } })?;
        }
        if let Some(error) = running.commit().1 {
            return Err(error.into());
        }
    }
    Ok(())
}
