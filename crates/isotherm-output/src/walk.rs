//! From a path to what it names, without following a symbolic link of another user.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::Refusal;
use crate::place::Place;

/// The number of symbolic links that the kernel follows at most.
const MOST_LINKS: usize = 40;

/// What a path names.
#[derive(Debug)]
pub(crate) enum Named {
    /// A regular file, or none.
    File(Place, Option<Stat>),
    /// A pipe or a character device.
    Special(Place, Stat),
    /// An open file descriptor of a process, such as `/dev/stdout`, whatever is behind it.
    Descriptor(Place, Stat),
}

/// Whether a user cannot do more through a file of this owner than without it.
pub(crate) fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Finds what a path names.
///
/// # Errors
/// If a directory of the path is missing, if the path leads through a symbolic link that is not trusted, or if it names
/// something that nothing can be written to.
pub(crate) fn walk(path: &Path) -> Result<Named, Refusal> {
    let mut walk = Walk::new(path)?;
    loop {
        let Some(name) = walk.rest.pop() else { return Err(Refusal::Directory) };
        if name == "." || name == ".." {
            walk.descend(&name, OFlags::empty())?;
            continue;
        }
        let stat = match statat(&walk.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if walk.rest.is_empty() => return Ok(Named::File(walk.place(name), None)),
            stat => stat?,
        };
        let is_last = walk.rest.is_empty();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if walk.is_in_proc()? => {
                // These links of the kernel cannot be read as paths: they lead to open files and to other roots.
                if is_last {
                    let stat = statat(&walk.directory, &name, AtFlags::empty())?;
                    return Ok(Named::Descriptor(walk.place(name), stat));
                }
                walk.descend(&name, OFlags::empty())?;
            }
            FileType::Symlink => walk.follow(&name, &stat)?,
            FileType::Directory if is_last => return Err(Refusal::Directory),
            FileType::Directory => walk.descend(&name, OFlags::NOFOLLOW)?,
            _ if !is_last => return Err(Errno::NOTDIR.into()),
            FileType::RegularFile => return Ok(Named::File(walk.place(name), Some(stat))),
            FileType::Fifo if !is_trusted(stat.st_uid) => return Err(Refusal::ForeignPipe(stat.st_uid)),
            FileType::Fifo | FileType::CharacterDevice => return Ok(Named::Special(walk.place(name), stat)),
            FileType::BlockDevice => return Err(Refusal::BlockDevice),
            FileType::Socket => return Err(Refusal::Socket),
            FileType::Unknown => return Err(Errno::INVAL.into()),
        }
    }
}

/// A walk along a path.
struct Walk {
    directory: OwnedFd,
    /// The path of the directory.
    shown: PathBuf,
    /// The names that follow, in reverse order.
    rest: Vec<OsString>,
    /// The number of links that were followed.
    links: usize,
}

impl Walk {
    fn new(path: &Path) -> Result<Self, Refusal> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        let (start, shown) = if path.is_absolute() { ("/", "/") } else { (".", "") };
        let mut walk = Self {
            directory: open_directory(CWD, OsStr::new(start), OFlags::empty())?,
            shown: shown.into(),
            rest: Vec::new(),
            links: 0,
        };
        walk.add(path.as_os_str());
        Ok(walk)
    }

    /// Adds the names of a path in front of those that follow. A path that ends in a slash ends in a directory.
    fn add(&mut self, path: &OsStr) {
        let bytes = path.as_bytes();
        if bytes.ends_with(b"/") {
            self.rest.push(".".into());
        }
        let names = bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        self.rest.extend(names.rev().map(|name| OsString::from_vec(name.into())));
    }

    fn place(self, name: OsString) -> Place {
        Place { directory: self.directory, name, shown: self.shown }
    }

    fn is_in_proc(&self) -> Result<bool, Refusal> {
        Ok(fstatfs(&self.directory)?.f_type == PROC_SUPER_MAGIC)
    }

    fn descend(&mut self, name: &OsStr, flags: OFlags) -> Result<(), Refusal> {
        self.directory = open_directory(&self.directory, name, flags)?;
        if name != "." {
            self.shown.push(name);
        }
        Ok(())
    }

    /// Follows a symbolic link, if that is allowed.
    fn follow(&mut self, name: &OsStr, link: &Stat) -> Result<(), Refusal> {
        if !is_trusted(link.st_uid) {
            return Err(Refusal::ForeignLink { link: self.shown.join(name), owner: link.st_uid });
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = OsString::from_vec(readlinkat(&self.directory, name, Vec::new())?.into_bytes());
        if Path::new(&target).is_absolute() {
            self.directory = open_directory(CWD, OsStr::new("/"), OFlags::empty())?;
            self.shown = "/".into();
        }
        self.add(&target);
        Ok(())
    }
}

fn open_directory(at: impl std::os::fd::AsFd, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(at, name, flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The path of what is found, and whether there is a file.
    fn file(path: &Path) -> (PathBuf, bool) {
        match walk(path).unwrap() {
            Named::File(place, stat) => (place.path(), stat.is_some()),
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn own_links_are_followed_at_each_place_of_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/x"), "").unwrap();
        symlink("a", at("relative")).unwrap();
        symlink(at("a/b/"), at("absolute")).unwrap();
        symlink("../b/x", at("a/b/file")).unwrap();
        symlink("nothing", at("a/b/dangling")).unwrap();
        assert_eq!(file(&at("relative/b/./x")), (at("a/b/x"), true));
        assert_eq!(file(&at("absolute/file")), (at("a/b/../b/x"), true));
        assert_eq!(file(&at("absolute/dangling")), (at("a/b/nothing"), false));
        assert_eq!(file(&at("relative/../new")), (at("a/../new"), false));
    }

    #[test]
    fn directories_loops_and_missing_directories_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("x"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink(".", at("here")).unwrap();
        for path in [at(""), at("."), at("here"), at("../"), "/".into(), "..".into()] {
            assert!(matches!(walk(&path), Err(Refusal::Directory)), "{path:?}");
        }
        for (path, error) in [
            (at("missing/x"), Errno::NOENT),
            (at("missing/"), Errno::NOENT),
            (at("x/"), Errno::NOTDIR),
            (at("x/y"), Errno::NOTDIR),
            (at("loop"), Errno::LOOP),
            (PathBuf::new(), Errno::NOENT),
        ] {
            let found = walk(&path).unwrap_err();
            let Refusal::System(found) = found else { panic!("{path:?}: {found}") };
            assert_eq!(found.raw_os_error(), Some(error.raw_os_error()), "{path:?}");
        }
    }

    #[test]
    fn a_descriptor_is_not_followed_as_a_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file.as_file());
        for path in [format!("/proc/self/fd/{descriptor}"), format!("/dev/fd/{descriptor}")] {
            assert!(matches!(walk(Path::new(&path)), Ok(Named::Descriptor(..))), "{path}");
        }
        let through = Path::new("/proc/self/cwd/x");
        assert!(matches!(walk(through), Ok(Named::File(..))));
    }
}
