//! Users of the system, as whom a command can be started.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::{Uid, getgrouplist};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// The variables in which sudo(8) passes facts about its caller to the command.
const OF_SUDO: [&str; 5] = ["SUDO_COMMAND", "SUDO_GID", "SUDO_HOME", "SUDO_UID", "SUDO_USER"];

/// The ID of the group of this name. `None` if no group has it.
///
/// # Errors
/// If the database of groups cannot be read.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    Ok(known(nix::unistd::Group::from_name(name))?.map(|group| group.gid.as_raw()))
}

/// What a database has. One that is not there, as in an image of a container, has nothing (getpwnam(3)).
fn known<T>(found: nix::Result<Option<T>>) -> nix::Result<Option<T>> {
    match found {
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        found => found,
    }
}

/// A user of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: u32,
    gid: u32,
    /// The IDs of all groups.
    groups: Vec<u32>,
    home: PathBuf,
    shell: PathBuf,
}

impl User {
    /// The user of this name, or of this user ID in decimal digits. `None` if there is none.
    ///
    /// # Errors
    /// If the databases of users and groups cannot be read.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        let found = match known(nix::unistd::User::from_name(name))? {
            Some(user) => Some(user),
            None => match name.parse() {
                Ok(uid) => known(nix::unistd::User::from_uid(Uid::from_raw(uid)))?,
                Err(_) => None,
            },
        };
        let Some(user) = found else { return Ok(None) };
        let groups = getgrouplist(&CString::new(user.name.as_str())?, user.gid)?;
        Ok(Some(Self {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
            name: user.name,
            home: user.dir,
            shell: user.shell,
        }))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user ID.
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// The home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Lets a command that is not started run as this user: with the user's groups, and with `HOME`, `SHELL`, `USER`
    /// and `LOGNAME` of the user. The variables of sudo(8) are removed from its environment. Only root can start it
    /// then.
    #[expect(unsafe_code, reason = "what a child does before it executes a program")]
    pub fn run(&self, command: &mut Command) {
        for name in OF_SUDO {
            command.env_remove(name);
        }
        command.env("HOME", &self.home).env("SHELL", &self.shell);
        command.env("USER", &self.name).env("LOGNAME", &self.name);
        let uid = rustix::process::Uid::from_raw(self.uid);
        let gid = rustix::process::Gid::from_raw(self.gid);
        let groups: Vec<_> = self.groups.iter().map(|group| rustix::process::Gid::from_raw(*group)).collect();
        let become_user = move || {
            // The user comes last, because nothing can be changed after it.
            set_thread_groups(&groups)?;
            set_thread_gid(gid)?;
            set_thread_uid(uid)?;
            Ok(())
        };
        // SAFETY: the closure makes three system calls and neither allocates nor takes a lock, as a child of a program
        // with threads must not. The child has one thread, so that what holds for the thread holds for the process.
        unsafe { command.pre_exec(become_user) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_not_there_has_nothing_and_others_fail() {
        assert_eq!(known::<()>(Err(Errno::ENOENT)), Ok(None));
        assert_eq!(known(Ok(Some(1))), Ok(Some(1)));
        assert_eq!(known::<()>(Err(Errno::EIO)), Err(Errno::EIO));
    }

    #[test]
    fn a_user_is_found_by_name_and_by_id() {
        let root = User::find("root").unwrap().unwrap();
        assert_eq!((root.name(), root.uid()), ("root", 0));
        assert!(root.groups.contains(&0));
        assert_eq!(User::find("0").unwrap(), Some(root));
        assert_eq!(User::find("no-such-user").unwrap(), None);
        assert_eq!(User::find("4294967294").unwrap(), None);
        assert_eq!(User::find("").unwrap(), None);
    }
}
