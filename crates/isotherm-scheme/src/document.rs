//! A scheme file as it was written, before its form is known.

use isotherm_core::scheme::Scheme;

use crate::complaint::Complaints;
use crate::tree::{Node, tree};
use crate::{lines, yaml};

/// A scheme file: lines, or a tree of YAML or JSON, which may be in one form or another.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    file: &'a str,
    content: Content<'a>,
}

#[derive(Clone, Debug)]
enum Content<'a> {
    Lines(&'a str),
    Tree(Node),
}

impl<'a> Document<'a> {
    /// Takes `text` apart; `file` is what errors call it.
    ///
    /// # Errors
    /// If it is neither lines nor YAML.
    pub fn parse(file: &'a str, text: &'a str) -> Result<Self, Complaints> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if lines::are_lines(text) {
            return Ok(Self { file, content: Content::Lines(text) });
        }
        let tree = tree(text).map_err(|complaint| Complaints::one(file, complaint))?;
        Ok(Self { file, content: Content::Tree(tree) })
    }

    /// Its root, unless it is of lines.
    pub fn tree(&self) -> Option<&Node> {
        match &self.content {
            Content::Lines(_) => None,
            Content::Tree(root) => Some(root),
        }
    }

    /// The schemes in it, in isotherm's own forms.
    ///
    /// # Errors
    /// All that is found wrong, in the order of lines.
    pub fn schemes(&self) -> Result<Vec<Scheme>, Complaints> {
        self.read(|complaints| match &self.content {
            Content::Lines(text) => lines::schemes(text, complaints),
            Content::Tree(root) => yaml::schemes(root, complaints),
        })
    }

    /// What `read` makes of it, unless it complains.
    ///
    /// # Errors
    /// All that `read` found wrong, in the order of lines.
    pub fn read<T>(&self, read: impl FnOnce(&mut Complaints) -> T) -> Result<T, Complaints> {
        let mut complaints = Complaints::new(self.file);
        let value = read(&mut complaints);
        complaints.or(value)
    }
}
