//! One run: cold memory, then redis, then a load on redis. What moves memory starts before all of them, as in the
//! measurements of the patches, or with the load.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use isotherm_core::PAGE_SIZE;
use isotherm_kernel::memory_nodes;
use serde::{Deserialize, Serialize};

use super::mover::Mover;
use super::placement::{FAST, Moves, Pages, SLOW};
use super::redis::VALUE;
use super::server::{Client, find_values, start};
use super::steering::Steered;
use super::ycsb::Requests;
use super::{Configuration, Distribution};

/// Time between two looks at the pages of redis.
const LOOK: Duration = Duration::from_secs(1);

/// Time between two looks at the pages of cold memory, in seconds. There are many.
pub(super) const LOOK_AT_COLD: f64 = 5.0;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Where memory is.
    pub configuration: Configuration,
    /// The requests.
    pub distribution: Distribution,
    /// Cold memory, as a share of what is free on the fast node before the first run.
    pub cold_share: f64,
}

/// What all runs need.
#[derive(Debug)]
pub struct Runner {
    /// Path of isotherm.
    pub isotherm: PathBuf,
    /// Options for `isotherm tier run`.
    pub options: Vec<String>,
    /// The number of records in redis.
    pub records: u64,
    /// How long the load runs.
    pub time: Duration,
    /// Whether what moves memory starts with the load, and not before everything else.
    pub with_load: bool,
    /// What is free on the fast node before the first run, in bytes: see [`fast_free`].
    pub free_bytes: u64,
    /// A directory for the files of this measurement.
    pub place: PathBuf,
}

/// The state at one time of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the load began.
    pub time: f64,
    /// Memory of redis on the slow node, in bytes.
    pub slow_bytes: u64,
    /// The share of the accesses that the slow node serves, 0 to 1.
    pub slow_share: f64,
    /// Requests that redis has answered.
    pub answered: u64,
    /// Memory of redis and of the cold process that has moved.
    pub moves: Moves,
    /// Free memory on the fast node, in bytes.
    pub fast_free: u64,
}

/// The figures of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Where memory was.
    pub configuration: Configuration,
    /// The requests.
    pub distribution: Distribution,
    /// Cold memory, as a share of what was free on the fast node before the first run.
    pub cold_share: f64,
    /// Cold memory, in bytes.
    pub cold_bytes: u64,
    /// Cold memory on the slow node at the end, in bytes.
    pub cold_slow_bytes: u64,
    /// Memory of redis, in bytes.
    pub redis_bytes: u64,
    /// The state when the load began, and then every second.
    pub samples: Vec<Sample>,
    /// CPU time of isotherm or of the kdamonds during the load, in seconds.
    pub cpu_seconds: f64,
    /// What isotherm says about itself.
    pub steered: Option<Steered>,
}

/// A process that is killed when this is dropped.
pub(super) struct KillOnDrop(pub(super) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the load when it is dropped, also if a look at the pages fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Runner {
    /// Makes one run.
    ///
    /// # Errors
    /// If a program cannot be started or fails, or memory cannot be read.
    pub fn run(&self, setting: Setting) -> Result<Run> {
        ensure!(setting.cold_share == 0.0 || !setting.configuration.is_alone(), "{setting:?} has cold memory");
        let start_mover = || Mover::start(setting.configuration, &self.isotherm, &self.place, &self.options);
        let mut mover = if self.with_load { Mover::None } else { start_mover()? };
        let cold_bytes = (self.free_bytes as f64 * setting.cold_share) as u64;
        let cold = (cold_bytes > 0).then(|| cold_memory(cold_bytes)).transpose()?;
        let node = match setting.configuration {
            Configuration::Fast => Some(FAST),
            Configuration::Slow => Some(SLOW),
            _ => None,
        };
        let server = KillOnDrop(start(&self.place, node)?);
        let pid = server.0.id();
        let mut client = Client::connect(&self.place, self.records)?;
        client.load()?;
        let mut redis = Pages::of(pid)?;
        let requests = Requests::new(setting.distribution, self.records);
        let values = find_values(pid, self.records)?;
        let weights = weights(&redis, &values, &requests.shares())?;
        let mut cold_pages = cold.as_ref().map(|cold| Pages::of(cold.0.id())).transpose()?;

        let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let (samples, cpu_seconds, steered) = thread::scope(|scope| -> Result<_> {
            let stop = Over(&over);
            let load = scope.spawn(|| client.read(&requests, &over, &answered));
            if self.with_load {
                mover = start_mover()?;
            }
            let before = mover.cpu_seconds()?;
            let samples = self.watch(&mut redis, &weights, cold_pages.as_mut(), &answered)?;
            let cpu_seconds = mover.cpu_seconds()? - before;
            let steered = mover.end()?;
            drop(stop);
            load.join().map_err(|_| anyhow::anyhow!("the load panicked"))??;
            Ok((samples, cpu_seconds, steered))
        })?;
        ensure!(find_values(pid, self.records)? == values, "redis has moved values in its address space");
        Ok(Run {
            configuration: setting.configuration,
            distribution: setting.distribution,
            cold_share: setting.cold_share,
            cold_bytes,
            cold_slow_bytes: cold_pages.map_or(0, |pages| pages.slow_bytes()),
            redis_bytes: redis.bytes(),
            samples,
            cpu_seconds,
            steered,
        })
    }

    /// Looks at the pages until the time is over.
    fn watch(
        &self,
        redis: &mut Pages,
        weights: &[f64],
        mut cold: Option<&mut Pages>,
        answered: &AtomicU64,
    ) -> Result<Vec<Sample>> {
        let start = Instant::now();
        let mut samples = Vec::new();
        let mut next_cold = LOOK_AT_COLD;
        loop {
            let time = start.elapsed().as_secs_f64();
            redis.update(time)?;
            let is_last = time >= self.time.as_secs_f64();
            if let Some(cold) = &mut cold
                && (time >= next_cold || is_last)
            {
                cold.update(time)?;
                next_cold = time + LOOK_AT_COLD;
            }
            samples.push(Sample {
                time,
                slow_bytes: redis.slow_bytes(),
                slow_share: redis.slow_weight(weights),
                answered: answered.load(Ordering::Relaxed),
                moves: cold.as_ref().map_or(redis.moves, |cold| redis.moves.plus(cold.moves)),
                fast_free: fast_free()?,
            });
            if is_last {
                return Ok(samples);
            }
            thread::sleep((start + LOOK * samples.len() as u32).saturating_duration_since(Instant::now()));
        }
    }
}

/// The share of the accesses that go to each page. An access reads the value of a record, which may lie on two pages.
fn weights(pages: &Pages, values: &[u64], shares: &[f64]) -> Result<Vec<f64>> {
    let mut weights = vec![0.0; (pages.bytes() / PAGE_SIZE) as usize];
    for (address, share) in values.iter().zip(shares) {
        let on_first = (PAGE_SIZE - address % PAGE_SIZE).min(VALUE as u64);
        for (address, bytes) in [(*address, on_first), (address + on_first, VALUE as u64 - on_first)] {
            if bytes > 0 {
                let index = pages.index(address).context("a value of redis is not in memory")?;
                weights[index] += share * bytes as f64 / VALUE as f64;
            }
        }
    }
    Ok(weights)
}

/// What is free on the fast node, in bytes.
///
/// Cold memory is a share of what is free before the first run, so that all runs begin alike. After a run, the kernel
/// keeps tens of MiB in lists of each processor. It does not count them as free, and uses them in the next run.
///
/// # Errors
/// If the nodes cannot be read, or there is no second one.
pub fn fast_free() -> Result<u64> {
    let nodes = memory_nodes(std::path::Path::new("/"))?;
    ensure!(nodes.iter().any(|node| node.id == SLOW), "there is no node {SLOW}: bench/tiering needs two memory nodes");
    Ok(nodes.iter().find(|node| node.id == FAST).context("there is no node 0")?.free)
}

/// Starts a process with so much memory, and waits until it has touched all of it.
pub(super) fn cold_memory(bytes: u64) -> Result<KillOnDrop> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["cold", &bytes.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = KillOnDrop(command.spawn().context("the process with cold memory cannot be started")?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().context("it has no output")?).read_line(&mut line)?;
    ensure!(line == READY, "there is not enough memory for {bytes} bytes of cold memory");
    Ok(child)
}

/// What a process with cold memory says once all of it is in memory.
const READY: &str = "ready\n";

/// Touches so much memory once, and then sleeps until it is killed.
///
/// # Errors
/// If there is not so much memory.
pub fn be_cold(bytes: u64) -> Result<()> {
    let mut memory = memmap2::MmapMut::map_anon(bytes as usize).context("there is not enough memory")?;
    for byte in memory.iter_mut().step_by(PAGE_SIZE as usize) {
        *byte = 1;
    }
    print!("{READY}");
    std::io::Write::flush(&mut std::io::stdout())?;
    loop {
        thread::sleep(Duration::from_secs(3600));
        std::hint::black_box(&memory);
    }
}
