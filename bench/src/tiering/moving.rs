//! A hot set that moves, on two memory nodes: which set of memory is accessed changes after each phase.
//!
//! A run fills a part of the fast node with cold memory, and then starts `isotherm workload` with a few sets of memory,
//! of which each phase accesses one, at random addresses. The workload says when each phase begins, and within a set
//! all pages are accessed alike. So the part of the accessed set that is on the slow node is the share of the accesses
//! that this node serves.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use isotherm_core::PAGE_SIZE;
use isotherm_kernel::unix_ns;
use serde::{Deserialize, Serialize};

use super::Configuration;
use super::mover::Mover;
use super::placement::{Moves, Pages};
use super::run::{KillOnDrop, LOOK_AT_COLD, cold_memory, fast_free};
use super::steering::Steered;
use super::summary::{mib, percent};
use crate::pairs::median;
use crate::table;

/// How long each set is accessed, in seconds.
pub const PHASE: u64 = 30;

/// The accessed set gets as many accesses as it has pages in this time.
const SWEEP: &str = "100ms";

/// How long nothing is accessed before the first phase, so that the pages of the sets can be found, and after the last
/// one, so that the last look finds the workload running. In seconds.
const QUIET: u64 = 10;

/// Time between two looks at the pages.
const LOOK: Duration = Duration::from_secs(1);

/// A look is as far from the beginning of a phase as possible.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// In the last part of a phase that is this long, the placement is that which was reached in the phase. In seconds.
const END_OF_PHASE: f64 = 10.0;

/// In a phase that has converged, at most this share of the accessed set is on the slow node.
const CONVERGED: f64 = 0.1;

/// What all runs need.
#[derive(Clone, Debug)]
pub struct Runner {
    /// Path of isotherm.
    pub isotherm: PathBuf,
    /// Options for `isotherm tier run`.
    pub options: Vec<String>,
    /// Cold memory, as a share of what is free on the fast node before the first run.
    pub cold_share: f64,
    /// What is free there, in bytes: see [`fast_free`].
    pub free_bytes: u64,
    /// The number of sets. After the last one, the first one is accessed again.
    pub sets: usize,
    /// The size of each set in bytes: a whole number of pages.
    pub set_bytes: u64,
    /// How long the sets are accessed, in seconds.
    pub seconds: u64,
    /// A directory for the pattern, and for the recording of isotherm.
    pub place: PathBuf,
}

/// The state at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the first phase began.
    pub time: f64,
    /// The part of each set that is on the slow node, 0 to 1.
    pub slow: Vec<f64>,
    /// Memory of the sets and of the cold process that has moved.
    pub moves: Moves,
    /// Free memory on the fast node, in bytes.
    pub fast_free: u64,
}

/// The figures of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Where memory was.
    pub configuration: Configuration,
    /// Cold memory, as a share of what was free on the fast node before the first run.
    pub cold_share: f64,
    /// Cold memory, in bytes.
    pub cold_bytes: u64,
    /// Cold memory on the slow node at the end, in bytes.
    pub cold_slow_bytes: u64,
    /// The size of each set, in bytes.
    pub set_bytes: u64,
    /// The beginning of each phase, in seconds since that of the first one.
    pub phases: Vec<f64>,
    /// The state each second.
    pub samples: Vec<Sample>,
    /// CPU time of isotherm or of the kdamonds, in seconds.
    pub cpu_seconds: f64,
    /// What isotherm says about itself.
    pub steered: Option<Steered>,
}

/// What the workload says when a phase begins.
#[derive(Debug, Deserialize)]
struct Announced {
    unix_ns: u64,
    areas: Vec<Area>,
}

/// The addresses of a set.
#[derive(Debug, Deserialize)]
struct Area {
    start: u64,
    end: u64,
}

/// `isotherm workload`, while it runs.
struct Workload {
    process: KillOnDrop,
    announced: Receiver<Announced>,
}

impl Workload {
    /// Starts the workload with this pattern.
    fn start(isotherm: &Path, pattern: &Path) -> Result<Self> {
        let mut command = Command::new(isotherm);
        command.arg("workload").arg(pattern).arg("--announce").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = KillOnDrop(command.spawn().context("isotherm workload cannot be started")?);
        let lines = BufReader::new(process.0.stdout.take().context("isotherm workload has no output")?).lines();
        let (sender, announced) = channel();
        // The thread ends with the output of the workload.
        thread::spawn(move || {
            for announced in lines.map_while(|line| serde_json::from_str(&line.ok()?).ok()) {
                if sender.send(announced).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, announced })
    }

    /// Waits for the beginning of the next phase.
    fn next_phase(&self) -> Result<Announced> {
        const LONGEST: Duration = Duration::from_secs(QUIET + PHASE + 60);
        self.announced.recv_timeout(LONGEST).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow::anyhow!("isotherm workload began no phase within {LONGEST:?}"),
            RecvTimeoutError::Disconnected => {
                anyhow::anyhow!("isotherm workload has ended, or said what cannot be read")
            }
        })
    }
}

impl Runner {
    /// Makes one run.
    ///
    /// # Errors
    /// If a program cannot be started or fails, or memory cannot be read.
    pub fn run(&self, configuration: Configuration) -> Result<Run> {
        ensure!(!configuration.is_alone(), "{} has no cold memory, and is not measured here", configuration.name());
        let cold_bytes = (self.free_bytes as f64 * self.cold_share) as u64;
        let cold = (cold_bytes > 0).then(|| cold_memory(cold_bytes)).transpose()?;
        let mut cold_pages = cold.as_ref().map(|cold| Pages::of(cold.0.id())).transpose()?;

        let pattern = self.place.join("moving.toml");
        std::fs::write(&pattern, pattern_text(self.sets, self.set_bytes, self.seconds))
            .with_context(|| format!("{} cannot be written", pattern.display()))?;
        let workload = Workload::start(&self.isotherm, &pattern)?;
        let areas = workload.next_phase()?.areas;
        let mut pages = Pages::of(workload.process.0.id())?;
        let weights = areas.iter().map(|area| weights(&pages, area.start..area.end)).collect::<Result<Vec<_>>>()?;

        let first_phase = workload.next_phase()?.unix_ns;
        let mover = Mover::start(configuration, &self.isotherm, &self.place, &self.options)?;
        let since = |unix_ns: u64| unix_ns.saturating_sub(first_phase) as f64 / 1e9;
        let samples = self.watch(&mut pages, &weights, cold_pages.as_mut(), || since(unix_ns()))?;
        let cpu_seconds = mover.cpu_seconds()?;
        let steered = mover.end()?;
        let mut phases = vec![0.0];
        phases.extend(workload.announced.try_iter().map(|announced| since(announced.unix_ns)));
        // After the last phase, nothing is accessed.
        phases.truncate(self.seconds.div_ceil(PHASE) as usize);
        ensure!(
            phases.len() as u64 == self.seconds.div_ceil(PHASE),
            "isotherm workload has begun {} phases in {} s: it has ended, or is late",
            phases.len(),
            self.seconds
        );
        Ok(Run {
            configuration,
            cold_share: self.cold_share,
            cold_bytes,
            cold_slow_bytes: cold_pages.map_or(0, |pages| pages.slow_bytes()),
            set_bytes: self.set_bytes,
            phases,
            samples,
            cpu_seconds,
            steered,
        })
    }

    /// Looks at the pages until the time is over. `now` is the time since the first phase began, in seconds.
    fn watch(
        &self,
        pages: &mut Pages,
        weights: &[Vec<f64>],
        mut cold: Option<&mut Pages>,
        now: impl Fn() -> f64,
    ) -> Result<Vec<Sample>> {
        let start = Instant::now();
        let already = Duration::from_secs_f64(now());
        let mut samples = Vec::new();
        let mut next_cold = LOOK_AT_COLD;
        for nth in 0..self.seconds {
            let due = FIRST_LOOK + LOOK * nth as u32;
            thread::sleep(due.saturating_sub(already).saturating_sub(start.elapsed()));
            let time = now();
            pages.update(time)?;
            let slow = weights.iter().map(|weights| pages.slow_weight(weights)).collect();
            if let Some(cold) = &mut cold
                && (time >= next_cold || nth + 1 == self.seconds)
            {
                cold.update(time)?;
                next_cold = time + LOOK_AT_COLD;
            }
            let moves = cold.as_ref().map_or(pages.moves, |cold| pages.moves.plus(cold.moves));
            samples.push(Sample { time, slow, moves, fast_free: fast_free()? });
        }
        Ok(samples)
    }
}

/// The pattern: sets of memory that are accessed in turn, for so many seconds in all.
fn pattern_text(sets: usize, set_bytes: u64, seconds: u64) -> String {
    let areas = (0..sets).map(|set| format!("\n[[area]]\nname = \"set {set}\"\nsize = {set_bytes}\n"));
    let quiet = format!("\n[[phase]]\ntime = \"{QUIET}s\"\n");
    let phases = (0..seconds.div_ceil(PHASE) as usize).map(|phase| {
        let touch = format!("{{ area = \"set {}\", every = \"{SWEEP}\", order = \"random\" }}", phase % sets);
        format!("\n[[phase]]\ntime = \"{PHASE}s\"\ntouch = [{touch}]\n")
    });
    let about = format!("about = \"one of {sets} sets is accessed at random, another one every {PHASE} s\"\n");
    about + &areas.collect::<String>() + &quiet + &phases.collect::<String>() + &quiet
}

/// The share of the accesses to a set that go to each page.
fn weights(pages: &Pages, set: Range<u64>) -> Result<Vec<f64>> {
    let mut weights = vec![0.0; (pages.bytes() / PAGE_SIZE) as usize];
    let share = PAGE_SIZE as f64 / (set.end - set.start) as f64;
    for address in set.step_by(PAGE_SIZE as usize) {
        weights[pages.index(address).context("a page of the workload is not in memory")?] = share;
    }
    Ok(weights)
}

/// The figures of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// The share of the accesses that the slow node serves, mean over the phase, 0 to 1.
    pub slow_share: f64,
    /// The same over the last ten seconds.
    pub slow_share_at_end: Option<f64>,
    /// Seconds until nine tenths of the accessed set were on the fast node. `None` if they never were.
    pub converged_after: Option<f64>,
}

/// The figures of one run that tables have.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Where memory was.
    pub configuration: Configuration,
    /// Cold memory, as a share of what was free on the fast node before the first run.
    pub cold_share: f64,
    /// The part of all sets that was on the slow node at the first look, 0 to 1: the share of the accesses that this
    /// node serves if nothing moves.
    pub slow_at_first: f64,
    /// The share of the accesses that the slow node serves, mean over the run, 0 to 1.
    pub slow_share: f64,
    /// The same over the last cycle, in which each set was accessed once. `None` if the run had no more than one.
    pub slow_share_last_cycle: Option<f64>,
    /// The same over the last ten seconds of each phase. `None` if the run had no such time.
    pub slow_share_at_end: Option<f64>,
    /// Seconds until nine tenths of the accessed set were on the fast node, median over the phases. `None` if they
    /// never were, in half of the phases or more.
    pub converged_after: Option<f64>,
    /// Each phase, without one that the end of the run cut short.
    pub phases: Vec<PhaseFigures>,
    /// Bytes that moved up, and down.
    pub moved: (u64, u64),
    /// The share of what moved that moved back within a minute.
    pub back_share: Option<f64>,
    /// CPU time of isotherm or of the kdamonds, in per cent of one CPU.
    pub cpu_percent: f64,
}

impl Run {
    /// The samples of each phase: the seconds since the phase began, and the share of the accesses that the slow node
    /// serves.
    fn by_phase(&self) -> Vec<Vec<(f64, f64)>> {
        let sets = self.samples.first().map_or(1, |sample| sample.slow.len()).max(1);
        let mut phases = vec![Vec::new(); self.phases.len()];
        for sample in &self.samples {
            let Some(phase) = self.phases.partition_point(|begin| *begin <= sample.time).checked_sub(1) else {
                continue;
            };
            let since = sample.time - self.phases[phase];
            if since < PHASE as f64 {
                phases[phase].push((since, sample.slow[phase % sets]));
            }
        }
        phases
    }
}

/// The mean of the shares; `None` if there are none.
fn mean(samples: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, count) = samples.into_iter().fold((0.0, 0.0), |(sum, count), (_, share)| (sum + share, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The samples of the last part of a phase.
fn at_end(samples: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    samples.iter().copied().filter(|(since, _)| *since >= PHASE as f64 - END_OF_PHASE)
}

impl Line {
    /// The figures of `run`.
    pub fn of(run: &Run) -> Self {
        let phases = run.by_phase();
        let first = run.samples.first().map_or(&[][..], |first| &first.slow);
        let sets = first.len();
        let last = run.samples.last().map_or(0.0, |last| last.time);
        let moves = run.samples.last().map_or(Moves::default(), |last| last.moves);
        let figures = |samples: &Vec<(f64, f64)>| PhaseFigures {
            slow_share: mean(samples.iter().copied()).unwrap_or(f64::NAN),
            slow_share_at_end: mean(at_end(samples)),
            converged_after: samples.iter().find(|(_, share)| *share <= CONVERGED).map(|(since, _)| *since),
        };
        // The last look is up to a second and a half before the end of the last phase.
        let ended = run.phases.iter().filter(|begin| last - **begin >= PHASE as f64 - 1.5).count();
        let whole: Vec<PhaseFigures> = phases[..ended].iter().map(figures).collect();
        let mut converged: Vec<f64> =
            whole.iter().map(|phase| phase.converged_after.unwrap_or(f64::INFINITY)).collect();
        let converged_after = (!converged.is_empty()).then(|| median(&mut converged));
        let last_cycle = phases.len().checked_sub(sets).filter(|from| *from > 0).map(|from| &phases[from..]);
        Self {
            configuration: run.configuration,
            cold_share: run.cold_share,
            slow_at_first: first.iter().sum::<f64>() / sets.max(1) as f64,
            slow_share: mean(phases.iter().flatten().copied()).unwrap_or(f64::NAN),
            slow_share_last_cycle: last_cycle.and_then(|phases| mean(phases.iter().flatten().copied())),
            slow_share_at_end: mean(phases.iter().flat_map(|samples| at_end(samples))),
            converged_after: converged_after.filter(|time| time.is_finite()),
            phases: whole,
            moved: (moves.up, moves.down),
            back_share: (moves.all() > 0).then(|| moves.back as f64 / moves.all() as f64),
            cpu_percent: run.cpu_seconds / last.max(1e-9) * 100.0,
        }
    }
}

/// Formats the seconds until a phase had converged.
fn seconds(converged_after: Option<f64>) -> String {
    converged_after.map_or("never".into(), |time| format!("{time:.0}"))
}

/// A table of the runs. The last line is the best placement: all of the accessed set is on the fast node.
pub fn moving_table(lines: &[Line]) -> Table {
    let header = [
        "placement",
        "cold",
        "at first %",
        "slow accesses %",
        "last cycle",
        "ends of phases",
        "converged after, s",
        "up, MiB",
        "down, MiB",
        "back %",
        "CPU %",
    ];
    let or_none = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
    let rows = lines.iter().map(|line| {
        let moves = line.configuration.moves();
        // NUMA balancing takes the time of the programs.
        let has_time = moves && line.configuration != Configuration::Balancing;
        vec![
            line.configuration.name().into(),
            format!("{:.0} %", line.cold_share * 100.0),
            percent(line.slow_at_first),
            percent(line.slow_share),
            or_none(line.slow_share_last_cycle.map(percent)),
            or_none(line.slow_share_at_end.map(percent)),
            or_none((!line.phases.is_empty()).then(|| seconds(line.converged_after))),
            mib(line.moved.0 as f64),
            mib(line.moved.1 as f64),
            or_none(line.back_share.map(percent)),
            or_none(has_time.then(|| format!("{:.0}", line.cpu_percent))),
        ]
    });
    let best = ["best", "", "", "0.0", "0.0", "0.0", "0", "", "", "", ""].map(String::from).to_vec();
    table::table(&header, 1, rows.chain([best]))
}

/// A table of the phases of each run: the share of slow accesses in per cent, and the seconds until it had converged.
pub fn phase_table(lines: &[Line]) -> Table {
    let most = lines.iter().map(|line| line.phases.len()).max().unwrap_or(0);
    let numbers: Vec<String> = (1..=most).map(|phase| format!("phase {phase}")).collect();
    let header: Vec<&str> = ["placement"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
    let rows = lines.iter().map(|line| {
        let of_phase =
            |phase: &PhaseFigures| format!("{} ({})", percent(phase.slow_share), seconds(phase.converged_after));
        let mut row = vec![line.configuration.name().into()];
        row.extend(line.phases.iter().map(of_phase));
        row.resize(most + 1, String::new());
        row
    });
    table::table(&header, 1, rows)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    /// A run of two sets with a sample each second. Its phases begin a little late, as those of the workload do.
    /// `slow` is the part of each set on the slow node, by the time.
    fn run(seconds: u64, slow: impl Fn(f64) -> [f64; 2]) -> Run {
        let sample = |nth: u64| Sample {
            time: nth as f64 + 0.5,
            slow: slow(nth as f64 + 0.5).to_vec(),
            moves: Moves { up: nth * 4096, down: 0, back: nth * 1024 },
            fast_free: 0,
        };
        Run {
            configuration: Configuration::Isotherm,
            cold_share: 0.93,
            cold_bytes: 0,
            cold_slow_bytes: 0,
            set_bytes: 0,
            phases: (0..seconds.div_ceil(PHASE)).map(|phase| phase as f64 * 30.01).collect(),
            samples: (0..seconds).map(sample).collect(),
            cpu_seconds: 12.0,
            steered: None,
        }
    }

    #[test]
    fn the_share_of_slow_accesses_is_that_of_the_set_of_the_phase() {
        let line = Line::of(&run(120, |time| if (30.0..60.0).contains(&time) { [0.9, 0.4] } else { [0.2, 0.7] }));
        let shares: Vec<f64> = line.phases.iter().map(|phase| phase.slow_share).collect();
        for (share, truth) in shares.iter().zip([0.2, 0.4, 0.2, 0.7]) {
            assert!((share - truth).abs() < 1e-9, "{shares:?}");
        }
        assert!((line.slow_at_first - 0.45).abs() < 1e-9, "{line:?}");
        assert!((line.slow_share - 0.375).abs() < 1e-9, "{line:?}");
        assert!((line.slow_share_last_cycle.unwrap() - 0.45).abs() < 1e-9, "{line:?}");
        assert!((line.back_share.unwrap() - 0.25).abs() < 1e-9, "{line:?}");
        assert_eq!(line.converged_after, None);
    }

    #[test]
    fn a_phase_has_converged_when_nine_tenths_of_its_set_are_fast() {
        // The first set arrives 12 s after its first phase began, and stays. The second one never does in its first
        // phase, and arrives 20 s after its second one began.
        let slow = |time: f64| [if time < 12.0 { 1.0 } else { 0.05 }, if time < 110.0 { 0.8 } else { 0.0 }];
        let line = Line::of(&run(120, slow));
        let rounded: Vec<_> = line.phases.iter().map(|phase| phase.converged_after.map(|time| time.round())).collect();
        assert_eq!(rounded, [Some(13.0), None, Some(0.0), Some(20.0)]);
        assert_eq!(line.converged_after.map(f64::round), Some(16.0));
        let ends: Vec<f64> = line.phases.iter().filter_map(|phase| phase.slow_share_at_end).collect();
        assert!(ends.iter().zip([0.05, 0.8, 0.05, 0.0]).all(|(end, truth)| (end - truth).abs() < 1e-9), "{ends:?}");
        let text = moving_table(std::slice::from_ref(&line)).to_string();
        assert!(text.contains("| isotherm  | 93 % |") && text.contains("| best"), "{text}");
        assert!(phase_table(&[line]).to_string().contains("80.0 (never)"));
    }

    #[test]
    fn a_phase_that_is_cut_short_counts_in_the_mean_only() {
        let line = Line::of(&run(70, |_| [0.5, 0.5]));
        assert_eq!((line.phases.len(), line.slow_share), (2, 0.5));
        assert_eq!(line.slow_share_at_end, Some(0.5));
        assert_eq!(line.slow_share_last_cycle, Some(0.5));
    }

    #[test]
    fn the_pattern_accesses_one_set_in_each_phase() {
        let pattern = isotherm_sim::Pattern::parse(&pattern_text(4, 48 << 20, 240)).unwrap();
        let touched: Vec<_> = pattern.phases.iter().map(|phase| phase.touch.first().map(|t| t.area.clone())).collect();
        let of = |set: u32| Some(format!("set {set}"));
        assert_eq!(touched, [None, of(0), of(1), of(2), of(3), of(0), of(1), of(2), of(3), None]);
        assert_eq!(pattern.time(), Duration::from_secs(240 + 2 * QUIET));
    }
}
