//! A scheme file before its form is known.

use isotherm_core::scheme::Scheme;

use crate::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::tree::{self, Node};
use crate::{lines, yaml};

/// The contents of a scheme file: lines, or a tree of YAML or JSON values.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    file: &'a str,
    contents: Contents<'a>,
}

#[derive(Clone, Debug)]
enum Contents<'a> {
    Lines(&'a str),
    Tree(Node),
}

impl<'a> Document<'a> {
    /// Reads `text`. `file` is the name of the file in messages.
    ///
    /// # Errors
    /// If the text is neither lines nor YAML.
    pub fn parse(file: &'a str, text: &'a str) -> Result<Self, Diagnostics> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if lines::are_lines(text) {
            return Ok(Self { file, contents: Contents::Lines(text) });
        }
        match tree::parse(text) {
            Ok(root) => Ok(Self { file, contents: Contents::Tree(root) }),
            Err(diagnostic) => {
                let mut diagnostics = Diagnostics::new(file);
                diagnostics.push(diagnostic);
                Err(diagnostics)
            }
        }
    }

    /// The root of the tree. None if the file consists of lines.
    pub fn root(&self) -> Option<&Node> {
        match &self.contents {
            Contents::Lines(_) => None,
            Contents::Tree(root) => Some(root),
        }
    }

    /// The schemes in the file, which is in one of isotherm's own forms.
    ///
    /// # Errors
    /// All errors in the file, in the order of their positions.
    pub fn schemes(&self) -> Result<Vec<Scheme>, Diagnostics> {
        self.read(|diagnostics| match &self.contents {
            Contents::Lines(text) => lines::schemes(text, diagnostics),
            Contents::Tree(root) => yaml::schemes(root, diagnostics),
        })
    }

    /// What `read` makes of the root of the tree. `expected` says what the file should hold, for the message.
    ///
    /// # Errors
    /// All errors that `read` reports; one if the file consists of lines.
    pub fn read_root<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&Node, &mut Diagnostics) -> Option<T>,
    ) -> Result<T, Diagnostics> {
        let mut diagnostics = Diagnostics::new(self.file);
        let value = self.root().and_then(|root| read(root, &mut diagnostics));
        match value {
            Some(value) => diagnostics.into_result(value),
            None => {
                if diagnostics.is_empty() {
                    diagnostics.push(Diagnostic::new(Position::START, format!("expected {expected}")));
                }
                Err(diagnostics.sorted())
            }
        }
    }

    /// The result of `read`, if it reports no error.
    ///
    /// # Errors
    /// All errors that `read` reports, in the order of their positions.
    pub fn read<T>(&self, read: impl FnOnce(&mut Diagnostics) -> T) -> Result<T, Diagnostics> {
        let mut diagnostics = Diagnostics::new(self.file);
        let value = read(&mut diagnostics);
        diagnostics.into_result(value)
    }
}
