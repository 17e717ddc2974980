//! What the monitor finds in simulated memory of up to 5 TiB within its budget, and how long that takes.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use isotherm_bench::large::{LargeMemory, Shape, SimulatedCpu, resident};
use isotherm_bench::table::{self, share};
use isotherm_core::survey::SurveySnapshot;
use isotherm_core::units::setting;
use isotherm_core::{
    AddrRange, Attributes, BoxError, Budget, Estimate, IntervalsGoal, Monitor, Next, PaceOptions, Pacer, PanelSnapshot,
    Sink, Snapshot, Start, SurveyInterval,
};
use isotherm_kernel::monitor_cpu_time;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// Simulate large memory of which little is hot: precision, recall, time to find, cost
///
/// Reading and clearing take simulated CPU time. What the monitor itself computes is measured.
#[derive(Parser)]
struct Options {
    /// Sizes of memory in GiB
    #[arg(long, value_name = "GIB", value_delimiter = ',', default_value = "64,1024,5120")]
    sizes: Vec<u64>,
    /// Hot memory in KiB; 0 is 1 % of the memory, in 16 parts
    #[arg(long, value_name = "KIB", value_delimiter = ',', default_value = "64,4096,0")]
    hot: Vec<u64>,
    /// Simulated time after which a run ends
    #[arg(long, value_name = "SECONDS", default_value_t = 10_000)]
    seconds: u64,
    /// The accessed bits of cold memory are set until the monitor clears them
    #[arg(long)]
    filled: bool,
    /// Of so many pages, one is in memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=512))]
    sparse: u64,
    /// The memory is in huge pages
    #[arg(long)]
    huge: bool,
    /// Divide the memory among so many processes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,
    /// Simulate each memory so many times, each time with other random numbers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Share of one CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    cpu_budget: f64,
    /// Sample only, without surveys
    #[arg(long)]
    without_survey: bool,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE", default_value = "target/bench/large.json")]
    json: PathBuf,
}

/// The figures of one run.
#[derive(Debug, Serialize)]
struct Line {
    bytes: u64,
    hot: u64,
    method: &'static str,
    /// At the end of the run.
    precision: Option<f64>,
    recall: Option<f64>,
    /// When 90 % of the hot bytes were found, and after how many surveys.
    found_s: Option<f64>,
    found_surveys: Option<usize>,
    /// When the last figure came of how much is hot that is off by more than a tenth, as a time since the start, and
    /// the figure after two seconds relative to the truth, with its bounds.
    tenth_s: Option<f64>,
    after_two: Option<[f64; 3]>,
    /// In how many runs the bounds of that figure hold the truth.
    held: u32,
    runs: u32,
    /// When a survey first knew 99 % of the memory.
    exact_s: Option<f64>,
    /// CPU time of the first three seconds, in milliseconds.
    start_ms: f64,
    clears: u64,
    /// What the targets lose in the first three seconds and later, in per cent of one CPU.
    lost_start_percent: f64,
    lost_percent: f64,
    simulated_s: f64,
    surveys: usize,
    survey_interval_s: Option<f64>,
    sampling_interval_s: Option<f64>,
    /// After three seconds: on the mean, the most over ten seconds, and the longest step in milliseconds.
    cpu_percent: f64,
    most_percent: f64,
    longest_step_ms: f64,
    rss_bytes: u64,
}

impl Line {
    /// The last run, with the mean of the figures after two seconds, and the worst of the costs and of the times.
    fn of(runs: Vec<Self>) -> Option<Self> {
        let most = |of: fn(&Self) -> f64| runs.iter().map(of).fold(0.0, f64::max);
        let latest =
            |of: fn(&Self) -> Option<f64>| runs.iter().map(of).try_fold(0.0_f64, |most, at| Some(most.max(at?)));
        let figures: Vec<[f64; 3]> = runs.iter().filter_map(|run| run.after_two).collect();
        let mean = |nth: usize| figures.iter().map(|of| of[nth]).sum::<f64>() / figures.len() as f64;
        let (tenth_s, exact_s) = (latest(|run| run.tenth_s), latest(|run| run.exact_s));
        let after_two = (!figures.is_empty()).then(|| [0, 1, 2].map(mean));
        let (held, count) = (runs.iter().map(|run| run.held).sum(), runs.len() as u32);
        let (start_ms, most_percent) = (most(|run| run.start_ms), most(|run| run.most_percent));
        let (longest_step_ms, rss_bytes) = (most(|run| run.longest_step_ms), runs.first()?.rss_bytes);
        let last = runs.into_iter().last()?;
        Some(Self {
            tenth_s,
            exact_s,
            after_two,
            held,
            runs: count,
            start_ms,
            most_percent,
            longest_step_ms,
            rss_bytes,
            ..last
        })
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut lines = Vec::new();
    for &size in &options.sizes {
        for &hot in &options.hot {
            eprintln!("{size} GiB, {hot} KiB hot");
            let runs = (0..options.runs).map(|seed| simulate(&options, seed, size << 30, hot << 10));
            lines.push(Line::of(runs.collect::<Result<Vec<_>>>()?).context("no run")?);
        }
    }
    println!("{}", results(&lines));
    if let Some(parent) = options.json.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

/// What the monitor found last.
#[derive(Default)]
struct Last {
    snapshot: Option<Snapshot>,
    surveys: usize,
    /// The figures of how much was accessed within a second.
    figures: Vec<(Duration, Estimate)>,
    exact: Option<Duration>,
}

impl Sink for Last {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.snapshot = Some(snapshot.clone());
        Ok(())
    }

    fn surveyed(&mut self, survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.surveys += 1;
        let sums = survey.sums();
        if !survey.interval.is_zero() && sums.figures.unknown * 100 <= sums.figures.present {
            self.exact.get_or_insert(survey.time);
        }
        Ok(())
    }

    fn panel_read(&mut self, panel: &PanelSnapshot) -> Result<(), BoxError> {
        self.figures.push((panel.time, panel.total[0]));
        Ok(())
    }
}

/// Runs until the hot memory was found and two more surveys have ended, or the time is over.
fn simulate(options: &Options, seed: u32, size: u64, hot: u64) -> Result<Line> {
    let (hot, parts) = if hot == 0 { (size / 100, 16) } else { (hot, 1) };
    let cpu = SimulatedCpu::default();
    let &Options { filled: is_filled, sparse, huge: is_huge, processes, .. } = options;
    let shape = Shape { size, hot, parts, is_filled, sparse, is_huge, processes, seed };
    let memory = LargeMemory::new(shape, cpu.clone()).context("no hot memory")?;
    let (ranges, truth) = (memory.hot().to_vec(), memory.hot_bytes());
    let seen = memory.clone();
    let before = resident().map_err(anyhow::Error::from_boxed)?;
    let mut attributes = Attributes::default();
    let has_survey = !options.without_survey;
    let budget = Budget { cpu: options.cpu_budget / 100.0, ..Budget::default() };
    let mut pacer = Pacer::new(PaceOptions {
        budget,
        start: Start::default(),
        bounds_samples: has_survey,
        has_budget: has_survey,
        samples: true,
        survey: has_survey.then_some(SurveyInterval::Auto),
        goal: has_survey.then(IntervalsGoal::default),
        longest_aggregation: None,
    });
    let rng = Pcg64Mcg::seed_from_u64(u64::from(seed) + 1);
    let mut monitor = Monitor::new(attributes, rng, memory.clone(), memory, Last::default());
    if has_survey {
        monitor.set_survey(pacer.survey_settings(attributes));
        monitor.set_cpu_clock(cpu.clock());
    }
    let mut lost = [0; 2];
    let end = Duration::from_secs(options.seconds);
    let mut now = Duration::ZERO;
    let mut spent = vec![0.0; options.seconds as usize + 1000];
    let (mut longest_step, mut found, mut score) = (0.0_f64, None, (None, None));
    let mut began = monitor_cpu_time();
    let mut next = monitor.start()?;
    loop {
        let (kernel, own) = cpu.take();
        let took = kernel + monitor_cpu_time().saturating_sub(began).saturating_sub(own);
        if let Some(second) = spent.get_mut(now.as_secs() as usize) {
            *second += took.as_secs_f64();
        }
        if now > Duration::from_secs(3) {
            longest_step = longest_step.max(took.as_secs_f64());
        }
        let since = usize::from(now >= Duration::from_secs(3));
        lost[since] = seen.set_again() - lost[0] * since as u64;
        let work = monitor.work();
        pacer.stepped(now + took, work, took);
        let snapshot = monitor.sink_mut().snapshot.take();
        if let Some(snapshot) = &snapshot {
            score = scores(snapshot, &ranges);
            if score.1.is_some_and(|recall| recall >= 0.9) && found.is_none() {
                found = Some((now.as_secs_f64(), monitor.sink().surveys));
            }
            if let Some(new) = pacer.aggregated(snapshot, monitor.attributes()) {
                monitor.set_attributes(new);
            }
        }
        attributes = monitor.attributes();
        if has_survey && (work.survey.is_some() || snapshot.is_some()) {
            monitor.set_survey(pacer.survey_settings(attributes));
            monitor.set_sampling_stride(pacer.every(attributes));
        }
        let is_known = found.is_some_and(|(at, surveys)| {
            now.as_secs_f64() > at + 30.0 && (!has_survey || monitor.sink().surveys >= surveys + 2)
        });
        let Next::Step { after } = next else { break };
        if is_known || now >= end {
            break;
        }
        now += after.max(took);
        began = monitor_cpu_time();
        next = monitor.step(now)?;
    }
    let seconds = now.as_secs() as usize;
    let start_ms = spent.iter().take(3).sum::<f64>() * 1e3;
    let sink = monitor.sink();
    let parts = |of: Estimate| [of.low, of.value, of.high].map(|bytes| bytes as f64 / truth as f64);
    let is_off = |&(_, of): &(Duration, Estimate)| (parts(of)[1] - 1.0).abs() > 0.1;
    let wrong = sink.figures.iter().rposition(is_off).map_or(0, |last| last + 1);
    let two = Duration::from_secs(2);
    let after_two = sink.figures.iter().rfind(|(time, _)| *time <= two).map(|&(_, of)| parts(of));
    let lost_in = |pages: u64, time: f64| pages as f64 * budget.set_again.as_secs_f64() / time.max(1.0) * 100.0;
    let spent = &spent[3.min(seconds)..seconds.max(3)];
    let pace = pacer.pace(attributes);
    Ok(Line {
        bytes: size,
        hot: truth,
        method: if has_survey { "survey" } else { "sampling only" },
        precision: score.0,
        recall: score.1,
        found_s: found.map(|(at, _)| at),
        found_surveys: found.map(|(_, surveys)| surveys).filter(|_| has_survey),
        tenth_s: sink.figures.get(wrong).map(|(time, _)| time.as_secs_f64()),
        after_two,
        held: after_two.map_or(0, |[low, _, high]| u32::from(low <= 1.0 && high >= 1.0)),
        runs: 1,
        exact_s: sink.exact.map(|time| time.as_secs_f64()),
        start_ms,
        clears: isotherm_core::AccessProbe::clears(&seen),
        lost_start_percent: lost_in(lost[0], 3.0),
        lost_percent: lost_in(lost[1], now.as_secs_f64() - 3.0),
        simulated_s: now.as_secs_f64(),
        surveys: sink.surveys,
        survey_interval_s: pace.survey_interval.map(|interval| interval.as_secs_f64()),
        sampling_interval_s: if has_survey { pace.sampling_interval } else { Some(attributes.sampling()) }
            .map(|interval| interval.as_secs_f64()),
        cpu_percent: spent.iter().sum::<f64>() / spent.len().max(1) as f64 * 100.0,
        most_percent: spent.windows(10).map(|window| window.iter().sum::<f64>() * 10.0).fold(0.0, f64::max),
        longest_step_ms: longest_step * 1e3,
        rss_bytes: resident().map_err(anyhow::Error::from_boxed)?.saturating_sub(before),
    })
}

/// Precision and recall of the bytes with an access rate of at least a half.
fn scores(snapshot: &Snapshot, hot: &[AddrRange]) -> (Option<f64>, Option<f64>) {
    let (mut found, mut right) = (0, 0);
    for region in snapshot.regions().filter(|region| region.access_rate(snapshot.samples) >= 0.5) {
        found += region.range.size();
        right += hot.iter().filter_map(|hot| hot.intersection(region.range)).map(AddrRange::size).sum::<u64>();
    }
    let all: u64 = hot.iter().map(|hot| hot.size()).sum();
    let share = |whole: u64| (whole > 0).then(|| right as f64 / whole as f64);
    (share(found), share(all))
}

fn results(lines: &[Line]) -> String {
    let header = [
        "memory",
        "hot",
        "method",
        "precision",
        "recall",
        "found after, s",
        "surveys",
        "±10 % after, s",
        "after 2 s (bounds)",
        "held",
        "99 % known after, s",
        "first 3 s, ms",
        "clears",
        "targets lose: start, later %",
        "survey every, s",
        "samples every, s",
        "CPU %",
        "most in 10 s %",
        "longest step, ms",
        "monitor's memory",
    ];
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let row = |line: &Line| {
        vec![
            setting::bytes(line.bytes),
            setting::bytes(line.hot),
            line.method.into(),
            share(line.precision),
            share(line.recall),
            line.found_s.map_or_else(|| format!("not in {:.0}", line.simulated_s), |at| format!("{at:.1}")),
            line.found_surveys.map_or("-".into(), |surveys| surveys.to_string()),
            line.tenth_s.map_or("-".into(), |at| format!("{at:.2}")),
            line.after_two.map_or("-".into(), |[low, value, high]| format!("{value:.2} ({low:.2} to {high:.2})")),
            format!("{} of {}", line.held, line.runs),
            line.exact_s.map_or("-".into(), |at| format!("{at:.1}")),
            format!("{:.0}", line.start_ms),
            line.clears.to_string(),
            format!("{:.2}, {:.2}", line.lost_start_percent, line.lost_percent),
            number(line.survey_interval_s),
            number(line.sampling_interval_s),
            format!("{:.2}", line.cpu_percent),
            format!("{:.2}", line.most_percent),
            format!("{:.1}", line.longest_step_ms),
            format!("{:.1} MiB", line.rss_bytes as f64 / 1048576.0),
        ]
    };
    table::table(&header, 3, lines.iter().map(row)).to_string()
}
