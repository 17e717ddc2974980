//! What was measured besides the papers' tables.

use std::time::Duration;

use serde::Serialize;

use super::Measured;
use crate::statistics::mean;
use crate::{Configuration, Run};

/// Means over the runs of a workload under a configuration. Memory is in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Detail {
    /// The workload.
    pub workload: String,
    /// The configuration.
    pub configuration: Configuration,
    /// CPU time of isotherm, in per cent of one CPU over the time of the command.
    pub isotherm_cpu_percent: Option<f64>,
    /// Resident memory of isotherm.
    pub isotherm_rss: Option<f64>,
    /// The median working set.
    pub working_set: Option<f64>,
    /// Bytes that schemes freed.
    pub freed: Option<f64>,
    /// What came back of that, in per cent of the working set in a minute.
    pub came_back_percent_per_minute: Option<f64>,
    /// Bytes that other schemes were applied to.
    pub applied: Option<f64>,
    /// The proportional size of the program.
    pub pss: Option<f64>,
    /// Resident memory in the last quarter of the run.
    pub rss_late: f64,
    /// Anonymous memory in huge pages.
    pub huge: f64,
    /// Memory in swap.
    pub swap: f64,
    /// Memory that zram takes.
    pub zram: f64,
    /// Major page faults of the program.
    pub major_faults: f64,
    /// Where processors are emulated: the change of the runtime to that of `orig`, in per cent, if nothing but the
    /// major faults beyond its own took time, each as long as on a real machine.
    pub modelled_runtime_percent: Option<f64>,
    /// Refaults of the system.
    pub refaults: f64,
    /// The share of the time in which some task waited for memory, in per cent.
    pub some_stalled_percent: Option<f64>,
    /// The share of the time in which all tasks did, in per cent.
    pub all_stalled_percent: Option<f64>,
}

/// The details. `fault` is what a major fault costs in the model of runtimes, if there is one.
pub(super) fn details(measured: &Measured<'_>, fault: Option<Duration>) -> Vec<Detail> {
    let pairs = measured.names.iter().flat_map(|name| measured.configurations.iter().map(move |of| (*name, *of)));
    let modelled = |name, of| {
        let rounds = measured.rounds(name, of);
        let slower = |(orig, run): &(&Run, &Run)| {
            let faults = run.major_faults as f64 - orig.major_faults as f64;
            Some(faults * fault?.as_secs_f64() / orig.seconds * 100.0)
        };
        let slower: Vec<f64> = rounds.iter().filter_map(slower).collect();
        (of != Configuration::Orig && !slower.is_empty()).then(|| mean(&slower))
    };
    pairs.filter_map(|(name, of)| detail(name, of, &measured.runs(name, of), modelled(name, of))).collect()
}

fn detail(
    workload: &str,
    configuration: Configuration,
    runs: &[&Run],
    modelled_runtime_percent: Option<f64>,
) -> Option<Detail> {
    if runs.is_empty() {
        return None;
    }
    let of = |value: &dyn Fn(&Run) -> f64| mean(&runs.iter().map(|run| value(run)).collect::<Vec<_>>());
    let known = |value: &dyn Fn(&Run) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
        (!known.is_empty()).then(|| mean(&known))
    };
    Some(Detail {
        workload: workload.into(),
        configuration,
        isotherm_cpu_percent: known(&|run| Some(run.isotherm?.cpu_seconds / run.command_seconds * 100.0)),
        isotherm_rss: known(&|run| Some(run.isotherm?.rss)),
        working_set: known(&|run| run.recorded?.working_set),
        freed: known(&|run| run.recorded?.freed),
        came_back_percent_per_minute: known(&|run| run.recorded?.came_back_percent_per_minute),
        applied: known(&|run| run.recorded?.applied),
        pss: known(&|run| run.pss),
        rss_late: of(&|run| run.rss_late),
        huge: of(&|run| run.huge),
        swap: of(&|run| run.swap),
        zram: of(&|run| run.zram),
        major_faults: of(&|run| run.major_faults as f64),
        modelled_runtime_percent,
        refaults: of(&|run| (run.anonymous_refaults + run.file_refaults) as f64),
        some_stalled_percent: known(&|run| Some(run.some_stalled? * 100.0)),
        all_stalled_percent: known(&|run| Some(run.all_stalled? * 100.0)),
    })
}
