//! Which processes a group has.

use isotherm_core::chain;
use isotherm_kernel::cgroup::Hierarchy;
use isotherm_run::{Glob, NamePattern, Selector, User};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Processes, by what any of these fields names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Selectors {
    /// Process IDs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pid: Vec<u32>,
    /// Regular expressions on the name of the program: that of ps(1), or that of the executable file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name: Vec<String>,
    /// Regular expressions on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Cgroups, with those below them: a path such as `/system.slice`, its directory, or a pattern.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroup: Vec<String>,
    /// Names or patterns of systemd units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unit: Vec<String>,
    /// Names or IDs of containers and pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container: Vec<String>,
    /// Names or IDs of users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<String>,
    /// All processes but isotherm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl Selectors {
    /// The selectors that it stands for.
    ///
    /// # Errors
    /// Which value is wrong, and why.
    pub fn resolve(&self) -> Result<Vec<Selector>, String> {
        let mut found: Vec<Selector> = self.pid.iter().copied().map(Selector::Pid).collect();
        let pattern = |text: &String| NamePattern::new(text).map_err(|error| format!("{text}: {}", chain(&error)));
        for text in &self.name {
            found.push(Selector::Name(pattern(text)?));
        }
        for text in &self.command {
            found.push(Selector::Command(pattern(text)?));
        }
        for path in &self.cgroup {
            let hierarchy = Hierarchy::find("/".as_ref()).map_err(|error| chain(&error))?;
            let glob = Glob::new(&hierarchy.path_of(path)).map_err(|error| format!("{path}: {}", chain(&error)))?;
            found.push(Selector::Cgroup(glob));
        }
        for unit in &self.unit {
            found.push(Selector::Unit(Glob::unit(unit).map_err(|error| format!("{unit}: {}", chain(&error)))?));
        }
        found.extend(self.container.iter().cloned().map(Selector::Container));
        for user in &self.user {
            found.push(Selector::User(user_id(user)?));
        }
        if self.all {
            found.push(Selector::All);
        }
        Ok(found)
    }
}

/// The ID of the user that a name or a number stands for.
pub(super) fn user_id(user: &str) -> Result<u32, String> {
    match User::find(user) {
        Ok(Some(found)) => Ok(found.uid()),
        // An ID without a name is that of a container, for example.
        Ok(None) => user.parse().map_err(|_| format!("there is no user {user} (check the name)")),
        Err(error) => Err(format!("the user {user} cannot be looked up: {error}")),
    }
}
