//! Many threads increment few documents, each statement by itself: conflicts are the server's
//! affair, no error reaches a client, and no increment is lost or done twice.

use crate::server::{Server, ServerOptions, now};
use anyhow::{Result, bail, ensure};
use hdrhistogram::Histogram;
use mongodb::bson::{Document, doc};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: ServerOptions,
    #[arg(long, default_value_t = 64)]
    threads: u32,
    #[arg(long, default_value_t = 4)]
    documents: i64,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// As a replica set, with the driver's retryable writes.
    #[arg(long)]
    replica_set: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let server = Server::start(&options.server, options.replica_set)?;
    let client = server.client("directConnection=true&maxPoolSize=200")?;
    let counters = client.database("test").collection::<Document>("counters");
    let zeros = (0..options.documents).map(|id| doc! { "_id": id, "n": 0_i64 });
    counters.insert_many(zeros).run()?;
    let (cpu, started) = (server.cpu_micros()?, now());
    let until = started + Duration::from_secs(options.seconds);
    let one_thread = || -> Result<Histogram<u64>> {
        let mut waits = Histogram::new(3)?;
        let mut from = now();
        while from < until {
            let id = rand::random_range(0..options.documents);
            counters.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1_i64 } }).run()?;
            let then = now();
            waits.record((then - from).as_micros() as u64)?;
            from = then;
        }
        Ok(waits)
    };
    let waits = std::thread::scope(|scope| -> Result<Histogram<u64>> {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(one_thread)).collect();
        let mut all = Histogram::new(3)?;
        for thread in threads {
            match thread.join() {
                Ok(waits) => all.add(waits?)?,
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(all)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let used = server.cpu_micros()? - cpu;
    let mut sum = 0;
    for counter in counters.find(doc! {}).run()? {
        sum += counter?.get_i64("n")?;
    }
    let done = waits.len();
    ensure!(sum == done as i64, "{done} increments were acknowledged, the counters say {sum}");
    println!(
        "contention: {} threads, {} documents: no error, {:.0} increments a second, p50 {} us, \
         p99 {} us, {:.1} us of server CPU each",
        options.threads,
        options.documents,
        done as f64 / seconds,
        waits.value_at_quantile(0.5),
        waits.value_at_quantile(0.99),
        used as f64 / done as f64
    );
    Ok(())
}
