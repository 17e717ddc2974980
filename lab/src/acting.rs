//! Helpers of the tests of actions on cgroups: cgroups that account their memory, and runs that act on them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::idle::{CgroupWorkload, V2};
use crate::{EMULATED, Running, isotherm, result_file, run};

/// A cgroup that accounts its memory.
#[derive(Clone, Copy, Debug)]
pub struct Cgroup(pub &'static str);

impl Cgroup {
    /// Makes it, if it is not there.
    pub fn new(path: &'static str) -> Self {
        fs::write(format!("{V2}/cgroup.subtree_control"), "+memory").unwrap();
        fs::create_dir_all(format!("{V2}{path}")).unwrap();
        Self(path)
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{V2}{}/{name}", self.0))
    }

    /// The contents of one of its files.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    /// Writes to one of its files.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap_or_else(|error| panic!("{text} to {name} of {}: {error}", self.0));
    }

    /// Bytes of memory that it has.
    pub fn current(&self) -> u64 {
        self.read("memory.current").trim().parse().unwrap()
    }

    /// Its limit by `memory.high` in bytes. `None` if it is `max`.
    pub fn high(&self) -> Option<u64> {
        self.read("memory.high").trim().parse().ok()
    }

    /// A workload in it with so many MiB.
    pub fn workload(&self, cold: u64, hot: u64) -> CgroupWorkload {
        CgroupWorkload::new(&format!("{V2}{}", self.0), cold, hot)
    }

    /// A command in it.
    pub fn command(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo $$ > {}; {script}", self.file("cgroup.procs").display())]);
        command.stdin(Stdio::null());
        command
    }
}

/// A run with a scheme, and what it says.
pub struct Acting {
    /// The run.
    pub run: Running,
    err: PathBuf,
}

impl Acting {
    /// Starts it. `name` names its files.
    pub fn new(name: &str, options: &[&str], scheme: &str) -> Self {
        let schemes = result_file(&format!("acting-{name}.yaml"));
        fs::write(&schemes, scheme).unwrap();
        let err = result_file(&format!("acting-{name}.err"));
        let mut command = isotherm(&["run", "--schemes", schemes.to_str().unwrap()]);
        command.args(options).args(EMULATED).stderr(fs::File::create(&err).unwrap());
        Self { run: Running::start(&mut command), err }
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// Ends the run. Returns what it has said.
    pub fn end(&mut self) -> String {
        assert_eq!(run(Command::new("kill").args(["-INT", &self.run.pid().to_string()])).status, 0);
        assert_eq!(self.run.wait(), 0, "{}", self.said());
        println!("{}", self.said());
        self.said()
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.said());
        }
    }
}
