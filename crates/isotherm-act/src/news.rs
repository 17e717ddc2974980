//! What the user must know of what was done to cgroups, and of what is undone at the end.

use std::collections::HashSet;

/// The user is warned of at most so many different things.
const MOST: usize = 100;

/// Something that the user must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// In words.
    pub text: String,
    /// Whether something went differently than it was asked for.
    pub is_warning: bool,
}

impl News {
    pub(super) fn warning(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_warning: true }
    }

    pub(super) fn info(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_warning: false }
    }
}

/// News that wait to be told. Each warning is told once.
#[derive(Debug, Default)]
pub(super) struct NewsList {
    told: HashSet<String>,
    waiting: Vec<News>,
}

impl NewsList {
    pub(super) fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.told.len() < MOST && self.told.insert(text.clone()) {
            self.waiting.push(News::warning(text));
        }
    }

    /// Tells of something that went as it was asked for, as often as it happens.
    pub(super) fn inform(&mut self, text: impl Into<String>) {
        self.waiting.push(News::info(text));
    }

    pub(super) fn take(&mut self) -> Vec<News> {
        std::mem::take(&mut self.waiting)
    }
}
