//! A cgroup for one measurement: it counts memory from its start, may limit it, and is removed at the end.

use std::fs::{DirBuilder, read_to_string};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use super::files::{CgroupDirectory, CgroupFiles};
use super::{CgroupVersion, Hierarchy, NoHierarchy};

/// How long the processes of a cgroup may take to end once they are killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time between two attempts to remove a cgroup.
const LOOK: Duration = Duration::from_millis(10);

/// Why a cgroup cannot be made, and how to fix it.
#[derive(Debug, Error)]
pub enum NoOwnCgroup {
    /// No hierarchy accounts memory.
    #[error(transparent)]
    NoHierarchy(#[from] NoHierarchy),
    /// The hierarchy is not mounted.
    #[error("the cgroup hierarchy that accounts memory is not mounted (`{command}`)")]
    NotMounted {
        /// The command that mounts it.
        command: &'static str,
    },
    /// There is no such parent.
    #[error("there is no cgroup {path} (name one that exists)")]
    NoParent {
        /// The path of the cgroup.
        path: String,
    },
    /// Cgroups below the parent have no controller `memory`.
    #[error("cgroups below {path} do not account memory (write +memory to {}, or name another cgroup)", file.display())]
    NoController {
        /// The path of the parent.
        path: String,
        /// The file that lists the controllers.
        file: PathBuf,
    },
    /// The directory cannot be made.
    #[error(
        "the cgroup {} cannot be made (run isotherm as root; in a container, mount the host's /sys/fs/cgroup with \
         write access)",
        directory.display()
    )]
    NotMade {
        /// The directory.
        directory: PathBuf,
        /// The error of mkdir(2).
        source: io::Error,
    },
}

/// A cgroup that this process has made. When it is dropped, its processes are killed, its page cache is reclaimed, and
/// it is removed.
#[derive(Debug)]
pub struct OwnCgroup {
    directory: PathBuf,
    version: CgroupVersion,
    is_removed: bool,
}

impl OwnCgroup {
    /// Makes the cgroup `name` below the cgroup at path `parent`. No other cgroup is changed.
    ///
    /// # Errors
    /// If the parent cannot have a cgroup that accounts memory.
    pub fn make(hierarchy: &Hierarchy, parent: &str, name: &str) -> Result<Self, NoOwnCgroup> {
        let mount = hierarchy.mount().ok_or(NoOwnCgroup::NotMounted { command: hierarchy.mount_command() })?;
        let above = mount.directory_of(parent).filter(|directory| directory.is_dir());
        let above = above.ok_or_else(|| NoOwnCgroup::NoParent { path: parent.into() })?;
        let version = hierarchy.version();
        if version == CgroupVersion::V2 {
            let file = above.join("cgroup.subtree_control");
            let controllers = read_to_string(&file).unwrap_or_default();
            if !controllers.split_whitespace().any(|name| name == "memory") {
                return Err(NoOwnCgroup::NoController { path: parent.into(), file });
            }
        }
        let directory = above.join(name);
        let made = DirBuilder::new().create(&directory);
        made.map_err(|source| NoOwnCgroup::NotMade { directory: directory.clone(), source })?;
        Ok(Self { directory, version, is_removed: false })
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file that a process writes its number to, to become part of the cgroup.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// Limits its memory to so many bytes (`memory.max`, in version 1 `memory.limit_in_bytes`). Swap is not limited.
    ///
    /// # Errors
    /// Those of the system.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        let file = match self.version {
            CgroupVersion::V1 => "memory.limit_in_bytes",
            CgroupVersion::V2 => "memory.max",
        };
        self.write(file, &bytes.to_string())
    }

    /// The most bytes of memory that it had at once, page cache included (`memory.peak`, in version 1
    /// `memory.max_usage_in_bytes`).
    ///
    /// # Errors
    /// Those of the system. `NotFound`: version 2 has the file since Linux 5.19.
    pub fn peak(&self) -> io::Result<u64> {
        let file = match self.version {
            CgroupVersion::V1 => "memory.max_usage_in_bytes",
            CgroupVersion::V2 => "memory.peak",
        };
        let text = CgroupDirectory::open(&self.directory)?.read(file)?;
        text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{file} is {text:?}")))
    }

    /// How many of its processes the kernel has killed because memory and swap did not suffice. 0 if it does not tell.
    pub fn out_of_memory_kills(&self) -> u64 {
        let file = match self.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let text = CgroupDirectory::open(&self.directory).and_then(|directory| directory.read(file));
        let text = text.unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// Kills its processes, reclaims its page cache, and removes it. Page cache that is left would stay charged to the
    /// removed cgroup, and later cgroups would have it for nothing.
    ///
    /// # Errors
    /// If the kernel does not let go of it within 20 s.
    pub fn remove(mut self) -> io::Result<()> {
        self.try_remove()
    }

    fn try_remove(&mut self) -> io::Result<()> {
        self.is_removed = true;
        let start = Instant::now();
        while self.kill_processes() && start.elapsed() < PATIENCE {
            sleep(LOOK);
        }
        // Pages of files that were changed cannot be reclaimed before they are written. Memory that cannot be reclaimed
        // at all is no reason to keep the cgroup.
        rustix::fs::sync();
        let _ = match self.version {
            CgroupVersion::V1 => self.write("memory.force_empty", "0"),
            CgroupVersion::V2 => self.write("memory.high", "0"),
        };
        loop {
            match rmdir(&self.directory) {
                // A process that was killed is part of it until its parent knows.
                Err(Errno::BUSY) if start.elapsed() < PATIENCE => sleep(LOOK),
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Kills its processes. Whether there were any.
    fn kill_processes(&self) -> bool {
        let listed = read_to_string(self.processes()).unwrap_or_default();
        let processes: Vec<Pid> = listed.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
        for process in &processes {
            // It may have ended meanwhile.
            let _ = kill_process(*process, Signal::KILL);
        }
        !processes.is_empty()
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        CgroupDirectory::open(&self.directory)?.write(file, text)
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        if !self.is_removed {
            // Nobody is left to tell.
            let _ = self.try_remove();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "removes a directory below /sys/fs/cgroup, which this process has made")]
fn rmdir(directory: &Path) -> Result<(), Errno> {
    rustix::fs::unlinkat(CWD, directory, AtFlags::REMOVEDIR)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::super::made::{mounted_at_cg, write};
    use super::*;

    #[test]
    fn a_cgroup_needs_a_parent_whose_cgroups_account_memory() {
        let root = mounted_at_cg();
        write(root.path(), "cg/cgroup.subtree_control", "cpu memory\n");
        write(root.path(), "cg/a/cgroup.subtree_control", "cpu\n");
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        let error = |parent: &str| OwnCgroup::make(&hierarchy, parent, "own").unwrap_err().to_string();
        assert!(error("/b").contains("no cgroup /b"), "{}", error("/b"));
        assert!(error("/a").contains("+memory") && error("/a").contains("cg/a/cgroup.subtree_control"));
        assert!(!root.path().join("cg/a/own").exists());
        let own = OwnCgroup::make(&hierarchy, "/", "own").unwrap();
        assert!(error("/").contains("cg/own cannot be made"), "{}", error("/"));
        own.remove().unwrap();
        assert!(!root.path().join("cg/own").exists());
    }

    #[test]
    fn files_are_those_of_the_version_and_a_dropped_cgroup_is_gone_with_its_processes() {
        let v1 = ["memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control", "memory.force_empty"];
        let v2 = ["memory.max", "memory.peak", "memory.events", "memory.high"];
        for (version, [limit, peak, kills, empty]) in [(1, v1), (2, v2)] {
            let root = mounted_at_cg();
            let write = |path: &str, text: &str| write(root.path(), path, text);
            if version == 1 {
                write("proc/self/cgroup", "4:memory:/\n");
                write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup cgroup rw,memory\n");
            }
            write("cg/cgroup.subtree_control", "memory\n");
            let own = OwnCgroup::make(&Hierarchy::find(root.path()).unwrap(), "/", "own").unwrap();
            assert_eq!((own.peak().unwrap_err().kind(), own.out_of_memory_kills()), (io::ErrorKind::NotFound, 0));
            write(&format!("cg/own/{limit}"), "max\n");
            write(&format!("cg/own/{peak}"), "8192\n");
            write(&format!("cg/own/{kills}"), "oom 3\noom_kill 2\n");
            write(&format!("cg/own/{empty}"), "max\n");
            own.limit(4096).unwrap();
            let read = |name: &str| fs::read_to_string(own.directory().join(name)).unwrap();
            assert_eq!((read(limit).as_str(), own.peak().unwrap(), own.out_of_memory_kills()), ("4096", 8192, 2));

            let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
            write("cg/own/cgroup.procs", &format!("{}\n", child.id()));
            assert!(own.kill_processes());
            assert!(!child.wait().unwrap().success());
            // A made directory has files, which those of the kernel do not count as.
            for name in [limit, peak, kills, empty, "cgroup.procs"] {
                fs::remove_file(own.directory().join(name)).unwrap();
            }
            let directory = own.directory().to_owned();
            drop(own);
            assert!(!directory.exists());
        }
    }
}
