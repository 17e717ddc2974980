//! One run of a workload under a configuration.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_input::Input;
use isotherm_output::Output;
use serde::{Deserialize, Serialize};

use crate::child::{Child, Usage, last_lines};
use crate::configuration::Role;
use crate::sampler::Samples;
use crate::{Configuration, EvalError, Progress, Recorded, Workload};

/// How long isotherm may take to begin, and to end after the program.
const ISOTHERM_PATIENCE: Duration = Duration::from_secs(120);

/// The time between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The figures of one run. Memory is in bytes, times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number of its session, from 0.
    pub session: usize,
    /// The name of the workload.
    pub workload: String,
    /// The configuration.
    pub configuration: Configuration,
    /// The number of the run among those of the same workload and configuration, from 1.
    pub nth: u32,
    /// Why it failed. Its figures then mean nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// When it began, in nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The runtime: what the program says, or else the time of the command.
    pub seconds: f64,
    /// The time of the command, from its start to its end.
    pub command_seconds: f64,
    /// CPU time of the command and of its descendants that ended within it.
    pub cpu_seconds: f64,
    /// Resident memory of all processes of the command, added up: the mean.
    pub rss: f64,
    /// The mean over the last quarter of the run.
    pub rss_late: f64,
    /// The most.
    pub rss_max: f64,
    /// The mean of their proportional sizes (PSS), in which memory that several processes map counts once. `None` if it
    /// was not read.
    #[serde(default)]
    pub pss: Option<f64>,
    /// Memory of the system that is not free, minus that before the run: the mean. isotherm and zram are part of it.
    pub system: f64,
    /// Anonymous memory in huge pages, beyond that before the run: the mean.
    pub huge: f64,
    /// Memory in swap, beyond that before the run: the mean.
    pub swap: f64,
    /// Memory that zram takes, beyond that before the run: the mean.
    pub zram: f64,
    /// Major page faults of the command and of its descendants that ended within it.
    pub major_faults: u64,
    /// Refaults of the system: anonymous pages that were reclaimed and came back soon.
    pub anonymous_refaults: u64,
    /// Refaults of the system: pages of files.
    pub file_refaults: u64,
    /// Pages of the system that were written to swap.
    pub swapped_out: u64,
    /// The share of the time in which some task waited for memory (PSI), 0 to 1. `None` if the kernel does not tell.
    pub some_stalled: Option<f64>,
    /// The share of the time in which all tasks waited for memory at once.
    pub all_stalled: Option<f64>,
    /// The number of samples of memory.
    pub samples: usize,
    /// What isotherm took, if it ran.
    pub isotherm: Option<Isotherm>,
    /// What isotherm's recording tells, if it ran.
    pub recorded: Option<Recorded>,
}

/// What isotherm took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Isotherm {
    /// CPU time, from its start to its end.
    pub cpu_seconds: f64,
    /// Resident memory: the mean while the program ran.
    pub rss: f64,
    /// The most.
    pub rss_max: f64,
}

impl Run {
    /// The run, or one that has failed. The end by the user is an error still.
    pub(crate) fn or_failed(ran: Result<Self, EvalError>) -> Result<Self, EvalError> {
        match ran {
            Err(EvalError::Stopped) => Err(EvalError::Stopped),
            Err(error) => Ok(Self { failed: Some(isotherm_run::chain(&error).to_string()), ..Self::default() }),
            Ok(run) => Ok(run),
        }
    }
}

/// What all runs of an evaluation share.
pub(crate) struct Runner<'a> {
    /// The program isotherm.
    pub(crate) isotherm: &'a Path,
    /// Further options of isotherm.
    pub(crate) options: &'a [String],
    /// Environment variables of commands.
    pub(crate) variables: &'a [(String, String)],
    /// Whether `thp` sets the machine, so that programs need not ask for huge pages.
    pub(crate) sets_huge_pages: bool,
    /// How long a command may take.
    pub(crate) timeout: Duration,
    /// Set when the user wants to end.
    pub(crate) stop: &'a AtomicBool,
}

/// Files of a run.
pub(crate) struct Files {
    /// The directory of the workload.
    pub(crate) work: PathBuf,
    /// The scheme file, if the configuration acts.
    pub(crate) schemes: Option<PathBuf>,
    /// Where the recording is kept, if it is.
    pub(crate) recording: Option<PathBuf>,
    /// The file of a cgroup that the command becomes part of, `cgroup.procs`, if there is one.
    pub(crate) cgroup: Option<PathBuf>,
}

impl Runner<'_> {
    /// Runs the preparation of a workload, if it has one, and says that its warm-up is next.
    pub(crate) fn prepare(
        &self,
        workload: &Workload,
        work: &Path,
        cgroup: Option<&Path>,
        tell: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), EvalError> {
        if let Some(script) = &workload.prepare {
            tell(Progress::Preparing(&workload.name));
            self.shell(script, work, cgroup, &format!("the preparation of {}", workload.name))?;
        }
        tell(Progress::WarmingUp(&workload.name));
        Ok(())
    }

    /// Runs shell commands, such as a preparation, to their end, in a cgroup if it is named.
    pub(crate) fn shell(&self, script: &str, work: &Path, cgroup: Option<&Path>, what: &str) -> Result<(), EvalError> {
        let child = Child::start(self.shell_command(script, work, cgroup)?, what)?;
        let start = Instant::now();
        let ended = self.wait(&child, || start.elapsed() < self.timeout, what)?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(failed(what, &ended.status.to_string(), &child)),
        }
    }

    /// Runs a workload once. The run has its figures only.
    pub(crate) fn run(
        &self,
        workload: &Workload,
        configuration: Configuration,
        files: &Files,
    ) -> Result<Run, EvalError> {
        let role = configuration.role();
        let recording = files.work.join("isotherm.rec");
        let mut command = self.shell_command(&workload.command, &files.work, files.cgroup.as_deref())?;
        if configuration == Configuration::Thp && !self.sets_huge_pages {
            command.envs(workload.huge_pages.variables().map_err(|why| EvalError::Failed(why.into()))?);
        }
        let mut isotherm = match role {
            Role::RecordsPhysical => Some(self.start_recorder_of_all(&recording)?),
            Role::Absent | Role::Records | Role::Acts(_) => None,
        };
        let mut samples = Samples::begin()?;
        let before = Usage::now();
        let program = Child::start(command, &workload.name)?;
        let start = Instant::now();
        if matches!(role, Role::Records | Role::Acts(_)) {
            isotherm = Some(self.start_isotherm(program.pid(), files, &recording)?);
        }
        let ended = loop {
            let due = samples.take(program.pid(), isotherm.as_ref().map(Child::pid))?;
            if let Some(ended) = program.wait(due.saturating_duration_since(Instant::now()))? {
                break ended;
            }
            self.check_stop()?;
            if start.elapsed() > self.timeout {
                let what = format!("{} had not ended after {} s", workload.name, self.timeout.as_secs());
                return Err(EvalError::Failed(what));
            }
        };
        let counted = samples.counted()?;
        program.kill_group();
        let output = program.output();
        if !ended.status.success() {
            return Err(failed(&workload.name, &ended.status.to_string(), &program));
        }
        let isotherm =
            isotherm.map(|isotherm| self.end_isotherm(&isotherm, role, ended.usage, &samples)).transpose()?;
        let command_seconds = (ended.at - start).as_secs_f64();
        let seconds = match &workload.runtime {
            None => command_seconds,
            Some(runtime) => runtime.read(&output).ok_or_else(|| {
                let said = last_lines(&output);
                EvalError::Failed(format!("{} did not write its time after {:?}: {said}", workload.name, runtime.after))
            })?,
        };
        let recorded = isotherm.map(|_| Recorded::read(&recording, command_seconds)).transpose()?;
        if let (Some(kept), Some(_)) = (&files.recording, &recorded) {
            keep(&recording, kept)?;
        }
        let (took, [rss, rss_late, rss_max]) = (ended.usage.since(before), samples.rss());
        let [system, huge, swap, zram] = samples.system();
        let share = |stalled: Option<Duration>| Some(stalled?.as_secs_f64() / command_seconds);
        Ok(Run {
            configuration,
            seconds,
            command_seconds,
            cpu_seconds: took.cpu.as_secs_f64(),
            rss,
            rss_late,
            rss_max,
            pss: samples.pss(),
            system,
            huge,
            swap,
            zram,
            major_faults: took.major_faults,
            anonymous_refaults: counted.anonymous_refaults,
            file_refaults: counted.file_refaults,
            swapped_out: counted.swapped_out,
            some_stalled: share(counted.some_stalled),
            all_stalled: share(counted.all_stalled),
            samples: samples.len(),
            isotherm,
            recorded,
            ..Run::default()
        })
    }

    fn shell_command(&self, script: &str, work: &Path, cgroup: Option<&Path>) -> Result<Command, EvalError> {
        let what = format!("{} cannot be made", work.display());
        std::fs::create_dir_all(work).map_err(EvalError::system(what))?;
        let mut command = Command::new("sh");
        match cgroup {
            None => command.args(["-eu", "-c", script]),
            // The shell becomes part of it before it starts anything.
            Some(cgroup) => command.args(["-eu", "-c", &format!("echo $$ >\"$1\"; shift\n{script}"), "sh"]).arg(cgroup),
        };
        command.current_dir(work);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Starts isotherm on a process: to act on it if there are schemes, or else to record it.
    fn start_isotherm(&self, pid: u32, files: &Files, recording: &Path) -> Result<Child, EvalError> {
        let mut command = Command::new(self.isotherm);
        match &files.schemes {
            Some(schemes) => command.args(["run", "--quiet", "--schemes"]).arg(schemes).arg("--record").arg(recording),
            None => command.args(["record", "--quiet", "--output"]).arg(recording),
        };
        command.args(["--children", "--pid", &pid.to_string()]).args(self.options);
        Child::start(command, "isotherm")
    }

    /// Starts isotherm on physical memory, and waits until its recording has begun.
    fn start_recorder_of_all(&self, recording: &Path) -> Result<Child, EvalError> {
        let mut command = Command::new(self.isotherm);
        command.args(["record", "--quiet", "--physical", "--output"]).arg(recording).args(self.options);
        let before = modified(recording);
        let child = Child::start(command, "isotherm")?;
        let start = Instant::now();
        while modified(recording) == before {
            self.check_stop()?;
            if let Some(ended) = child.wait(LOOK)? {
                return Err(failed("isotherm", &ended.status.to_string(), &child));
            }
            if start.elapsed() > ISOTHERM_PATIENCE {
                return Err(failed("isotherm", "no recording of physical memory", &child));
            }
        }
        Ok(child)
    }

    /// Waits for the end of isotherm after that of the program, when all programs had taken `before`.
    fn end_isotherm(
        &self,
        isotherm: &Child,
        role: Role,
        before: Usage,
        samples: &Samples,
    ) -> Result<Isotherm, EvalError> {
        if role == Role::RecordsPhysical {
            isotherm.interrupt();
        }
        let start = Instant::now();
        let ended = self.wait(isotherm, || start.elapsed() < ISOTHERM_PATIENCE, "isotherm")?;
        if !ended.status.success() {
            return Err(failed("isotherm", &ended.status.to_string(), isotherm));
        }
        let [rss, rss_max] = samples.isotherm();
        Ok(Isotherm { cpu_seconds: ended.usage.since(before).cpu.as_secs_f64(), rss, rss_max })
    }

    /// Waits for the end of a process while `may` says that it may go on.
    fn wait(&self, child: &Child, may: impl Fn() -> bool, what: &str) -> Result<crate::child::Ended, EvalError> {
        while may() {
            self.check_stop()?;
            if let Some(ended) = child.wait(LOOK)? {
                return Ok(ended);
            }
        }
        Err(EvalError::Failed(format!("{what} takes too long")))
    }

    fn check_stop(&self) -> Result<(), EvalError> {
        if self.stop.load(Ordering::Relaxed) { Err(EvalError::Stopped) } else { Ok(()) }
    }
}

/// The file of a path and when it was changed, if there is one: a new recording takes the place of the last one.
fn modified(path: &Path) -> Option<(u64, std::time::SystemTime)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = path.metadata().ok()?;
    Some((metadata.ino(), metadata.modified().ok()?))
}

fn failed(what: &str, how: &str, child: &Child) -> EvalError {
    EvalError::Failed(format!("{what} failed: {how}: {}", last_lines(&child.output())))
}

/// Copies a recording to where it is kept.
fn keep(from: &Path, to: &Path) -> Result<(), EvalError> {
    let mut from = Input::new(from).open()?;
    Output::new(to).create()?.write_whole(|out| std::io::copy(&mut from, out).map(drop))?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_part_of_its_cgroup_before_it_begins() {
        let place = tempfile::tempdir().unwrap();
        let (work, processes) = (place.path().join("work"), place.path().join("cgroup.procs"));
        let runner = Runner {
            isotherm: Path::new("isotherm"),
            options: &[],
            variables: &[("NAME".to_owned(), "value".to_owned())],
            sets_huge_pages: false,
            timeout: ISOTHERM_PATIENCE,
            stop: &AtomicBool::new(false),
        };
        let read = |path: &Path| Input::new(path).text().unwrap();
        let script = "# It may begin with a comment.\necho $$ $# $NAME >seen";
        runner.shell(script, &work, Some(&processes), "it").unwrap();
        assert_eq!(read(&work.join("seen")), format!("{} 0 value\n", read(&processes).trim()));

        std::fs::remove_file(work.join("seen")).unwrap();
        let error = runner.shell(script, &work, Some(&place.path().join("none/cgroup.procs")), "it").unwrap_err();
        assert!(error.to_string().contains("none/cgroup.procs") && !work.join("seen").exists(), "{error}");
    }
}
