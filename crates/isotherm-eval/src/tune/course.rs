//! The course of a tuning: the estimates, the runs, the result.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::estimate::{can_be_estimated, estimate};
use super::search::{Candidate, Course, Tried, spread};
use super::store::{Kept, Store, Subject};
use super::{Changes, Search, TuneOptions, Tuned};
use crate::needs::lack_of_schemes;
use crate::run::{Files, Runner};
use crate::settings::Settings;
use crate::{Configuration, EvalError, Machine, Progress, Run, Workload};

/// Values that are tried on recordings: of one parameter, and of more.
const ESTIMATED: [usize; 2] = [40, 100];

/// Places without estimates that a model chooses from.
const PLACES: usize = 256;

/// Runs without a scheme before the first with one, and then one for each so many. DAMOOS has two in all.
const BASELINE: [usize; 2] = [2, 5];

/// What a run that failed counts as, in per cent.
const FAILED: Changes = Changes { runtime: 100.0, rss: 0.0, system: 0.0, pressure: 100.0 };

pub(super) fn run(
    options: &TuneOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Tuned, EvalError> {
    let parameters = options.schemes.parameters.len();
    let middle = options.schemes.values(&vec![0.5; parameters]);
    let schemes = options.schemes.with(&middle).map_err(EvalError::Suite)?;
    let wants_estimates = can_be_estimated(&schemes);
    if options.workload.is_none() && !wants_estimates {
        let actions: Vec<&str> = schemes.iter().map(|scheme| scheme.action.name()).collect();
        return Err(EvalError::Failed(format!(
            "what {} would give is not known from a recording, only that of pageout, reclaim and limit; name a command \
             after --, or a --workload",
            actions.join(", ")
        )));
    }
    let (how, machine) = (&options.how, Machine::read());
    if options.workload.is_some() {
        lack_of_schemes(schemes, &how.options).map_or(Ok(()), |why| Err(EvalError::Failed(why)))?;
    }
    let mut store = Store::begin(&how.directory, how.resume, &subject(options, &machine))?;
    let suite = options.workload.as_ref().map_or(Path::new("."), |(_, suite)| suite);
    let settings = how.settings(&machine)?;
    let variables = how.variables(suite, &machine)?;
    let runner = how.runner(&variables, stop);
    let work = std::path::absolute(how.directory.join("work"));
    let work = work.map_err(EvalError::system("no current directory"))?;
    let mut program =
        options.workload.as_ref().map(|(workload, _)| Program { workload, runner, settings, work, is_ready: false });

    let recordings = match &mut program {
        Some(program) if options.recordings.is_empty() && wants_estimates && options.search == Search::Model => {
            vec![program.recording(&store, tell)?]
        }
        _ => options.recordings.clone(),
    };
    let is_estimated = wants_estimates && !recordings.is_empty() && options.search == Search::Model;
    let candidates = match is_estimated {
        true => estimated(options, &recordings, tell)?,
        false => {
            let places = spread(parameters, PLACES);
            places.into_iter().map(|at| Candidate { at, estimate: Changes::default() }).collect()
        }
    };
    let course = Course {
        search: options.search,
        objective: &options.objective,
        parameters,
        runs: options.runs,
        candidates,
        is_estimated,
        seed: options.seed,
    };
    if let Some(program) = &mut program {
        let start = Instant::now();
        let may = || options.time.is_none_or(|time| start.elapsed() < time);
        while let Some(kept) = next(options, &course, &store.runs) {
            if !may() {
                break;
            }
            program.try_values(options, &mut store, kept, tell)?;
        }
    }
    super::result::made(options, &course, &recordings, &store)
}

fn subject(options: &TuneOptions, machine: &Machine) -> Subject {
    let workload = options.workload.as_ref().map(|(workload, _)| workload);
    Subject {
        machine: machine.clone(),
        isotherm: options.how.isotherm.1.clone(),
        schemes: options.text.clone(),
        workload: workload.map_or_else(String::new, |workload| workload.name.clone()),
        command: workload.map_or_else(String::new, |workload| workload.command.clone()),
        scale: options.how.scale,
        options: options.how.options.clone(),
        search: options.search.name().into(),
        may_change: options.how.may_change.names(),
    }
}

/// Tries many values on recordings: evenly spread ones, and then some near to the best.
fn estimated(
    options: &TuneOptions,
    recordings: &[PathBuf],
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Candidate>, EvalError> {
    let parameters = options.schemes.parameters.len();
    let count = ESTIMATED[usize::from(parameters > 1)];
    tell(Progress::Estimating(count + count / 2));
    let mut tried = try_on(options, recordings, spread(parameters, count))?;
    let score = |candidate: &Candidate| options.objective.of(candidate.estimate);
    let best = tried.iter().max_by(|a, b| score(a).total_cmp(&score(b))).map(|best| best.at.clone());
    let best = best.unwrap_or_else(|| vec![0.5; parameters]);
    let near = spread(parameters, count / 2).into_iter().map(|at| {
        let near = at.iter().zip(&best).map(|(at, best)| (best + (at - 0.5) * 0.2).clamp(0.0, 1.0));
        near.collect()
    });
    tried.extend(try_on(options, recordings, near.collect())?);
    Ok(tried)
}

fn try_on(options: &TuneOptions, recordings: &[PathBuf], places: Vec<Vec<f64>>) -> Result<Vec<Candidate>, EvalError> {
    let lists = places.iter().map(|at| options.schemes.with(&options.schemes.values(at)));
    let lists = lists.collect::<Result<Vec<_>, _>>().map_err(EvalError::Suite)?;
    let estimates = estimate(recordings, &lists, options.fault)?;
    Ok(places.into_iter().zip(estimates).map(|(at, estimate)| Candidate { at, estimate: estimate.changes }).collect())
}

/// The next run: without a scheme if it is due, else with values. `None` if all are made.
fn next(options: &TuneOptions, course: &Course<'_>, kept: &[Kept]) -> Option<Option<Vec<f64>>> {
    let with = kept.iter().filter(|kept| kept.at.is_some()).count();
    let without = kept.len() - with;
    if without < BASELINE[0] + with / BASELINE[1] {
        return Some(None);
    }
    if with >= options.runs {
        return None;
    }
    // The usual values first, so that there is something to compare with.
    let usual = options.schemes.usual().filter(|_| with == 0);
    let usual = usual.map(|values| options.schemes.places(&values));
    Some(Some(usual.unwrap_or_else(|| course.next(&tried(kept)))))
}

/// What the runs of schemes gave, as changes to the mean of those without.
pub(super) fn tried(kept: &[Kept]) -> Vec<Tried> {
    let mean = |of: fn(&Run) -> f64| {
        let without: Vec<f64> = kept.iter().filter(|kept| kept.at.is_none()).map(|kept| of(&kept.run)).collect();
        without.iter().sum::<f64>() / without.len().max(1) as f64
    };
    let (seconds, rss, system) = (mean(|run| run.seconds), mean(|run| run.rss), mean(|run| run.system));
    let stalled = mean(|run| run.some_stalled.unwrap_or(0.0));
    let change = |value: f64, before: f64| 100.0 * (value - before) / before.max(f64::MIN_POSITIVE);
    let of = |kept: &Kept| {
        let run = &kept.run;
        let changes = match run.failed {
            Some(_) => FAILED,
            None => Changes {
                runtime: change(run.seconds, seconds),
                rss: change(run.rss, rss),
                system: 100.0 * (run.system - system) / rss.max(f64::MIN_POSITIVE),
                pressure: 100.0 * (run.some_stalled.unwrap_or(0.0) - stalled),
            },
        };
        Some(Tried { at: kept.at.clone()?, changes })
    };
    kept.iter().filter_map(of).collect()
}

/// The program that a scheme is tuned for.
struct Program<'a> {
    workload: &'a Workload,
    runner: Runner<'a>,
    settings: Settings,
    work: PathBuf,
    is_ready: bool,
}

impl Program<'_> {
    /// Prepares the program, and runs it once without measuring it, before the first run.
    fn prepare(&mut self, tell: &mut dyn FnMut(Progress<'_>)) -> Result<(), EvalError> {
        if self.is_ready {
            return Ok(());
        }
        self.runner.prepare(self.workload, &self.work, None, tell)?;
        self.measure(Configuration::Orig, None, None)?;
        self.is_ready = true;
        Ok(())
    }

    fn measure(
        &self,
        configuration: Configuration,
        schemes: Option<PathBuf>,
        recording: Option<PathBuf>,
    ) -> Result<Run, EvalError> {
        self.settings.ready(configuration)?;
        self.runner.run(
            self.workload,
            configuration,
            &Files { work: self.work.clone(), schemes, recording, cgroup: None },
        )
    }

    /// The recording of a run without schemes, which is made unless it is there.
    fn recording(&mut self, store: &Store, tell: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf, EvalError> {
        let path = store.directory.join("isotherm.rec");
        if !path.exists() {
            self.prepare(tell)?;
            tell(Progress::Recording(&self.workload.name));
            self.measure(Configuration::Rec, None, Some(path.clone()))?;
        }
        Ok(path)
    }

    /// Runs with values, or without a scheme.
    fn try_values(
        &mut self,
        options: &TuneOptions,
        store: &mut Store,
        at: Option<Vec<f64>>,
        tell: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), EvalError> {
        self.prepare(tell)?;
        let values = at.as_ref().map(|at| options.schemes.values(at));
        let began = isotherm_kernel::unix_ns();
        let run = match &values {
            None => self.measure(Configuration::Orig, None, None)?,
            Some(values) => {
                let text = options.schemes.text(values);
                let file = std::path::absolute(store.write("tried.yaml", text.as_bytes())?);
                let file = file.map_err(EvalError::system("no current directory"))?;
                // A configuration that acts, by the schemes of this file.
                Run::or_failed(self.measure(Configuration::Prcl, Some(file), None))?
            }
        };
        let nth = store.runs.len() as u32 + 1;
        let run = Run { workload: self.workload.name.clone(), nth, started_unix_ns: began, ..run };
        // Values are rounded, so that this is the place that was tried.
        let at = values.as_ref().map(|values| options.schemes.places(values));
        store.add(Kept { at, values, run })?;
        tell_of(options, store, tell);
        if self.runner.stop.load(Ordering::Relaxed) { Err(EvalError::Stopped) } else { Ok(()) }
    }
}

/// Says what came of the last run.
fn tell_of(options: &TuneOptions, store: &Store, tell: &mut dyn FnMut(Progress<'_>)) {
    let Some(last) = store.runs.last() else { return };
    let figures = match (&last.run.failed, &last.at) {
        (Some(why), _) => format!("failed: {why}"),
        (None, None) => {
            let time = isotherm_core::units::duration(Duration::from_secs_f64(last.run.seconds));
            format!("{time}, RSS {}", isotherm_core::units::bytes(last.run.rss as u64))
        }
        (None, Some(_)) => {
            let changes = tried(&store.runs).last().map_or(FAILED, |tried| tried.changes);
            let score = options.objective.of(changes);
            format!("runtime {:+.1} %, memory {:+.1} %, score {score:+.1}", changes.runtime, changes.rss)
        }
    };
    let values = last.values.as_ref().map_or_else(String::new, |values| {
        let named = options.schemes.parameters.iter().zip(values).map(|(p, v)| format!("{} {}", p.name, p.shown(*v)));
        named.collect::<Vec<_>>().join(", ")
    });
    let of = options.runs + BASELINE[0] + (options.runs.saturating_sub(1)) / BASELINE[1];
    tell(Progress::Tried { values, figures, number: store.runs.len(), of: of.max(store.runs.len()) });
}
