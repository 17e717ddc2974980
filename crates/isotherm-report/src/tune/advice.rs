//! A piece of advice.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// What advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// A limit on the memory of the targets.
    MemoryLimit,
    /// Memory that could be reclaimed.
    Reclaim,
    /// Whether huge pages are worth it.
    HugePages,
}

impl Topic {
    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryLimit => "memory limit",
            Self::Reclaim => "reclaim",
            Self::HugePages => "huge pages",
        }
    }
}

/// A piece of advice, with the figures that it rests on and what it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Advice {
    /// What it is about.
    pub topic: Topic,
    /// What to do and why, in sentences.
    pub text: String,
    /// The figures that it rests on, by name.
    pub figures: BTreeMap<&'static str, u64>,
    /// What it does not know, a sentence each.
    pub unknown: Vec<String>,
    /// A scheme file that does it.
    pub scheme: Option<String>,
    /// A command that does it.
    pub command: Option<String>,
}

/// A topic on which there is no advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Withheld {
    /// The topic.
    pub topic: Topic,
    /// Why there is no advice.
    pub reason: String,
}
