//! Patterns for names and paths.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use isotherm_core::{BoxError, is_unit};
use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// Why a text is no pattern. The source says where.
#[derive(Debug, Error)]
#[error("{text} is no {what}")]
pub struct PatternError {
    text: String,
    what: &'static str,
    source: BoxError,
}

impl PatternError {
    fn new(text: &str, what: &'static str, source: impl Into<BoxError>) -> Self {
        Self { text: text.into(), what, source: source.into() }
    }
}

/// A regular expression for names. It matches anywhere in a name, unless it begins with `^` and ends with `$`.
#[derive(Clone, Debug)]
pub struct NamePattern(Regex);

/// The memory that an expression may take. That of the library is ten times as much.
const LARGEST: usize = 1 << 20;

impl NamePattern {
    /// The pattern that `text` stands for, in the syntax of the crate `regex`. Its time is linear in the name.
    ///
    /// # Errors
    /// If the text is no regular expression, or too large a one.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let regex = RegexBuilder::new(text).size_limit(LARGEST).build();
        regex.map(Self).map_err(|error| PatternError::new(text, "regular expression", error))
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for NamePattern {}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// A pattern for a path or for one part of it: `*` and `?` stand for characters other than `/`, `**` for any, `[ab]`
/// for one of these, `{a,b}` for one of these texts.
#[derive(Clone, Debug)]
pub struct Glob(GlobMatcher);

impl Glob {
    /// The pattern that `text` stands for.
    ///
    /// # Errors
    /// If a bracket is not closed, or the like.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
        glob.map(|glob| Self(glob.compile_matcher()))
            .map_err(|error| PatternError::new(text, "pattern of a path", error))
    }

    /// The text of a pattern that this text alone matches.
    pub fn escape(text: &str) -> String {
        let is_special = |c: char| "*?[]{}!,\\".contains(c);
        text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
    }

    /// The pattern of a systemd unit. A name without a suffix is that of a service, as for systemctl(1).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn unit(name: &str) -> Result<Self, PatternError> {
        if is_unit(name) { Self::new(name) } else { Self::new(&format!("{name}.service")) }
    }

    /// Whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Whether a path matches, or one of the directories above it.
    pub fn matches_at_or_above(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let above = path.match_indices('/').map(|(at, _)| if at == 0 { "/" } else { &path[..at] });
        self.matches(if path.is_empty() { "/" } else { path }) || above.into_iter().any(|path| self.matches(path))
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.0.glob() == other.0.glob()
    }
}

impl Eq for Glob {}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.glob().glob())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_with_all_below_it() {
        let matches = |glob: &str, path: &str| Glob::new(glob).unwrap().matches_at_or_above(path);
        assert!(matches("/a", "/a") && matches("/a", "/a/b/c") && matches("/a/", "/a/b") == matches("/a/", "/a/"));
        assert!(!matches("/a", "/ab") && !matches("/a/b", "/a"));
        assert!(matches("/", "/") && matches("/", "/a/b"));
        assert!(matches("/*/b", "/a/b/c") && !matches("/*", "x"));
        assert!(matches("/k/*/pod[12]*", "/k/best/pod17/container"));
        assert!(matches("/**/x.{scope,service}", "/a/b/x.scope/c"));
    }

    #[test]
    fn an_escaped_text_matches_itself_alone() {
        for text in [r"/machine.slice/machine-a\x2db.scope", "/a[1]*?{x,y}!", "/plain"] {
            let glob = Glob::new(&Glob::escape(text)).unwrap();
            assert!(glob.matches(text) && !glob.matches("/a1xx!"), "{text}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_an_error_that_says_where() {
        let error = NamePattern::new("a(b").unwrap_err();
        assert_eq!(error.to_string(), "a(b is no regular expression");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("unclosed group"));
        NamePattern::new("(a{1000}){1000}").unwrap_err();
        let error = Glob::new("/a[").unwrap_err();
        assert_eq!(error.to_string(), "/a[ is no pattern of a path");
    }
}
