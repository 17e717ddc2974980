//! The configurations of the DAMON papers: how the machine and isotherm are set while a program runs.

use serde::{Deserialize, Serialize};

/// A configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Configuration {
    /// Neither isotherm nor huge pages, except those that the program asks for by itself.
    #[default]
    Orig,
    /// isotherm records the program.
    Rec,
    /// isotherm records physical memory.
    Prec,
    /// Huge pages for all memory.
    Thp,
    /// isotherm makes huge pages where memory is accessed.
    Ethp,
    /// isotherm reclaims idle memory.
    Prcl,
}

impl Configuration {
    /// All configurations, in the order of the papers' tables.
    pub const ALL: [Self; 6] = [Self::Orig, Self::Rec, Self::Prec, Self::Thp, Self::Ethp, Self::Prcl];

    /// The name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Orig => "orig",
            Self::Rec => "rec",
            Self::Prec => "prec",
            Self::Thp => "thp",
            Self::Ethp => "ethp",
            Self::Prcl => "prcl",
        }
    }

    /// The configuration of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|configuration| configuration.name() == name)
    }

    /// What isotherm does, if it runs.
    pub(crate) const fn role(self) -> Role {
        match self {
            Self::Orig | Self::Thp => Role::Absent,
            Self::Rec => Role::Records,
            Self::Prec => Role::RecordsPhysical,
            Self::Ethp => Role::Acts(include_str!("../../../schemes/ethp.yaml")),
            Self::Prcl => Role::Acts(include_str!("../../../schemes/prcl.yaml")),
        }
    }

    /// Whether it is about huge pages.
    pub(crate) const fn is_of_huge_pages(self) -> bool {
        matches!(self, Self::Thp | Self::Ethp)
    }
}

/// What isotherm does in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It does not run.
    Absent,
    /// It records the program.
    Records,
    /// It records physical memory.
    RecordsPhysical,
    /// It applies schemes to the program: these, unless the user names others.
    Acts(&'static str),
}
