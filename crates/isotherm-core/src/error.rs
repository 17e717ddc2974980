//! Errors as text.

use std::error::Error;

/// An error of an implementation of one of the traits. Its type is not known here.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The text of an error and of its sources, from the outermost inwards, joined by ": ".
///
/// Every error that a user sees is printed by this function. The error types of the workspace keep one rule for it:
/// the text of an error ([`Display`](std::fmt::Display)) never contains the text of its [`source`](Error::source).
/// An error that has nothing to add to its source is transparent. A hint on how to fix the failure stands in
/// parentheses, so that the cause can follow it.
///
/// ```
/// #[derive(Debug, thiserror::Error)]
/// #[error("cannot open {path} (check the name)")]
/// struct OpenError { path: String, source: std::io::Error }
///
/// let source = std::io::Error::other("no such file");
/// let error = OpenError { path: "a.rec".into(), source };
/// assert_eq!(isotherm_core::chain(&error), "cannot open a.rec (check the name): no such file");
/// ```
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let sources = std::iter::successors(error.source(), |&source| source.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
