//! Names of systemd units, as parts of the paths of cgroups.

/// The suffixes of units that have processes (`systemd.unit(5)`).
const SUFFIXES: [&str; 6] = ["service", "scope", "slice", "socket", "mount", "swap"];

/// Whether `name` ends as the name of a systemd unit that has processes, such as `cron.service`.
pub fn is_unit(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(prefix, suffix)| !prefix.is_empty() && SUFFIXES.contains(&suffix))
}

/// The innermost systemd unit in the path of a cgroup. `None` if no part of the path is one.
///
/// ```
/// use isotherm_core::unit_in;
/// assert_eq!(unit_in("/system.slice/postgresql.service/worker"), Some("postgresql.service"));
/// assert_eq!(unit_in("/"), None);
/// ```
pub fn unit_in(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| is_unit(part))
}
