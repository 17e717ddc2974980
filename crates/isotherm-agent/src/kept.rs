//! The groups that requests have made, in a file, so that they are there again after a restart.

use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use isotherm_core::chain;
use isotherm_input::Input;
use isotherm_kernel::{Process, unix_ns};
use isotherm_output::Output;
use serde::{Deserialize, Serialize};

use crate::config::{Group, GroupSettings};

/// The largest file that is read.
const LARGEST: u64 = 16 << 20;

/// A group that a request has made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptGroup {
    /// Whether it is watched by nobody until it is resumed.
    #[serde(default)]
    pub paused: bool,
    /// What it is.
    pub settings: GroupSettings,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    /// When it was written, since the Unix epoch. A process that has started later has the ID of another one.
    unix_ns: u64,
    groups: Vec<KeptGroup>,
}

/// Keeps groups in a file.
pub struct GroupKeeper {
    path: PathBuf,
    /// What the file has.
    written: Mutex<Vec<KeptGroup>>,
}

impl GroupKeeper {
    /// Keeps them in this directory.
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("groups.json"), written: Mutex::default() }
    }

    /// The groups that are kept, each with whether it is paused, and why others are not there any more.
    pub fn read(&self) -> (Vec<(Group, bool)>, Vec<String>) {
        let (mut groups, mut lost) = (Vec::new(), Vec::new());
        if !self.path.exists() {
            return (groups, lost);
        }
        let read = Input::new(&self.path).limited_to(LARGEST).text().map_err(|error| chain(&error));
        let file = read.and_then(|text| serde_json::from_str::<File>(&text).map_err(|error| error.to_string()));
        let file = file.unwrap_or_else(|why| {
            lost.push(format!("{}: {why}", self.path.display()));
            File::default()
        });
        for mut kept in file.groups {
            let name = kept.settings.name.clone();
            let had_processes = !kept.settings.select.pid.is_empty();
            kept.settings.select.pid.retain(|pid| is_same(*pid, file.unix_ns));
            if had_processes && kept.settings.select == Default::default() {
                lost.push(format!("the group {name} is not there any more: its processes have ended"));
                continue;
            }
            let parsed = serde_json::to_string(&kept.settings).map_err(|error| error.to_string());
            match parsed.and_then(|text| Group::parse("groups.json", &text).map_err(|error| error.to_string())) {
                Ok(group) => groups.push((group, kept.paused)),
                Err(why) => lost.push(format!("the group {name} is not there any more: {why}")),
            }
        }
        (groups, lost)
    }

    /// Writes the groups, if they are others than those that were written last.
    ///
    /// # Errors
    /// Why they cannot be written.
    pub fn write(&self, groups: Vec<KeptGroup>) -> Result<(), String> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written == groups {
            return Ok(());
        }
        let file = File { unix_ns: unix_ns(), groups };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| error.to_string())?;
        let failed = |why: String| format!("the groups that requests have made cannot be kept: {why}");
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| failed(format!("{}: {error}", directory.display())))?;
        let output = Output::new(&self.path).create().and_then(|out| out.write_whole(|out| out.write_all(&text)));
        output.map_err(|error| failed(chain(&error)))?;
        *written = file.groups;
        Ok(())
    }
}

/// Whether a process has started before `unix_ns`.
fn is_same(pid: u32, unix_ns: u64) -> bool {
    Process::open(pid).is_ok_and(|process| process.started_unix_ns() <= unix_ns)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn kept(text: &str, paused: bool) -> KeptGroup {
        KeptGroup { paused, settings: Group::parse("a", text).unwrap().settings }
    }

    #[test]
    fn what_is_kept_is_read_again_without_processes_that_have_ended() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = GroupKeeper::new(directory.path());
        assert!(keeper.read().0.is_empty());
        let own = std::process::id();
        let first = kept(&format!("{{name: first, select: {{pid: [{own}, 999999999]}}}}"), true);
        let named = kept("{name: named, select: {name: [redis]}, attributes: {sample: 5ms}}", false);
        let gone = kept("{name: gone, select: {pid: [999999999]}}", false);
        keeper.write(vec![first, named.clone(), gone]).unwrap();
        let (groups, lost) = keeper.read();
        let found: Vec<_> = groups.iter().map(|(group, paused)| (&*group.settings.name, *paused)).collect();
        assert_eq!(found, [("first", true), ("named", false)]);
        assert_eq!((&groups[0].0.settings.select.pid, &groups[1].0.settings), (&vec![own], &named.settings));
        assert_eq!(lost, ["the group gone is not there any more: its processes have ended"]);
        assert!(!is_same(own, 0), "a later process has the ID");
        std::fs::write(directory.path().join("groups.json"), "{").unwrap();
        let (groups, lost) = keeper.read();
        assert!(groups.is_empty() && lost[0].contains("groups.json: "), "{lost:?}");
    }
}
