//! An evaluation: the runs of a suite, interleaved, with a warm-up of each workload.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use isotherm_core::scheme::Scheme;
use isotherm_kernel::unix_ns;

use crate::configuration::Role;
use crate::needs::{Abilities, missing, probe};
use crate::progress::time_left;
use crate::run::{Files, Runner};
use crate::settings::Settings;
use crate::{Configuration, EvalError, LeftOut, Machine, Progress, Results, Run, RunOptions, Session, Suite, Workload};

/// What to evaluate, and how.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The programs.
    pub suite: Suite,
    /// The names of those that run; all if empty.
    pub only: Vec<String>,
    /// The configurations. `None` stands for all that are possible; if they are named, each must be possible for some
    /// workload.
    pub configurations: Option<Vec<Configuration>>,
    /// Runs of each workload under each configuration.
    pub runs: u32,
    /// Scheme files in place of those of the configurations.
    pub schemes: Vec<(Configuration, PathBuf)>,
    /// How runs are made, and where their results go.
    pub how: RunOptions,
}

/// What came of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The runs that were made.
    pub runs: usize,
    /// How many of them failed.
    pub failed: usize,
}

/// A workload with its configurations.
struct Planned<'a> {
    workload: &'a Workload,
    configurations: Vec<Configuration>,
}

/// Makes the runs that are not in the results yet. Ends early when `stop` is set.
///
/// # Errors
/// If nothing can be run, or the results cannot be written. A run that fails is no error: it is part of the results,
/// and made again by the next evaluation that resumes.
pub fn evaluate(
    evaluation: &Evaluation,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Summary, EvalError> {
    let how = &evaluation.how;
    let schemes = scheme_texts(evaluation)?;
    let machine = Machine::read();
    let (plan, left_out) = plan(evaluation, &machine, &schemes)?;
    left_out.iter().for_each(|left_out| tell(Progress::LeftOut(left_out)));
    let session = Session {
        started_unix_ns: unix_ns(),
        isotherm: how.isotherm.1.clone(),
        machine: machine.clone(),
        suite: evaluation.suite.name.clone(),
        workloads: evaluation.suite.workloads.iter().map(|workload| workload.name.clone()).collect(),
        configurations: configurations(evaluation),
        runs: evaluation.runs,
        scale: how.scale,
        may_change: how.may_change.names(),
        options: how.options.clone(),
        left_out,
    };
    let results = Results::begin(&how.directory, how.resume, session)?;
    let settings = how.settings(&machine)?;
    let variables = how.variables(&evaluation.suite.directory, &machine)?;
    let sets_huge_pages = how.may_change.huge_pages || machine.huge_pages == "always";
    let runner = Runner { sets_huge_pages, ..how.runner(&variables, stop) };
    Course { evaluation, runner, settings, results, plan, made: 0, failed: 0, tell }.run(&schemes)
}

/// The configurations that are wanted, the baseline among them.
fn configurations(evaluation: &Evaluation) -> Vec<Configuration> {
    let named = evaluation.configurations.clone();
    let mut wanted = named.unwrap_or_else(|| Configuration::ALL.to_vec());
    wanted.push(Configuration::Orig);
    wanted.sort();
    wanted.dedup();
    wanted
}

/// The text of the schemes of each configuration that acts, with its name in messages.
fn scheme_texts(evaluation: &Evaluation) -> Result<Vec<(Configuration, String, String)>, EvalError> {
    let mut texts = Vec::new();
    for configuration in configurations(evaluation) {
        let Role::Acts(shipped) = configuration.role() else { continue };
        let own = evaluation.schemes.iter().find(|(of, _)| *of == configuration).map(|(_, path)| &**path);
        let (name, text, _) = scheme_text(configuration.name(), shipped, own)?;
        texts.push((configuration, name, text));
    }
    Ok(texts)
}

/// The name of a scheme file in messages, its text, and the schemes. `shipped` is the text unless the user has a file
/// of `own`.
pub(crate) fn scheme_text(
    name: &str,
    shipped: &str,
    own: Option<&Path>,
) -> Result<(String, String, Vec<Scheme>), EvalError> {
    let (name, text) = match own {
        Some(path) => (path.display().to_string(), isotherm_scheme::read_text(path).map_err(EvalError::Suite)?),
        None => (format!("{name}.yaml"), shipped.to_owned()),
    };
    let schemes = isotherm_scheme::parse(&name, &text).map_err(EvalError::Suite)?;
    Ok((name, text, schemes))
}

/// What is run, and what is left out.
fn plan<'a>(
    evaluation: &'a Evaluation,
    machine: &Machine,
    schemes: &[(Configuration, String, String)],
) -> Result<(Vec<Planned<'a>>, Vec<LeftOut>), EvalError> {
    let wanted = configurations(evaluation);
    let probe = probe(&evaluation.how.options);
    let abilities = Abilities::find(machine, evaluation.how.may_change, probe, &wanted, |configuration| {
        let (_, name, text) = schemes.iter().find(|(of, ..)| *of == configuration)?;
        isotherm_scheme::parse(name, text).ok()
    });
    let (mut plan, mut left_out) = (Vec::new(), Vec::new());
    for workload in evaluation.suite.select(&evaluation.only)? {
        if let Some(why) = missing(workload, evaluation.suite.install.as_deref()) {
            left_out.push(LeftOut { workload: workload.name.clone(), configuration: None, why });
            continue;
        }
        let mut configurations = wanted.clone();
        configurations.retain(|&configuration| {
            let lack = abilities.lack(configuration, workload);
            let of = |why| LeftOut { workload: workload.name.clone(), configuration: Some(configuration), why };
            left_out.extend(lack.clone().map(of));
            lack.is_none()
        });
        // Without the baseline, there is nothing to compare with.
        if configurations.contains(&Configuration::Orig) {
            plan.push(Planned { workload, configurations });
        }
    }
    let is_run =
        |configuration: &Configuration| plan.iter().any(|planned| planned.configurations.contains(configuration));
    let refused: Vec<Configuration> = match &evaluation.configurations {
        Some(named) => named.iter().copied().filter(|configuration| !is_run(configuration)).collect(),
        None if plan.is_empty() => wanted,
        None => Vec::new(),
    };
    if refused.is_empty() {
        return Ok((plan, left_out));
    }
    let is_reason = |of: &&LeftOut| of.configuration.is_none_or(|configuration| refused.contains(&configuration));
    let name = |of: &LeftOut| of.configuration.map_or(of.workload.clone(), |of| of.name().into());
    let reason = |of: &LeftOut| format!("  {}: {}", name(of), of.why);
    let mut whys: Vec<String> = left_out.iter().filter(is_reason).map(reason).collect();
    whys.dedup();
    Err(EvalError::NothingToRun(whys.join("\n")))
}

/// The course of an evaluation.
struct Course<'a> {
    evaluation: &'a Evaluation,
    runner: Runner<'a>,
    settings: Settings,
    results: Results,
    plan: Vec<Planned<'a>>,
    made: usize,
    failed: usize,
    tell: &'a mut dyn FnMut(Progress<'_>),
}

impl Course<'_> {
    fn run(mut self, schemes: &[(Configuration, String, String)]) -> Result<Summary, EvalError> {
        let mut files = Vec::new();
        for (configuration, _, text) in schemes {
            files.push((*configuration, self.results.keep_schemes(*configuration, text)?));
        }
        let plan = std::mem::take(&mut self.plan);
        let mut left: Vec<(usize, Vec<(u32, Configuration)>)> =
            plan.iter().map(|planned| self.open_runs(planned)).enumerate().collect();
        left.retain(|(_, open)| !open.is_empty());
        let all: usize = left.iter().map(|(_, open)| open.len()).sum();
        if let Some(script) = self.evaluation.suite.prepare.as_deref().filter(|_| all > 0) {
            (self.tell)(Progress::Preparing(&self.evaluation.suite.name));
            let work = self.results.work(&self.evaluation.suite.name, "all");
            self.runner.shell(script, &work, None, &format!("the preparation of {}", self.evaluation.suite.name))?;
        }
        while !left.is_empty() {
            let (nth, open) = left.remove(0);
            let workload = plan[nth].workload;
            let ready = self.prepare(workload);
            for (done, &(nth, configuration)) in open.iter().enumerate() {
                let began = unix_ns();
                let ran = match &ready {
                    Ok(()) => self.measure(workload, configuration, &files),
                    Err(EvalError::Stopped) => Err(EvalError::Stopped),
                    Err(error) => Err(EvalError::Failed(isotherm_run::chain(error).to_string())),
                };
                let run = Run { configuration, ..Run::or_failed(ran)? };
                self.made += 1;
                self.failed += usize::from(run.failed.is_some());
                let session = self.results.sessions.len() - 1;
                let run = Run { session, workload: workload.name.clone(), nth, started_unix_ns: began, ..run };
                self.results.add(run.clone())?;
                let later = left.iter().map(|(nth, open)| (&*plan[*nth].workload.name, open.len() + 1));
                let rest = std::iter::once((&*workload.name, open.len() - done - 1)).chain(later);
                let time = time_left(self.results.done(), rest);
                let under = configuration.name();
                (self.tell)(Progress::Ran { run: &run, under, number: self.made, of: all, left: time });
            }
        }
        Ok(Summary { runs: self.made, failed: self.failed })
    }

    /// The runs of a workload that are not in the results. Each next round begins with another configuration.
    fn open_runs(&self, planned: &Planned<'_>) -> Vec<(u32, Configuration)> {
        let mut open = Vec::new();
        for nth in 1..=self.evaluation.runs {
            let mut round = planned.configurations.clone();
            let count = round.len();
            round.rotate_left((nth as usize - 1) % count);
            open.extend(round.into_iter().map(|configuration| (nth, configuration)));
        }
        open.retain(|&(nth, configuration)| {
            let is_it = |run: &Run| {
                run.workload == planned.workload.name && run.configuration == configuration && run.nth == nth
            };
            !self.results.done().any(is_it)
        });
        open
    }

    /// Prepares a workload and runs it once without measuring it: files come into the page cache, and an emulator
    /// translates the program.
    fn prepare(&mut self, workload: &Workload) -> Result<(), EvalError> {
        self.runner.prepare(workload, &self.work(workload), None, self.tell)?;
        self.measure(workload, Configuration::Orig, &[]).map(drop)
    }

    fn measure(
        &self,
        workload: &Workload,
        configuration: Configuration,
        schemes: &[(Configuration, PathBuf)],
    ) -> Result<Run, EvalError> {
        self.settings.ready(configuration)?;
        let kept = self.results.recording(&workload.name, configuration);
        let files = Files {
            work: self.work(workload),
            schemes: schemes.iter().find(|(of, _)| *of == configuration).map(|(_, path)| path.clone()),
            recording: (!kept.exists()).then_some(kept),
            cgroup: None,
        };
        self.runner.run(workload, configuration, &files)
    }

    fn work(&self, workload: &Workload) -> PathBuf {
        self.results.work(&self.evaluation.suite.name, &workload.name)
    }
}
