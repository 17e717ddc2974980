//! Summaries of runs: means, their spread, and changes compared with the configuration `orig`.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Serialize;

use super::{Configuration, Run};
use crate::table;

/// Below this share of the program's memory, the waste of huge pages is too small to compare.
const NO_WASTE: f64 = 0.03;

/// Below this share of the program's runtime, the gain of huge pages is too small to compare.
const NO_GAIN: f64 = 0.03;

/// A figure over several runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The sample's standard deviation; zero for a single run.
    pub deviation: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    fn of(figures: &[f64]) -> Self {
        let many = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / many;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        Self {
            mean,
            deviation: if figures.len() > 1 { (squares / (many - 1.0)).sqrt() } else { 0.0 },
            min: figures.iter().copied().fold(f64::INFINITY, f64::min),
            max: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// All runs of one program under one configuration.
#[derive(Debug, Serialize)]
pub struct Line {
    /// The machine: `laboratory` or `here`.
    pub place: String,
    /// Name of the program.
    pub workload: String,
    /// The configuration.
    pub configuration: Configuration,
    /// Number of runs.
    pub runs: usize,
    /// Runtime in seconds.
    pub runtime: Spread,
    /// Mean resident memory, in bytes.
    pub rss: Spread,
    /// The same over the last quarter of each run.
    pub rss_late: Spread,
    /// Mean memory of the system minus that before the run, in bytes.
    pub system: Spread,
    /// Mean anonymous memory in huge pages, in bytes.
    pub huge: f64,
    /// Mean memory in swap, in bytes.
    pub swap: f64,
    /// CPU time of isotherm, in per cent of one CPU.
    pub isotherm_cpu_percent: f64,
    /// Changes compared with `orig`; positive means slower or more.
    pub against_orig: Option<Against>,
    /// For `ethp`: how much of thp's waste it avoids and of thp's gain it keeps.
    pub of_thp: Option<OfThp>,
}

/// Changes of the means, as shares of those of `orig`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Against {
    /// Change of the runtime.
    pub runtime: f64,
    /// Change of the shortest runtime, which other work on the machine affects least.
    pub least_runtime: f64,
    /// Change of the mean resident memory.
    pub rss: f64,
    /// The same over the last quarter of the run.
    pub rss_late: f64,
    /// Change of the memory of the system.
    pub system: f64,
}

/// `ethp` compared with `thp`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OfThp {
    /// Waste by the mean resident memory.
    pub waste: Waste,
    /// Waste in the last quarter of each run, where it does not matter how fast a program fills its memory.
    pub late_waste: Waste,
    /// The runtime that huge pages save, as a share of that of `orig`.
    pub gain: f64,
    /// (orig - this) / (orig - thp) of the runtime; nothing if the gain is too small.
    pub gain_kept: Option<f64>,
}

/// Resident memory that huge pages add.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Waste {
    /// As a share of the resident memory of `orig`.
    pub share: f64,
    /// 1 - (this - orig) / (thp - orig); nothing if the waste is too small.
    pub removed: Option<f64>,
}

/// A line for each program and configuration, in order of their first run.
pub fn lines(runs: &[Run]) -> Vec<Line> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<(usize, Configuration), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        let program = (&run.place, &run.workload);
        let at = order.iter().position(|known| *known == program).unwrap_or_else(|| {
            order.push(program);
            order.len() - 1
        });
        groups.entry((at, run.configuration)).or_default().push(run);
    }
    let mut lines: Vec<Line> = groups.values().map(|runs| line(runs)).collect();
    for at in 0..lines.len() {
        let same = |configuration| {
            lines.iter().find(|l| {
                l.configuration == configuration && l.workload == lines[at].workload && l.place == lines[at].place
            })
        };
        let (orig, thp, this) = (same(Configuration::Orig), same(Configuration::Thp), &lines[at]);
        let against = orig.filter(|_| this.configuration != Configuration::Orig).map(|orig| against(this, orig));
        let of_thp = (orig.zip(thp)).filter(|_| this.configuration == Configuration::Ethp);
        let of_thp = of_thp.map(|(orig, thp)| compare_with_thp(this, orig, thp));
        lines[at].against_orig = against;
        lines[at].of_thp = of_thp;
    }
    lines
}

fn line(runs: &[&Run]) -> Line {
    let of = |figure: fn(&Run) -> f64| runs.iter().map(|run| figure(run)).collect::<Vec<f64>>();
    Line {
        place: runs[0].place.clone(),
        workload: runs[0].workload.clone(),
        configuration: runs[0].configuration,
        runs: runs.len(),
        runtime: Spread::of(&of(|run| run.seconds)),
        rss: Spread::of(&of(|run| run.rss_mean)),
        rss_late: Spread::of(&of(|run| run.rss_late)),
        system: Spread::of(&of(|run| run.system_mean)),
        huge: Spread::of(&of(|run| run.huge_mean)).mean,
        swap: Spread::of(&of(|run| run.swap_mean)).mean,
        isotherm_cpu_percent: Spread::of(&of(|run| run.isotherm_cpu_seconds / run.seconds * 100.0)).mean,
        against_orig: None,
        of_thp: None,
    }
}

fn against(this: &Line, orig: &Line) -> Against {
    let change = |of: fn(&Line) -> Spread| of(this).mean / of(orig).mean - 1.0;
    Against {
        runtime: change(|line| line.runtime),
        least_runtime: this.runtime.min / orig.runtime.min - 1.0,
        rss: change(|line| line.rss),
        rss_late: change(|line| line.rss_late),
        system: change(|line| line.system),
    }
}

fn compare_with_thp(this: &Line, orig: &Line, thp: &Line) -> OfThp {
    let waste = |of: fn(&Line) -> Spread| {
        let (this, orig, thp) = (of(this).mean, of(orig).mean, of(thp).mean);
        let share = thp / orig - 1.0;
        Waste { share, removed: (share >= NO_WASTE).then_some(1.0 - (this - orig) / (thp - orig)) }
    };
    let gain = 1.0 - thp.runtime.mean / orig.runtime.mean;
    let kept = (orig.runtime.mean - this.runtime.mean) / (orig.runtime.mean - thp.runtime.mean);
    OfThp {
        waste: waste(|line| line.rss),
        late_waste: waste(|line| line.rss_late),
        gain,
        gain_kept: (gain >= NO_GAIN).then_some(kept),
    }
}

/// The table of runtimes.
pub fn runtime_table(lines: &[Line]) -> Table {
    let header = ["program", "configuration", "runtime, s (min to max)", "vs orig %", "min %", "isotherm CPU %"];
    let row = |line: &Line| {
        vec![
            line.workload.clone(),
            line.configuration.name().into(),
            spread(line.runtime, 1.0, 2),
            change(line, |a| a.runtime),
            change(line, |a| a.least_runtime),
            if line.isotherm_cpu_percent > 0.0 { format!("{:.1}", line.isotherm_cpu_percent) } else { "-".into() },
        ]
    };
    table::table(&header, 2, lines.iter().map(row))
}

/// The table of memory.
pub fn memory_table(lines: &[Line]) -> Table {
    let header =
        ["program", "configuration", "RSS, MiB (min to max)", "vs orig %", "late %", "system, MiB", "vs orig %"];
    let row = |line: &Line| {
        let mib = f64::from(1 << 20);
        vec![
            line.workload.clone(),
            line.configuration.name().into(),
            spread(line.rss, mib, 1),
            change(line, |a| a.rss),
            change(line, |a| a.rss_late),
            format!("{:.1} ± {:.1}", line.system.mean / mib, line.system.deviation / mib),
            change(line, |a| a.system),
        ]
    };
    table::table(&header, 2, lines.iter().map(row))
}

fn change(line: &Line, of: fn(Against) -> f64) -> String {
    line.against_orig.map_or("-".into(), |against| format!("{:+.1}", of(against) * 100.0))
}

fn spread(of: Spread, unit: f64, digits: usize) -> String {
    let Spread { mean, deviation, min, max } = of;
    let figure = |figure: f64| format!("{:.digits$}", figure / unit);
    format!("{} ± {} ({} to {})", figure(mean), figure(deviation), figure(min), figure(max))
}

/// The table that compares `ethp` with `thp`.
pub fn huge_pages_table(lines: &[Line]) -> Option<Table> {
    let of: Vec<(&Line, OfThp)> = lines.iter().filter_map(|line| Some((line, line.of_thp?))).collect();
    if of.is_empty() {
        return None;
    }
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let row = |(line, of): &(&Line, OfThp)| {
        vec![
            line.workload.clone(),
            percent(of.waste.share),
            of.waste.removed.map_or("-".into(), percent),
            percent(of.late_waste.share),
            of.late_waste.removed.map_or("-".into(), percent),
            format!("{:.1}", of.gain * 100.0),
            of.gain_kept.map_or("-".into(), percent),
        ]
    };
    let header = ["program", "waste of thp %", "removed %", "late %", "removed %", "gain of thp %", "kept %"];
    Some(table::table(&header, 1, of.iter().map(row)))
}

/// Sentences about all programs together.
pub fn sentences(lines: &[Line]) -> Vec<String> {
    let mut sentences = Vec::new();
    let of = |configuration| lines.iter().filter(move |line| line.configuration == configuration);
    let prcl: Vec<(&Line, Against)> =
        of(Configuration::Prcl).filter_map(|line| Some((line, line.against_orig?))).collect();
    if let Some((best, saves)) = prcl.iter().min_by(|a, b| a.1.rss_late.total_cmp(&b.1.rss_late)) {
        let mean = |of: fn(&Against) -> f64| prcl.iter().map(|(_, a)| of(a) * 100.0).sum::<f64>() / prcl.len() as f64;
        sentences.push(format!(
            "prcl, mean over the programs: RSS {:+.1} % ({:+.1} % late), runtime {:+.1} % (min {:+.1} %). \
             Largest saving, {}: RSS {:+.1} % ({:+.1} % late), runtime {:+.1} % (min {:+.1} %).",
            mean(|a| a.rss),
            mean(|a| a.rss_late),
            mean(|a| a.runtime),
            mean(|a| a.least_runtime),
            best.workload,
            saves.rss * 100.0,
            saves.rss_late * 100.0,
            saves.runtime * 100.0,
            saves.least_runtime * 100.0
        ));
    }
    // Programs are weighted by their waste and their gain.
    let ethp: Vec<OfThp> = of(Configuration::Ethp).filter_map(|line| line.of_thp).collect();
    let share = |parts: Vec<(f64, f64)>| {
        let whole: f64 = parts.iter().map(|(whole, _)| whole).sum();
        let part: f64 = parts.iter().map(|(whole, share)| whole * share).sum();
        if whole > 0.0 { format!("{:.0} %", part / whole * 100.0) } else { "nothing".into() }
    };
    if !ethp.is_empty() {
        let waste =
            |of: fn(&OfThp) -> Waste| share(ethp.iter().filter_map(|e| Some((of(e).share, of(e).removed?))).collect());
        let kept = share(ethp.iter().filter_map(|e| Some((e.gain, e.gain_kept?))).collect());
        sentences.push(format!(
            "ethp, all programs with enough waste or gain: removes {} of thp's waste ({} late), keeps {kept} of \
             thp's gain.",
            waste(|e| e.waste),
            waste(|e| e.late_waste)
        ));
    }
    sentences
}
