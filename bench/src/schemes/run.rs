//! One run of a program under a configuration.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::machine::Machine;
use super::prepare::prepare;
use super::sampler::Samples;
use super::work::{PIDS, TOOK, Took};
use super::workload::Workload;
use super::{Configuration, Run};

/// A run that takes longer is taken to hang.
const TOO_LONG: Duration = Duration::from_secs(900);

/// What a run needs.
#[derive(Debug)]
pub struct Runner {
    /// Path of isotherm.
    pub isotherm: PathBuf,
    /// The directory of the scheme files.
    pub schemes: PathBuf,
    /// More options for isotherm, such as `--probe bpf`.
    pub more: Vec<String>,
    /// Factor for the work of each program.
    pub length: f64,
    /// The machine.
    pub machine: Machine,
    /// A directory for the files of this measurement.
    pub place: PathBuf,
}

impl Runner {
    /// Makes the input files of a workload.
    ///
    /// # Errors
    /// If they cannot be written, or a program that makes them is missing.
    pub fn prepare(&self, workload: &Workload) -> Result<()> {
        prepare(workload, &self.place, self.length)
    }

    /// Runs the program once.
    ///
    /// # Errors
    /// If it fails, or isotherm does, or it takes too long.
    pub fn run(&self, workload: &Workload, configuration: Configuration, nth: u32) -> Result<Run> {
        self.machine.ready(configuration.huge_pages())?;
        for file in [PIDS, TOOK] {
            let _ = std::fs::remove_file(self.place.join(file));
        }
        let (mut command, is_isotherm) = self.command(workload, configuration)?;
        let said = tempfile::NamedTempFile::new()?;
        let mut samples = Samples::begin()?;
        let mut child = KillOnDrop(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen()?).spawn()?);
        let isotherm = is_isotherm.then(|| child.0.id());
        let start = Instant::now();
        let mut status = None;
        samples.take(&self.place.join(PIDS), isotherm, || {
            status = child.0.try_wait()?;
            ensure!(start.elapsed() < TOO_LONG, "it had not ended after {} s", TOO_LONG.as_secs());
            // The run ends with the program, not with isotherm.
            Ok(status.is_some() || self.place.join(TOOK).exists())
        })?;
        let status = match status {
            Some(status) => status,
            None => wait(&mut child.0)?,
        };
        let said = std::fs::read_to_string(said.path())?;
        let Ok(took) = std::fs::read_to_string(self.place.join(TOOK)) else {
            bail!("{} under {} ended with {status}: {said}", workload.name, configuration.name());
        };
        ensure!(status.success(), "{} under {} ended with {status}: {said}", workload.name, configuration.name());
        let took: Took = serde_json::from_str(&took)?;
        let (rss_mean, rss_late, rss_max) = samples.rss();
        let (system_mean, system_late) = samples.system();
        let (huge_mean, swap_mean) = samples.huge_and_swapped();
        Ok(Run {
            place: self.machine.name().into(),
            workload: workload.name.into(),
            configuration,
            nth,
            seconds: took.seconds,
            cpu_seconds: took.cpu_seconds,
            isotherm_cpu_seconds: samples.isotherm_cpu.as_secs_f64(),
            rss_mean,
            rss_late,
            rss_max,
            system_mean,
            system_late,
            huge_mean,
            swap_mean,
            samples: samples.len(),
            said,
        })
    }

    /// The command, and whether it is isotherm.
    fn command(&self, workload: &Workload, configuration: Configuration) -> Result<(Command, bool)> {
        let this = std::env::current_exe().context("the path of this program is unknown")?;
        let schemes = match configuration {
            Configuration::Orig | Configuration::Thp => None,
            Configuration::Ethp => Some(Some("ethp.yaml")),
            Configuration::Prcl => Some(Some("prcl.yaml")),
            Configuration::Rec => Some(None),
        };
        let mut command = Command::new(if schemes.is_some() { &self.isotherm } else { &this });
        match schemes {
            None => {}
            Some(Some(file)) => {
                command.args(["run", "--quiet", "--schemes"]).arg(self.schemes.join(file));
            }
            Some(None) => {
                command.args(["record", "--quiet", "-o"]).arg(self.place.join("isotherm.rec"));
            }
        }
        if schemes.is_some() {
            command.arg("--children").args(&self.more).arg("--").arg(&this);
        }
        command.arg("work").arg(workload.name).arg(&self.place).args(["--length", &self.length.to_string()]);
        if self.machine == Machine::Here && configuration == Configuration::Thp {
            command.arg("--huge");
        }
        Ok((command, schemes.is_some()))
    }
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        ensure!(start.elapsed() < Duration::from_secs(60), "isotherm had not ended 60 s after the program");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that is killed when this is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory for files of a measurement: in memory in the laboratory, on a disk elsewhere.
pub fn default_place(machine: Machine) -> &'static Path {
    Path::new(match machine {
        Machine::Laboratory => "/tmp",
        Machine::Here => "target/bench",
    })
}
