//! What the monitor finds in simulated memory of up to 5 TiB within its budget, and how long that takes.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use isotherm_bench::large::{LargeMemory, SimulatedCpu, resident};
use isotherm_bench::table::{self, share};
use isotherm_core::survey::SurveySnapshot;
use isotherm_core::units::setting;
use isotherm_core::{
    AddrRange, Attributes, BoxError, Budget, IntervalsGoal, Monitor, Next, PaceOptions, Pacer, Sink, Snapshot, Start,
    SurveyInterval,
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
    simulated_s: f64,
    surveys: usize,
    survey_interval_s: Option<f64>,
    sampling_interval_s: Option<f64>,
    /// After two seconds: on the mean, the most over ten seconds, and the longest step in milliseconds.
    cpu_percent: f64,
    most_percent: f64,
    longest_step_ms: f64,
    rss_bytes: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut lines = Vec::new();
    for &size in &options.sizes {
        for &hot in &options.hot {
            eprintln!("{size} GiB, {hot} KiB hot");
            lines.push(simulate(&options, size << 30, hot << 10)?);
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
}

impl Sink for Last {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.snapshot = Some(snapshot.clone());
        Ok(())
    }

    fn surveyed(&mut self, _survey: &SurveySnapshot) -> Result<(), BoxError> {
        self.surveys += 1;
        Ok(())
    }
}

/// Runs until the hot memory was found and two more surveys have ended, or the time is over.
fn simulate(options: &Options, size: u64, hot: u64) -> Result<Line> {
    let (hot, parts) = if hot == 0 { (size / 100, 16) } else { (hot, 1) };
    let cpu = SimulatedCpu::default();
    let memory = LargeMemory::new(size, hot, parts, options.filled, cpu.clone()).context("no hot memory")?;
    let ranges = memory.hot().to_vec();
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
    });
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::seed_from_u64(1), memory.clone(), memory, Last::default());
    if has_survey {
        monitor.set_survey(pacer.survey_settings(attributes));
    }
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
        if now > Duration::from_secs(2) {
            longest_step = longest_step.max(took.as_secs_f64());
        }
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
    let spent = &spent[2.min(seconds)..seconds.max(2)];
    let pace = pacer.pace(attributes);
    Ok(Line {
        bytes: size,
        hot: ranges.iter().map(|range| range.size()).sum(),
        method: if has_survey { "survey" } else { "sampling only" },
        precision: score.0,
        recall: score.1,
        found_s: found.map(|(at, _)| at),
        found_surveys: found.map(|(_, surveys)| surveys).filter(|_| has_survey),
        simulated_s: now.as_secs_f64(),
        surveys: monitor.sink().surveys,
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
