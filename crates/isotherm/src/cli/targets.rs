//! Which processes are watched: options that several commands have.

use clap::Args;
use isotherm_core::{chain, units};
use isotherm_kernel::cgroup::Hierarchy;
use isotherm_kernel::{Glob, NamePattern, Selection, Selector, User};

/// The options that name processes.
pub(super) const SELECTORS: [&str; 8] =
    ["pid", "name", "command-line", "cgroup", "unit", "container", "all", "min_rss"];

/// The heading of the options below.
pub(super) const TARGETS: &str = "Targets";

/// Options that select processes, for all commands that watch or scan.
#[derive(Args)]
pub struct SelectorOptions {
    /// The process with this ID
    ///
    /// This option and the next ones may be given several times. All processes that any of them names are selected,
    /// including those that start later.
    #[arg(short, long, help_heading = TARGETS, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Processes of programs whose name matches: the name that ps(1) shows, or that of the executable file. ^redis$
    /// matches the whole name, redis a part of it
    #[arg(long, help_heading = TARGETS, value_name = "REGEX", value_parser = name)]
    pub name: Vec<NamePattern>,
    /// Processes whose command line matches: the arguments with spaces between them
    #[arg(id = "command-line", long = "command", help_heading = TARGETS, value_name = "REGEX", value_parser = name)]
    #[arg(hide_short_help = true)]
    pub command_line: Vec<NamePattern>,
    /// Processes of this cgroup and of those below it: a path such as /system.slice, its directory, or a pattern such
    /// as '/system.slice/app@*'
    #[arg(long, help_heading = TARGETS, value_name = "PATH")]
    pub cgroup: Vec<String>,
    /// Processes of this systemd unit: redis stands for redis.service, and 'app@*' for all instances
    #[arg(long, help_heading = TARGETS, value_name = "NAME", value_parser = unit)]
    pub unit: Vec<Glob>,
    /// Processes of this container or pod: its name, its ID, or the first characters of the ID, at least four
    ///
    /// Docker, Podman, containerd, Kubernetes, LXC and systemd-nspawn are known.
    #[arg(long, help_heading = TARGETS, value_name = "ID|NAME")]
    pub container: Vec<String>,
    /// All processes but isotherm
    #[arg(long, help_heading = TARGETS)]
    pub all: bool,
    /// Only processes with at least this much resident memory, from the time when they have it. Does not apply to --pid
    #[arg(long, help_heading = TARGETS, value_name = "SIZE", value_parser = units::parse_bytes, hide_short_help = true)]
    pub min_rss: Option<u64>,
}

/// Options that exclude some of the selected processes.
#[derive(Args)]
pub struct ExcludeOption {
    /// Exclude these processes, such as name=REGEX. KIND is pid, name, command, cgroup, unit, container or user. May be
    /// given several times. Does not apply to --pid
    #[arg(long, help_heading = TARGETS, value_name = "KIND=VALUE", value_parser = excluded, hide_short_help = true)]
    pub exclude: Vec<Selector>,
}

impl SelectorOptions {
    /// The selection of these options and of `users`.
    ///
    /// # Errors
    /// Says which value is wrong.
    pub fn selection(&self, users: &[String], exclude: &ExcludeOption, children: bool) -> Result<Selection, String> {
        let mut any: Vec<Selector> = self.pid.iter().copied().map(Selector::Pid).collect();
        any.extend(self.name.iter().cloned().map(Selector::Name));
        any.extend(self.command_line.iter().cloned().map(Selector::Command));
        for path in &self.cgroup {
            any.push(Selector::Cgroup(cgroup(path)?));
        }
        any.extend(self.unit.iter().cloned().map(Selector::Unit));
        any.extend(self.container.iter().cloned().map(Selector::Container));
        for user in users {
            any.push(Selector::User(user_id(user)?));
        }
        if self.all {
            any.push(Selector::All);
        }
        let least_resident = self.min_rss.unwrap_or(0);
        Ok(Selection { any, except: exclude.exclude.clone(), least_resident, children, ..Selection::default() })
    }
}

pub(super) fn name(text: &str) -> Result<NamePattern, String> {
    NamePattern::new(text).map_err(|error| chain(&error))
}

fn unit(text: &str) -> Result<Glob, String> {
    Glob::unit(text).map_err(|error| chain(&error))
}

/// The pattern of a cgroup, which is named by its path or by its directory.
fn cgroup(named: &str) -> Result<Glob, String> {
    let hierarchy = Hierarchy::find("/".as_ref()).map_err(|error| chain(&error))?;
    Glob::new(&hierarchy.path_of(named)).map_err(|error| chain(&error))
}

/// The ID of the user that a name or a number stands for.
fn user_id(user: &str) -> Result<u32, String> {
    match User::find(user) {
        Ok(Some(found)) => Ok(found.uid()),
        // An ID without a name is that of a container, for example.
        Ok(None) => user.parse().map_err(|_| format!("there is no user {user} (check the name)")),
        Err(error) => Err(format!("the user {user} cannot be looked up: {error}")),
    }
}

/// Reads `KIND=VALUE`.
fn excluded(text: &str) -> Result<Selector, String> {
    let form = "write KIND=VALUE with pid, name, command, cgroup, unit, container or user, such as name=^sh$";
    let (kind, value) = text.split_once('=').ok_or_else(|| form.to_string())?;
    match kind {
        "pid" => value.parse().map(Selector::Pid).map_err(|_| format!("{value} is no process ID")),
        "name" => name(value).map(Selector::Name),
        "command" => name(value).map(Selector::Command),
        "cgroup" => cgroup(value).map(Selector::Cgroup),
        "unit" => unit(value).map(Selector::Unit),
        "container" => Ok(Selector::Container(value.into())),
        "user" => user_id(value).map(Selector::User),
        _ => Err(form.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_a_kind_and_a_value() {
        assert_eq!(excluded("pid=7"), Ok(Selector::Pid(7)));
        assert_eq!(excluded("name=^a=b$"), Ok(Selector::Name(NamePattern::new("^a=b$").unwrap())));
        assert_eq!(excluded("unit=cron"), Ok(Selector::Unit(Glob::new("cron.service").unwrap())));
        assert_eq!(excluded("user=root"), Ok(Selector::User(0)));
        assert_eq!(excluded("user=4294967294"), Ok(Selector::User(4_294_967_294)));
        for (wrong, word) in [
            ("redis", "KIND=VALUE"),
            ("x=1", "KIND=VALUE"),
            ("pid=x", "no process ID"),
            ("name=(", "unclosed"),
            ("user=no-one-here", "no user"),
        ] {
            assert!(excluded(wrong).unwrap_err().contains(word), "{wrong}");
        }
    }
}
