//! An evaluation: the runs of a suite, interleaved, with a warm-up of each workload.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use isotherm_kernel::unix_ns;

use crate::configuration::Role;
use crate::needs::{Abilities, missing, probe};
use crate::progress::time_left;
use crate::run::{Files, Runner};
use crate::settings::Settings;
use crate::{Configuration, EvalError, LeftOut, Machine, MayChange, Progress, Results, Run, Session, Suite, Workload};

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
    /// The directory of the results.
    pub directory: PathBuf,
    /// Whether it may have results, which are added to.
    pub resume: bool,
    /// The size of the work of each program, in per cent of the usual. Commands have it in `$SCALE`.
    pub scale: u32,
    /// Settings of the machine that may be changed.
    pub may_change: MayChange,
    /// The program isotherm, and its version.
    pub isotherm: (PathBuf, String),
    /// Further options of `isotherm record` and `isotherm run`.
    pub options: Vec<String>,
    /// Scheme files in place of those of the configurations.
    pub schemes: Vec<(Configuration, PathBuf)>,
    /// A tree of PARSEC. Commands have it in `$PARSEC`.
    pub parsec: Option<PathBuf>,
    /// How long a command may take.
    pub timeout: Duration,
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
    let schemes = scheme_texts(evaluation)?;
    let machine = Machine::read();
    let (plan, left_out) = plan(evaluation, &machine, &schemes)?;
    left_out.iter().for_each(|left_out| tell(Progress::LeftOut(left_out)));
    let session = Session {
        started_unix_ns: unix_ns(),
        isotherm: evaluation.isotherm.1.clone(),
        machine: machine.clone(),
        suite: evaluation.suite.name.clone(),
        workloads: evaluation.suite.workloads.iter().map(|workload| workload.name.clone()).collect(),
        configurations: configurations(evaluation),
        runs: evaluation.runs,
        scale: evaluation.scale,
        may_change: evaluation.may_change.names(),
        options: evaluation.options.clone(),
        left_out,
    };
    let results = Results::begin(&evaluation.directory, evaluation.resume, session)?;
    let settings = Settings::begin(evaluation.may_change, machine.swap, machine.memory)?;
    let (suite, isotherm) = (&evaluation.suite.directory, &evaluation.isotherm.0);
    let runner = Runner {
        isotherm,
        options: &evaluation.options,
        variables: &variables(suite, isotherm, evaluation.scale, &machine, evaluation.parsec.as_deref())?,
        sets_huge_pages: evaluation.may_change.huge_pages || machine.huge_pages == "always",
        timeout: evaluation.timeout,
        stop,
    };
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
        let own = evaluation.schemes.iter().find(|(of, _)| *of == configuration);
        let (name, text) = match own {
            Some((_, path)) => {
                let text = isotherm_scheme::read_text(path).map_err(EvalError::Suite)?;
                (path.display().to_string(), text)
            }
            None => (format!("{}.yaml", configuration.name()), shipped.to_owned()),
        };
        isotherm_scheme::parse(&name, &text).map_err(EvalError::Suite)?;
        texts.push((configuration, name, text));
    }
    Ok(texts)
}

/// The environment variables of commands.
pub(crate) fn variables(
    suite: &Path,
    isotherm: &Path,
    scale: u32,
    machine: &Machine,
    parsec: Option<&Path>,
) -> Result<Vec<(String, String)>, EvalError> {
    let mut variables = vec![
        ("SUITE".into(), suite.display().to_string()),
        ("ISOTHERM".into(), isotherm.display().to_string()),
        ("SCALE".into(), scale.to_string()),
        ("CPUS".into(), machine.cpus.to_string()),
        ("MEMORY_MIB".into(), (machine.memory >> 20).to_string()),
    ];
    if let Some(parsec) = parsec {
        let parsec = std::path::absolute(parsec).map_err(EvalError::system("no current directory"))?;
        variables.push(("PARSEC".into(), parsec.display().to_string()));
    }
    Ok(variables)
}

/// What is run, and what is left out.
fn plan<'a>(
    evaluation: &'a Evaluation,
    machine: &Machine,
    schemes: &[(Configuration, String, String)],
) -> Result<(Vec<Planned<'a>>, Vec<LeftOut>), EvalError> {
    let wanted = configurations(evaluation);
    let probe = probe(&evaluation.options);
    let abilities = Abilities::find(machine, evaluation.may_change, probe, &wanted, |configuration| {
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
