//! What a configuration needs, and what this machine lacks.

use std::path::Path;

use isotherm_kernel::has_free_zram;
use isotherm_run::core::scheme::Scheme;
use isotherm_run::{ProbeChoice, RunConfig, Source, Targets, chain};
use serde::{Deserialize, Serialize};

use crate::configuration::Role;
use crate::{Configuration, Machine, MayChange, Workload};

/// Where there is what a machine lacks.
const WHERE_ELSE: &str = "or run it in the laboratory (lab/README.md)";

/// Why something cannot be run, and what would allow it, in a sentence without a full stop.
pub type Lack = String;

/// A workload that is not run under a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The name of the workload.
    pub workload: String,
    /// The configuration; `None` stands for all.
    pub configuration: Option<Configuration>,
    /// Why.
    pub why: Lack,
}

/// What this machine has and what may be changed on it, as far as configurations depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Abilities {
    pub(crate) huge_pages: String,
    pub(crate) swap: bool,
    pub(crate) free_zram: bool,
    pub(crate) may: MayChange,
    /// Why isotherm cannot record a process, record physical memory, or act by the schemes of a configuration.
    pub(crate) isotherm: Vec<(Configuration, Lack)>,
}

impl Abilities {
    /// Tries them for these configurations. `schemes` are those of each configuration that acts.
    pub(crate) fn find(
        machine: &Machine,
        may: MayChange,
        probe: ProbeChoice,
        configurations: &[Configuration],
        schemes: impl Fn(Configuration) -> Option<Vec<Scheme>>,
    ) -> Self {
        let tried = configurations.iter().filter_map(|&configuration| {
            let process = || RunConfig::processes([std::process::id()]).probe(probe);
            let run = match configuration.role() {
                Role::Absent => return None,
                Role::Records => process(),
                Role::RecordsPhysical => {
                    let targets = Targets::Physical { ranges: Vec::new(), nodes: Vec::new(), during: None };
                    RunConfig::new(Source::Live { targets, probe })
                }
                Role::Acts(_) => process().schemes(schemes(configuration)?),
            };
            let error = run.prepare().err()?;
            Some((configuration, format!("isotherm cannot run: {}", chain(&error))))
        });
        Self {
            huge_pages: machine.huge_pages.clone(),
            swap: machine.swap,
            free_zram: has_free_zram(Path::new("/")),
            may,
            isotherm: tried.collect(),
        }
    }

    /// What a workload lacks under a configuration.
    pub(crate) fn lack(&self, configuration: Configuration, workload: &Workload) -> Option<Lack> {
        let setting = &*self.huge_pages;
        match setting {
            "always" if configuration != Configuration::Thp && !self.may.huge_pages => {
                return Some(format!(
                    "transparent huge pages are set to always, so that all memory has them; allow isotherm to set \
                     madvise (--may-change thp), {WHERE_ELSE}"
                ));
            }
            "" | "never" if configuration.is_of_huge_pages() && !self.may.huge_pages => {
                let is = if setting.is_empty() { "not part of this kernel" } else { "set to never" };
                return Some(format!(
                    "transparent huge pages are {is}; allow isotherm to set them (--may-change thp), {WHERE_ELSE}"
                ));
            }
            _ => {}
        }
        if configuration == Configuration::Thp
            && setting == "madvise"
            && !self.may.huge_pages
            && let Err(why) = workload.huge_pages.variables()
        {
            return Some(format!("{why}; allow isotherm to set transparent huge pages (--may-change thp)"));
        }
        if configuration == Configuration::Prcl
            && let Some(lack) = self.lack_of_swap(workload)
        {
            return Some(lack);
        }
        self.isotherm.iter().find(|(lacks, _)| *lacks == configuration).map(|(_, why)| why.clone())
    }

    /// Why no memory of a workload can be reclaimed.
    pub(crate) fn lack_of_swap(&self, workload: &Workload) -> Option<Lack> {
        if workload.files || self.swap {
            return None;
        }
        let reason = match (self.may.swap, self.free_zram) {
            (true, true) => return None,
            (true, false) => "there is neither swap nor a free zram device to make it of (modprobe zram)",
            (false, _) => "there is no swap, without which only memory of files can be reclaimed",
        };
        Some(format!("{reason}; allow isotherm to swap to zram (--may-change swap), {WHERE_ELSE}"))
    }
}

/// The probe that options of isotherm choose.
pub(crate) fn probe(options: &[String]) -> ProbeChoice {
    let named = options.iter().skip_while(|option| *option != "--probe").nth(1);
    named.and_then(|name| ProbeChoice::named(name)).unwrap_or_default()
}

/// Why isotherm cannot act by these schemes, with these options.
pub(crate) fn lack_of_schemes(schemes: Vec<Scheme>, options: &[String]) -> Option<Lack> {
    let tried = RunConfig::processes([std::process::id()]).probe(probe(options)).schemes(schemes).prepare();
    tried.err().map(|error| format!("the schemes cannot run here: {}", chain(&error)))
}

/// Why a workload cannot be run at all: what its suite says, or a program that is missing.
pub(crate) fn missing(workload: &Workload, install: Option<&str>) -> Option<Lack> {
    if let Some(why) = &workload.missing {
        return Some(why.clone());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| match name.contains('/') {
        true => Path::new(name).exists(),
        false => std::env::split_paths(&paths).any(|path| path.join(name).is_file()),
    };
    let lacks: Vec<&str> = workload.needs.iter().map(|name| &**name).filter(|name| !is_there(name)).collect();
    if lacks.is_empty() {
        return None;
    }
    let are = if lacks.len() == 1 { "is" } else { "are" };
    let how = install.map_or_else(String::new, |how| format!("; {how}"));
    Some(format!("{} {are} not in $PATH{how}", lacks.join(", ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::suite::HugePages;

    fn machine(huge_pages: &str, may: MayChange) -> Abilities {
        Abilities { huge_pages: huge_pages.into(), swap: false, free_zram: true, may, isotherm: vec![] }
    }

    #[test]
    fn what_a_machine_lacks_is_refused_with_what_would_allow_it() {
        use Configuration::{Ethp, Orig, Prcl, Rec, Thp};
        let anonymous = Workload::default();
        let files = Workload { files: true, ..Workload::default() };
        let by_itself = Workload { huge_pages: HugePages::No("V8 maps its heap".into()), ..Workload::default() };
        let nothing = MayChange::default();
        let all = MayChange { huge_pages: true, swap: true, caches: true };

        let madvise = machine("madvise", nothing);
        for configuration in [Orig, Rec, Thp, Ethp] {
            assert_eq!(madvise.lack(configuration, &anonymous), None, "{configuration:?}");
        }
        let says = |abilities: &Abilities, configuration, workload: &Workload, parts: [&str; 2]| {
            let lack = abilities.lack(configuration, workload).unwrap();
            assert!(parts.iter().all(|part| lack.contains(part)), "{lack}");
        };
        says(&madvise, Thp, &by_itself, ["V8 maps", "--may-change thp"]);
        says(&madvise, Prcl, &anonymous, ["there is no swap", "--may-change swap"]);
        assert_eq!(madvise.lack(Prcl, &files), None);
        says(&machine("always", nothing), Orig, &anonymous, ["always", "--may-change thp"]);
        assert_eq!(machine("always", nothing).lack(Thp, &by_itself), None);
        says(&machine("never", nothing), Ethp, &anonymous, ["never", "laboratory"]);
        for configuration in Configuration::ALL {
            assert_eq!(machine("never", all).lack(configuration, &by_itself), None, "{configuration:?}");
        }
        says(&Abilities { free_zram: false, ..machine("never", all) }, Prcl, &anonymous, ["neither", "zram"]);
        let cannot = Abilities { isotherm: vec![(Rec, "no probe works".into())], ..machine("madvise", nothing) };
        says(&cannot, Rec, &anonymous, ["no probe", "works"]);
        assert_eq!(cannot.lack(Orig, &anonymous), None);
    }

    #[test]
    fn a_missing_program_is_named_with_how_to_get_it() {
        let needs = |names: &[&str]| Workload {
            needs: names.iter().map(|&name| name.to_owned()).collect(),
            ..Workload::default()
        };
        assert_eq!(missing(&needs(&["sh", "/bin/sh"]), None), None);
        let lack = missing(&needs(&["sh", "no-such-program", "/no/such"]), Some("install it")).unwrap();
        assert_eq!(lack, "no-such-program, /no/such are not in $PATH; install it");
    }
}
