//! The course of the runs under pressure.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use isotherm_kernel::cgroup::{Hierarchy, NoOwnCgroup, OwnCgroup};
use isotherm_kernel::unix_ns;
use isotherm_run::chain;

use super::store::{Kept, Store, Subject};
use super::{PressureCase, PressureOptions, PressureResult, PressureScheme};
use crate::evaluate::scheme_text;
use crate::needs::{Abilities, lack_of_schemes, missing, probe};
use crate::progress::time_left;
use crate::run::{Files, Runner};
use crate::settings::Settings;
use crate::{Configuration, EvalError, LeftOut, Machine, Progress, Run, Workload, results};

pub(super) fn run(
    options: &PressureOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<PressureResult, EvalError> {
    let how = &options.how;
    let texts = scheme_texts(options)?;
    let machine = Machine::read();
    let (plan, left_out) = plan(options, &machine)?;
    left_out.iter().for_each(|left_out| tell(Progress::LeftOut(left_out)));
    let cgroups = Cgroups::find(options)?;
    let subject = Subject {
        machine: machine.clone(),
        isotherm: how.isotherm.1.clone(),
        suite: options.suite.name.clone(),
        scale: how.scale,
        options: how.options.clone(),
        may_change: how.may_change.names(),
        schemes: texts.iter().map(|(_, text)| &**text).collect(),
    };
    let store = Store::begin(&how.directory, how.resume, &subject)?;
    let files = texts.iter().map(|(scheme, text)| {
        let path = store.write(&format!("{}.yaml", scheme.name()), text.as_bytes())?;
        Ok((*scheme, std::path::absolute(path).map_err(EvalError::system("no current directory"))?))
    });
    let files = files.collect::<Result<Vec<_>, EvalError>>()?;
    let settings = how.settings(&machine)?;
    let variables = how.variables(&options.suite.directory, &machine)?;
    let runner = how.runner(&variables, stop);
    let mut course = Course { options, runner, settings, cgroups, store, files, tell };
    course.run(&plan)?;
    let names: Vec<&str> = options.suite.workloads.iter().map(|workload| &*workload.name).collect();
    Ok(PressureResult::of(&machine, &names, &course.store.runs, left_out))
}

/// The text of each scheme file, whether it is wanted now or not.
fn scheme_texts(options: &PressureOptions) -> Result<Vec<(PressureScheme, String)>, EvalError> {
    let mut texts = Vec::new();
    for scheme in PressureScheme::ALL {
        let Some(shipped) = scheme.shipped() else { continue };
        let own = options.files.iter().find(|(of, _)| *of == scheme).map(|(_, path)| &**path);
        let (_, text, parsed) = scheme_text(scheme.name(), shipped, own)?;
        let is_wanted = options.schemes.contains(&scheme);
        if let Some(why) = is_wanted.then(|| lack_of_schemes(parsed, &options.how.options)).flatten() {
            return Err(EvalError::Failed(format!("{}: {why}", scheme.name())));
        }
        texts.push((scheme, text));
    }
    Ok(texts)
}

/// What is run, and what is left out.
fn plan<'a>(options: &'a PressureOptions, machine: &Machine) -> Result<(Vec<&'a Workload>, Vec<LeftOut>), EvalError> {
    let abilities = Abilities::find(machine, options.how.may_change, probe(&options.how.options), &[], |_| None);
    let (mut plan, mut left_out) = (Vec::new(), Vec::new());
    for workload in options.suite.select(&options.only)? {
        let lack = missing(workload, options.suite.install.as_deref()).or_else(|| abilities.lack_of_swap(workload));
        match lack {
            Some(why) => left_out.push(LeftOut { workload: workload.name.clone(), configuration: None, why }),
            None => plan.push(workload),
        }
    }
    if plan.is_empty() {
        let whys: Vec<String> = left_out.iter().map(|of| format!("  {}: {}", of.workload, of.why)).collect();
        return Err(EvalError::NothingToRun(whys.join("\n")));
    }
    Ok((plan, left_out))
}

/// Where cgroups are made.
struct Cgroups {
    hierarchy: Hierarchy,
    parent: String,
}

impl Cgroups {
    /// Finds it, and tries to make one.
    fn find(options: &PressureOptions) -> Result<Self, EvalError> {
        let hierarchy = Hierarchy::find(Path::new("/")).map_err(|error| refused(&error.into()))?;
        let parent = hierarchy.path_of(&options.parent);
        let cgroups = Self { hierarchy, parent };
        let tried = cgroups.make()?;
        let peak = tried.peak().map_err(EvalError::system(
            "the kernel does not tell the most memory of a cgroup (use Linux 5.19 or later, or cgroups of version 1)",
        ));
        removed(tried)?;
        peak.map(|_| cgroups)
    }

    fn make(&self) -> Result<OwnCgroup, EvalError> {
        // The cgroup of a run that was killed may be there, with another number.
        let name = format!("isotherm-eval-{}", std::process::id());
        OwnCgroup::make(&self.hierarchy, &self.parent, &name).map_err(|error| refused(&error))
    }
}

fn refused(error: &NoOwnCgroup) -> EvalError {
    EvalError::Failed(format!("memory cannot be limited: {}", chain(error)))
}

fn removed(cgroup: OwnCgroup) -> Result<(), EvalError> {
    let what = format!("the cgroup {} cannot be removed", cgroup.directory().display());
    cgroup.remove().map_err(EvalError::system(what))
}

struct Course<'a> {
    options: &'a PressureOptions,
    runner: Runner<'a>,
    settings: Settings,
    cgroups: Cgroups,
    store: Store,
    /// The scheme files, by absolute paths.
    files: Vec<(PressureScheme, PathBuf)>,
    tell: &'a mut dyn FnMut(Progress<'_>),
}

impl Course<'_> {
    fn run(&mut self, plan: &[&Workload]) -> Result<(), EvalError> {
        let open = plan.iter().map(|workload| (*workload, self.open_runs(workload)));
        let mut left: Vec<(&Workload, Vec<(u32, PressureCase)>)> = open.filter(|(_, open)| !open.is_empty()).collect();
        let all: usize = left.iter().map(|(_, open)| open.len()).sum();
        let suite = &self.options.suite;
        if let Some(script) = suite.prepare.as_deref().filter(|_| all > 0) {
            (self.tell)(Progress::Preparing(&suite.name));
            let work = results::work(&self.options.how.directory, &suite.name, "all");
            let what = format!("the preparation of {}", suite.name);
            let cgroup = self.cgroups.make()?;
            self.runner.shell(script, &work, Some(&cgroup.processes()), &what)?;
            removed(cgroup)?;
        }
        let mut number = 0;
        while !left.is_empty() {
            let (workload, open) = left.remove(0);
            let unlimited = self.unlimited(workload);
            for (done, &(nth, case)) in open.iter().enumerate() {
                let began = unix_ns();
                let measured = match &unlimited {
                    Ok(unlimited) => self.measure(workload, case, *unlimited),
                    Err(EvalError::Stopped) => Err(EvalError::Stopped),
                    Err(error) => Err(EvalError::Failed(chain(error).to_string())),
                };
                let (peak, measured) = measured.map_or_else(|error| (0, Err(error)), |(run, peak)| (peak, Ok(run)));
                let configuration = case.scheme.configuration();
                let run = Run { configuration, ..Run::or_failed(measured)? };
                let run = Run { workload: workload.name.clone(), nth, started_unix_ns: began, ..run };
                let unlimited = *unlimited.as_ref().unwrap_or(&0);
                self.store.add(Kept { case, unlimited, peak, run: run.clone() })?;
                number += 1;
                let later = left.iter().map(|(later, open)| (&*later.name, open.len() + 1));
                let rest = std::iter::once((&*workload.name, open.len() - done - 1)).chain(later);
                let made = self.store.runs.iter().map(|kept| &kept.run).filter(|run| run.failed.is_none());
                let time = time_left(made, rest);
                (self.tell)(Progress::Ran { run: &run, under: &case.name(), number, of: all, left: time });
            }
        }
        Ok(())
    }

    /// The runs of a workload that are not in the results. Each next round begins with another case.
    fn open_runs(&self, workload: &Workload) -> Vec<(u32, PressureCase)> {
        let cases = self.options.cases();
        let rounds = (1..=self.options.runs).flat_map(|nth| {
            let mut round = cases.clone();
            round.rotate_left((nth as usize - 1) % cases.len());
            round.into_iter().map(move |case| (nth, case))
        });
        let is_made = |(nth, case): &(u32, PressureCase)| {
            self.store.runs.iter().any(|kept| kept.is_of(&workload.name, *case) && kept.run.nth == *nth)
        };
        rounds.filter(|run| !is_made(run)).collect()
    }

    /// Prepares a workload, and runs it once without a limit. Returns the most memory that it had in the first such run
    /// that there was, so that the limits of all runs are the same.
    fn unlimited(&mut self, workload: &Workload) -> Result<u64, EvalError> {
        let cgroup = self.cgroups.make()?;
        self.runner.prepare(workload, &self.work(workload), Some(&cgroup.processes()), self.tell)?;
        // What it has read is not charged to later cgroups as long as this one has it.
        removed(cgroup)?;
        let (_, peak) = self.measure(workload, PressureCase::FREE, 0)?;
        let known = self.store.runs.iter().find(|kept| kept.run.workload == workload.name && kept.unlimited > 0);
        Ok(known.map_or(peak, |kept| kept.unlimited))
    }

    /// One run, and the most memory that it had, in bytes.
    fn measure(&self, workload: &Workload, case: PressureCase, unlimited: u64) -> Result<(Run, u64), EvalError> {
        let cgroup = self.cgroups.make()?;
        let limit = case.limit.map(|percent| unlimited / 100 * u64::from(percent));
        if let Some(limit) = limit {
            let what = format!("the memory of {} cannot be limited to {limit} bytes", cgroup.directory().display());
            cgroup.limit(limit).map_err(EvalError::system(what))?;
        }
        self.settings.ready(Configuration::Orig)?;
        let files = Files {
            work: self.work(workload),
            schemes: self.files.iter().find(|(of, _)| *of == case.scheme).map(|(_, path)| path.clone()),
            recording: None,
            cgroup: Some(cgroup.processes()),
        };
        let ran = self.runner.run(workload, case.scheme.configuration(), &files);
        let (kills, peak) = (cgroup.out_of_memory_kills(), cgroup.peak());
        removed(cgroup)?;
        match ran {
            Err(EvalError::Stopped) => Err(EvalError::Stopped),
            _ if kills > 0 => {
                let limit = limit
                    .map_or("without a limit".into(), |limit| format!("with {}", isotherm_core::units::bytes(limit)));
                Err(EvalError::Failed(format!(
                    "the kernel killed {kills} of its processes {limit}: swap was full, or what was left was locked"
                )))
            }
            ran => Ok((ran?, peak.map_err(EvalError::system("the most memory of the cgroup is unknown"))?)),
        }
    }

    fn work(&self, workload: &Workload) -> PathBuf {
        results::work(&self.options.how.directory, &self.options.suite.name, &workload.name)
    }
}
